"""Restarts that nobody notices: sockets go to a new process while clients work."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool
import trustme
from tests.cli.shell import PATIENCE, Shell
from tests.support import postgres
from tests.support.serving import Serving

import penstock
from penstock.model.errors import EngineUnavailable, UsageError
from penstock.server.takeover import Asking

TASKS = 1500
HANDS = 3
"""Producers, and as many consumers."""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield os.fspath(tmp_path / "tasks.db")
        return
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


def made(store: str, name: str = "mail") -> None:
    with penstock.connect(store) as queue:
        queue.create_tube(name, "fifo")


def connected(server: Serving) -> tarantool.Connection:
    return tarantool.Connection("127.0.0.1", server.port, reconnect_delay=0.01)


def serves(server: Serving) -> bool:
    """Whether somebody new can connect and is served."""
    client = connected(server)
    try:
        return bool(client.call("queue.state").data == ["RUNNING"])
    finally:
        client.close()


def control(server: Serving) -> Path:
    return server.runtime / "penstock" / f"127.0.0.1-{server.port}.sock"


class Hammer:
    """Clients that put, take and ack as fast as they can; whatever goes wrong for one of them is kept."""

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = opened
        self.put = list[int]()
        self.taken = list[int]()
        self.acked = list[int]()
        self.trouble = list[BaseException]()
        self._more = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, args=(work, hand))
            for hand in range(HANDS)
            for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> Hammer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)

    def reached(self, count: int) -> None:
        """Wait until so many are acked."""
        with self._more:
            assert self._more.wait_for(lambda: len(self.acked) >= count or self.trouble, PATIENCE), len(self.acked)
            assert not self.trouble, self.trouble

    def over(self) -> bool:
        return len(self.acked) >= TASKS or bool(self.trouble)

    def _run(self, work: Callable[[Any, int], None], hand: int) -> None:
        try:
            client = self._opened()
            try:
                work(client, hand)
            finally:
                client.close()
        except BaseException as error:
            with self._more:
                self.trouble.append(error)
                self._more.notify_all()

    def _note(self, kept: list[int], number: int) -> None:
        with self._more:
            kept.append(number)
            self._more.notify_all()

    def _produce(self, client: Any, hand: int) -> None:
        for number in range(hand, TASKS, HANDS):
            self._put(client, number)
            self._note(self.put, number)

    def _consume(self, client: Any, hand: int) -> None:
        while not self.over():
            task = self._take(client)
            if task is not None:
                self._note(self.taken, task[1])
                self._ack(client, task[0])
                self._note(self.acked, task[1])

    def _put(self, client: Any, number: int) -> None:
        client.call("queue.tube.mail:put", (number,))

    def _take(self, client: Any) -> tuple[Any, int] | None:
        found = client.call("queue.tube.mail:take", (0.05,)).data
        return (found[0][0], found[0][2]) if found and found[0] else None

    def _ack(self, client: Any, task: Any) -> None:
        assert client.call("queue.tube.mail:ack", (task,)).data[0][1] == "-"

    def check(self) -> None:
        """Nothing failed, nothing was lost, nothing came twice."""
        assert self.trouble == []
        everything = list(range(TASKS))
        assert sorted(self.put) == sorted(self.taken) == sorted(self.acked) == everything


class LibraryHammer(Hammer):
    """The same by the library's own clients."""

    def _put(self, client: Any, number: int) -> None:
        client.tube("mail").put(number)

    def _take(self, client: Any) -> tuple[Any, int] | None:
        task = client.tube("mail").take(timeout=0.05)
        return None if task is None else (task, task.data)

    def _ack(self, client: Any, task: Any) -> None:
        task.ack()


def through_two_takeovers(server: Serving, hammer: Hammer) -> None:
    with hammer:
        hammer.reached(TASKS // 5)
        server.process.send_signal(signal.SIGHUP)
        second = server.next()["pid"]
        hammer.reached(3 * TASKS // 5)
        os.kill(second, signal.SIGHUP)
        third = server.next()["pid"]
    hammer.check()
    assert len({server.process.pid, second, third}) == 3
    assert server.ended() == 0
    os.kill(third, signal.SIGTERM)
    server.out.end()  # all three have ended
    assert [line for line in server.err.lines if " ERROR " in line or " WARNING " in line] == []


@pytest.mark.parametrize("drain", ["0", "30"])
def test_clients_of_tarantool_do_not_notice_two_takeovers(tmp_path: Path, store: str, drain: str):
    made(store)
    with Serving(tmp_path, store, "--drain", drain, "--durability", "relaxed") as server:
        through_two_takeovers(server, Hammer(lambda: connected(server)))


def test_clients_of_the_library_do_not_notice_two_takeovers(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--durability", "relaxed") as server:
        through_two_takeovers(server, LibraryHammer(lambda: penstock.connect(server.url)))


def test_clients_of_grpc_do_not_notice_two_takeovers(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--grpc-port", "0", "--durability", "relaxed") as server:
        url = server.document["urls"]["grpc_port"]
        through_two_takeovers(server, LibraryHammer(lambda: penstock.connect(url)))


def test_a_lease_of_a_client_of_tarantool_outlives_the_takeover(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)
    with Serving(tmp_path, store, "--drain", "0") as server:
        client = connected(server)
        client.call("queue.tube.mail:put", ("a",))
        task = client.call("queue.tube.mail:take", (0,)).data[0]
        server.process.send_signal(signal.SIGHUP)
        server.next()
        server.err.said("1 connections are served until they hold no task")
        other = connected(server)
        assert other.call("queue.tube.mail:take", (0,)).data in ([], [None])
        assert client.call("queue.tube.mail:ack", (task[0],)).data[0][1] == "-"
        assert server.ended() == 0  # its last client held nothing any more
        assert client.call("queue.state").data == ["RUNNING"]  # it has connected anew, by itself
        client.close()
        other.close()


def test_a_take_that_waits_at_the_old_process_gets_what_is_put_at_the_new_one(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store) as server:
        waiting, got = connected(server), list[Any]()
        thread = threading.Thread(target=lambda: got.append(waiting.call("queue.tube.mail:take", (60,)).data))
        thread.start()
        server.process.send_signal(signal.SIGHUP)
        server.next()
        server.err.said("has taken over")
        client = connected(server)
        client.call("queue.tube.mail:put", ("late",))
        thread.join(PATIENCE)
        assert got[0][0][2] == "late"
        assert waiting.call("queue.tube.mail:ack", (got[0][0][0],)).data[0][1] == "-"
        waiting.close()
        assert server.ended() == 0
        client.close()


def test_takes_that_wait_for_ever_end_with_nothing_when_the_time_is_over(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)
    with Serving(tmp_path, store, "--drain", "0") as server:
        waiting, got = connected(server), list[Any]()
        thread = threading.Thread(target=lambda: got.append(waiting.call("queue.tube.mail:take", ()).data))
        thread.start()
        server.process.send_signal(signal.SIGHUP)
        server.next()
        assert server.ended() == 0
        thread.join(PATIENCE)
        assert got in ([[]], [[None]])
        waiting.close()


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
            assert not control(new).exists()


def test_one_that_cannot_start_leaves_the_old_one_as_it_is(tmp_path: Path):
    file = tmp_path / "logins.toml"
    shell = Shell("tasks.db", tmp_path)
    secret = shell.inside("login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml").out.strip()
    with Serving(tmp_path, "tasks.db", "--logins", "logins.toml") as server:
        client = tarantool.Connection("127.0.0.1", server.port, user="ann", password=secret)
        good = file.read_text()
        file.write_text("[ann")
        server.process.send_signal(signal.SIGHUP)
        server.err.said("logins.toml is no TOML")
        server.err.said("ended with status 64, this one goes on")
        assert client.call("queue.state").data == ["RUNNING"]
        file.write_text(good)
        server.process.send_signal(signal.SIGHUP)
        server.next()
        client.close()
        assert server.ended() == 0


def test_one_that_dies_before_it_is_ready_leaves_the_old_one_as_it_is(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        asking = Asking(control(server), server.document["store"])
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
        client = connected(server)
        server.process.send_signal(signal.SIGHUP)
        server.err.said("a store in memory cannot be handed over, its tasks would be gone: stop the server and start")
        server.err.said("ended with status 64, this one goes on")
        assert client.call("queue.state").data == ["RUNNING"]
        with pytest.raises(UsageError, match="a store in memory cannot be handed over"):
            Asking(control(server), server.document["store"])
        client.close()


def test_there_has_to_be_a_server_to_take_over_from(tmp_path: Path):
    with pytest.raises(
        EngineUnavailable, match=r"there is no server to take over from at .*: start without --takeover"
    ):
        Asking(tmp_path / "nobody.sock", "sqlite:///x")
    shell = Shell("tasks.db", tmp_path)
    assert shell.run("serve", "--port", "1", "--takeover", XDG_RUNTIME_DIR=os.fspath(tmp_path)).status == 65


def test_nobody_else_can_ask_for_the_sockets(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server:
        path = control(server)
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


def test_a_take_of_the_library_waits_on_at_the_new_process(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store) as server, penstock.connect(server.url) as queue:
        got = list[Any]()
        thread = threading.Thread(target=lambda: got.append(queue.tube("mail").take(timeout=60)))
        thread.start()
        server.process.send_signal(signal.SIGHUP)
        new = server.next()["pid"]
        assert server.ended() == 0  # though a take was waiting there
        queue.tube("mail").put("late")
        thread.join(PATIENCE)
        assert got[0].data == "late"
        os.kill(new, signal.SIGHUP)
        server.next()
        got[0].ack()  # held through one more
        assert queue.statistics()["mail"].tasks["total"] == 0


def test_a_transaction_ends_where_it_began(tmp_path: Path):
    url = postgres.lent_place()
    made(url)
    with Serving(tmp_path, url) as server, penstock.connect(server.url) as queue:
        tube = queue.tube("mail")
        with queue.transaction() as transaction:
            tube.put(1, transaction=transaction)
            server.process.send_signal(signal.SIGHUP)
            server.next()
            server.err.said("has taken over")
            tube.put(2, transaction=transaction)
        assert [task.data for task in tube.take_many(5)] == [1, 2]
        assert server.ended() == 0
    postgres.give_back(url)


def test_async_clients_do_not_notice_either(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)

    async def work(server: Serving) -> int:
        loop = asyncio.get_running_loop()
        async with await penstock.aconnect(server.url) as queue:
            tube, done = await queue.tube("mail"), 0

            async def cycles() -> None:
                nonlocal done
                while done < 600:
                    await tube.put(1)
                    task = await tube.take()
                    if task is not None:
                        await task.ack()
                        done += 1

            hands = [asyncio.create_task(cycles()) for _ in range(5)]
            server.process.send_signal(signal.SIGHUP)
            await loop.run_in_executor(None, server.next)
            await asyncio.gather(*hands)
            return done

    with Serving(tmp_path, store, "--durability", "relaxed") as server:
        assert asyncio.run(work(server)) >= 600
        assert server.ended() == 0


def test_what_is_encrypted_stays_so(tmp_path: Path):
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    cert.private_key_pem.write_to_path(tmp_path / "server.key")
    shell = Shell("tasks.db", tmp_path)
    secret = shell.inside("login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml").out.strip()
    words = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--logins", "logins.toml"]
    with Serving(tmp_path, "tasks.db", *words) as server:
        assert server.url.endswith("?tls=on")
        url = f"penstock://ann:{secret}@127.0.0.1:{server.port}?tls=on&ca={tmp_path}/ca.pem"
        with penstock.connect(url) as queue:
            tube = queue.create_tube("mail")
            server.process.send_signal(signal.SIGHUP)
            server.next()
            assert server.ended() == 0
            tube.put("sealed")
            assert [task.data for task in tube.tasks()] == ["sealed"]


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
        server.process.send_signal(signal.SIGHUP)  # and it can still be taken over from
        server.next()
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
        asking = Asking(control(server), server.document["store"])
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
                other.connect(os.fspath(control(server)))
                other.sendall(words)
        for words in (b'{"ready": null}\n', b'{"ready": []}\n', b'{"ready": "soon"}\n', b"{}\n"):
            asking = Asking(control(server), server.document["store"])
            asking._connection.sendall(words)
            asking.close()
            for sock in asking.handed.sockets.values():
                sock.close()
        server.process.send_signal(signal.SIGHUP)
        server.next()
        assert server.ended() == 0


def test_one_that_says_nothing_keeps_nobody_waiting_for_long(tmp_path: Path):
    with Serving(tmp_path, "tasks.db") as server, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(os.fspath(control(server)))
        server.process.send_signal(signal.SIGHUP)
        server.next()  # sooner than this test is patient
        server.err.said("a takeover came to nothing, this process goes on: timed out")
        assert server.ended() == 0


def test_a_SIGHUP_while_another_one_is_at_work_is_not_lost(tmp_path: Path):
    shell = Shell("tasks.db", tmp_path)
    shell.inside("login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml")
    with Serving(tmp_path, "tasks.db", "--logins", "logins.toml") as server:
        (tmp_path / "logins.toml").write_text("[ann")
        server.process.send_signal(signal.SIGHUP)
        first = server.err.said("is to take over")
        server.process.send_signal(signal.SIGHUP)
        server.err.said("another process is being started already; if that fails, one more is")
        server.err.said("is to take over", after=1 + server.err.lines.index(first))
