"""One process hands its sockets to another: who may ask, and what becomes of those that fail."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import tarantool
from tests.cli.shell import Shell
from tests.server.hammer import made
from tests.server.takeovers import connected, serves
from tests.support.forks import ForkedShell
from tests.support.serving import Serving
from tests.worker.bench import until

import penstock
from penstock.model.errors import EngineUnavailable, UsageError
from penstock.server import takeover
from penstock.server.takeover import Asking, Control

pytestmark = pytest.mark.timeout(300)


def test_a_command_takes_over_by_the_port(tmp_path: Path):
    made(os.fspath(tmp_path / "tasks.db"))
    with Serving(tmp_path, "tasks.db", "--http-port", "0") as server:
        words = ["--port", str(server.port), "--http-port", str(server.document["http_port"]), "--takeover"]
        with Serving(tmp_path, "tasks.db", *words) as new:
            assert server.ended() == 0
            assert (new.port, new.document["http_port"]) == (server.port, server.document["http_port"])
            new.err.said(f"took over from process {server.process.pid}")
            connected(new).close()
            assert new.stop() == 0
            assert not new.control.exists()


def test_a_port_that_is_not_taken_over_is_named(tmp_path: Path):
    made(os.fspath(tmp_path / "tasks.db"))
    with Serving(tmp_path, "tasks.db", "--grpc-port", "0") as server:
        left = server.document["urls"]["grpc_port"].rpartition(":")[2]
        with Serving(tmp_path, "tasks.db", "--port", str(server.port), "--takeover") as new:
            new.err.said(f"listens on port {left} too, this one does not; --grpc-port {left} keeps it")
            assert server.ended() == 0


def test_one_that_cannot_start_leaves_the_old_one_as_it_is_and_a_SIGHUP_meanwhile_is_not_lost(tmp_path: Path):
    shell = Shell("tasks.db", tmp_path)
    secret = shell.inside("login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml").out.strip()
    file = tmp_path / "logins.toml"
    with Serving(tmp_path, "tasks.db", "--logins", "logins.toml") as server:
        client = tarantool.Connection("127.0.0.1", server.port, user="ann", password=secret)
        good = file.read_text()
        file.unlink()
        os.mkfifo(file, 0o600)  # whoever reads it waits for what is written
        server.process.send_signal(signal.SIGHUP)
        first = server.err.said("is to take over")
        server.process.send_signal(signal.SIGHUP)
        server.err.said("another process is being started already; if that fails, one more is")
        file.write_text("[ann")
        server.err.said("logins.toml is no TOML")
        server.err.said("ended with status 64, this one goes on")
        server.err.said("is to take over", after=1 + server.err.lines.index(first))
        assert client.call("queue.state").data == ["RUNNING"]
        file.write_text(good)
        server.next()
        client.close()
        assert server.ended() == 0


def test_one_that_dies_before_it_is_ready_leaves_the_old_one_as_it_is(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        asking = Asking(server.control, server.document["store"])
        assert list(asking.handed.sockets) == ["port"] and asking.handed.pid == server.process.pid
        asking.close()
        for sock in asking.handed.sockets.values():
            sock.close()
        server.err.said("a takeover came to nothing, this process goes on")
        assert serves(server)


def test_another_store_is_not_served_in_its_place(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        other = Serving(tmp_path, "other.db", "--port", str(server.port), "--takeover")
        other.err.said(f"this server serves {server.document['store']}, not sqlite:")
        assert other.ended() == 64
        assert serves(server)


def test_a_store_in_memory_cannot_be_handed_over(tmp_path: Path):
    with Serving(tmp_path, "memory:") as server:
        client, new = connected(server), server.successor()
        new.err.said("a store in memory cannot be handed over, its tasks would be gone: stop the server and start")
        assert new.ended() == 64
        assert client.call("queue.state").data == ["RUNNING"]
        with pytest.raises(UsageError, match="a store in memory cannot be handed over"):
            Asking(server.control, server.document["store"])
        client.close()


def test_there_has_to_be_a_server_to_take_over_from(tmp_path: Path):
    with pytest.raises(
        EngineUnavailable, match=r"there is no server to take over from at .*: start without --takeover"
    ):
        Asking(tmp_path / "nobody.sock", "sqlite:///x")
    shell = ForkedShell("tasks.db", tmp_path)
    assert shell.run("serve", "--port", "1", "--takeover", XDG_RUNTIME_DIR=os.fspath(tmp_path)).status == 65


def test_nobody_else_can_ask_for_the_sockets(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        path = server.control
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_ISSOCK(path.stat().st_mode)
        if os.getuid() == 0:  # as root the test can be somebody else
            assert _connects_as(NOBODY, path) == errno.EACCES
            assert _connects_as(0, path) == 0


NOBODY = 65534


def _connects_as(user: int, path: Path) -> int:
    """What the kernel says to another user who connects; 0: welcome."""
    child = os.fork()
    if child == 0:
        try:
            os.setuid(user)
            with socket.socket(socket.AF_UNIX) as asking:
                os._exit(asking.connect_ex(os.fspath(path)))
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_without_a_safe_place_for_the_socket_it_serves_and_says_so(tmp_path: Path):
    folder = tmp_path / "penstock"
    folder.mkdir()
    folder.chmod(0o777)
    with Serving(tmp_path, "tasks.db", XDG_RUNTIME_DIR=os.fspath(tmp_path)) as server:
        server.err.said("no other process can take over from this one")
        server.process.send_signal(signal.SIGHUP)
        server.err.said("SIGHUP: no other process can take over from this one, so it goes on as it is")
        assert serves(server)


def test_a_dry_run_leaves_the_old_one_as_it_is(tmp_path: Path):
    made(os.fspath(tmp_path / "tasks.db"))
    with Serving(tmp_path, "tasks.db", "--http-port", "0") as server, penstock.connect(server.url) as queue:
        http = str(server.document["http_port"])
        words = ["--port", str(server.port), "--http-port", http, "--takeover", "--check"]
        trial = Serving(tmp_path, "tasks.db", *words).ready()
        assert trial.ended() == 0
        assert trial.document["urls"] == server.document["urls"]
        server.err.said("another process has looked whether it could take over; this one goes on")
        assert serves(server)
        queue.tube("mail").put("still here")
        assert server.process.poll() is None
        server.successor().ready()  # and it can still be taken over from
        assert server.ended() == 0


def test_a_dry_run_finds_what_would_not_start(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        words = ["--port", str(server.port), "--logins", "none.toml", "--takeover", "--check"]
        trial = Serving(tmp_path, "tasks.db", *words)
        trial.err.said("the logins in none.toml cannot be read")
        assert trial.ended() == 64
        assert serves(server)


def test_one_that_is_told_to_stop_before_the_new_one_is_ready_ends_both(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        asking = Asking(server.control, server.document["store"])
        assert server.stop() == 0
        with pytest.raises(EngineUnavailable, match="the server was told to stop before"):
            asking.ready()
        for sock in asking.handed.sockets.values():
            sock.close()


class Old:
    """A process that hands over by the rules, up to the point where the new one has the sockets."""

    def __init__(self, folder: Path, store: str) -> None:
        self.path = folder / "old.sock"
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self._control = socket.socket(socket.AF_UNIX)
        self._control.bind(os.fspath(self.path))
        self._control.listen()
        self.new = Serving(folder, store, "--port", str(self.port), "--takeover", PENSTOCK_CONTROL=os.fspath(self.path))
        self.talk, _ = self._control.accept()
        self.talk.recv(1000)
        said = {"doors": ["port"], "ports": {"port": self.port}, "pid": os.getpid()}
        socket.send_fds(self.talk, [json.dumps(said).encode() + b"\n"], [self.listening.fileno()])

    def close(self) -> None:
        for sock in (self.talk, self._control, self.listening):
            sock.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock") as name:
        yield Path(name)


def test_the_new_one_ends_if_the_old_one_was_told_to_stop(short_folder: Path):
    old = Old(short_folder, "tasks.db")
    old.talk.sendall(b'{"error": "told to stop"}\n')
    old.close()
    old.new.err.said("told to stop")
    assert old.new.ended() == 65
    assert old.new.out.lines == []


def test_the_new_one_serves_if_the_old_one_has_died(short_folder: Path):
    old = Old(short_folder, "tasks.db")
    old.close()
    with old.new as server:
        assert serves(server)


NONSENSE = [b"[]\n", b"\xff\xfe\n", b'{"penstock": [], "store": {}}\n']


def test_nonsense_does_not_end_the_one_that_is_asked(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        for words in NONSENSE:
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(os.fspath(server.control))
                other.sendall(words)
        for words in (b'{"ready": null}\n', b'{"ready": []}\n', b'{"ready": "soon"}\n', b"{}\n"):
            asking = Asking(server.control, server.document["store"])
            asking._connection.sendall(words)
            asking.close()
            for sock in asking.handed.sockets.values():
                sock.close()
        server.successor().ready()
        assert server.ended() == 0


def test_one_that_says_nothing_keeps_nobody_waiting_for_long(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(takeover, "SILENCE", 0.05)
    path, taken = short_folder / "private" / "control.sock", list[int]()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as silent:
        control = Control(path, "sqlite:///x", {"port": listening}, {"port": listening.getsockname()[1]}, taken.append)
        control.place()
        silent.connect(os.fspath(path))
        until(lambda: "a takeover came to nothing, this process goes on: timed out" in caplog.text)
        monkeypatch.undo()  # the next one may be slow
        asking = Asking(path, "sqlite:///x")
        asking.ready()
        for sock in asking.handed.sockets.values():
            sock.close()
        control.close()
    assert taken == [os.getpid()]


@pytest.mark.exhaustive  # waits for two seconds in which nothing happens
def test_a_process_that_says_nothing_keeps_nobody_waiting_for_long(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(os.fspath(server.control))
        server.process.send_signal(signal.SIGHUP)
        server.next()  # sooner than this test is patient
        server.err.said("a takeover came to nothing, this process goes on: timed out")
        assert server.ended() == 0
