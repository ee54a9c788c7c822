"""`penstock serve` as a process: where it listens, what it says, how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tests.cli.shell import PROGRAM, Shell, started
from tests.support.forks import ForkedShell
from tests.support.serving import FreshServing, Serving, runtime

import penstock
from penstock.metrics import logs
from penstock.server import run as program
from penstock.server.descriptors import make_room


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return ForkedShell("tasks.db", tmp_path)


def refused(shell: Shell, *words: str) -> str:
    """What a server says that does not start."""
    ran = shell.run("serve", *words)
    assert (ran.status, ran.out) == (64, ""), ran.err
    return ran.err


def test_it_says_where_it_is_on_stdout_and_the_rest_in_its_log(tmp_path: Path):
    with FreshServing(tmp_path, "tasks.db", "--http-port", "0") as server:
        document = server.document
        assert document["pid"] == server.process.pid
        assert document["urls"]["port"] == f"penstock://127.0.0.1:{document['port']}"
        assert document["urls"]["http_port"] == f"http://127.0.0.1:{document['http_port']}"
        assert document["store"].endswith("tasks.db")
        server.err.said(f"listening on penstock://127.0.0.1:{document['port']}")
        assert server.stop() == 0
        server.err.said("SIGTERM: answering what was asked, then stopping")
        server.err.said("stopped")
        assert server.out.lines == [json.dumps(document, separators=(",", ":"))]


def test_as_text_the_addresses_are_printed_one_a_line(shell: Shell):
    ran = shell.run("serve", "tasks.db", "--port", "0", "--http-port", "0", "--check")
    assert ran.status == 0
    first, second = ran.out.splitlines()
    assert first.startswith("penstock://127.0.0.1:") and second.startswith("http://127.0.0.1:")


def test_its_log_can_be_json(tmp_path: Path):
    with Serving(tmp_path, "tasks.db", "--log-format", "json") as server:
        line = json.loads(server.err.said("listening on"))
        assert line["url"] == server.url and line["port"] == server.port and line["level"] == "INFO"


def test_the_store_may_be_given_as_any_command_has_it(shell: Shell):
    assert shell.run("serve", "--port", "0", "--check").status == 0
    assert shell.run("serve", "--url", "other.db", "--port", "0", "--check").status == 0
    assert (shell.folder / "tasks.db").exists() and (shell.folder / "other.db").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_what_was_put_over_a_connection_is_in_the_file_after_an_orderly_end(tmp_path: Path, number: signal.Signals):
    with penstock.connect(tmp_path / "tasks.db") as queue:
        queue.create_tube("mail", "fifo")
    with Serving(tmp_path, "tasks.db") as server:
        client = tarantool.Connection("127.0.0.1", server.port)
        client.call("queue.tube.mail:put", ({"n": 1},))
        client.close()
        server.process.send_signal(number)
        assert server.ended() == 0
    with penstock.connect(tmp_path / "tasks.db") as queue:
        task = queue.tube("mail").take()
        assert task is not None and task.data == {"n": 1}


def test_a_store_in_memory_is_served_with_a_warning(tmp_path: Path):
    with Serving(tmp_path, "memory:") as server:
        server.err.said("memory: is in the memory of this process: every task is gone when it ends")
        assert server.stop() == 0


def test_postgresql_is_served(tmp_path: Path, database: str):
    with Serving(tmp_path, database) as server:
        tarantool.Connection("127.0.0.1", server.port).close()
        assert server.stop() == 0


def test_without_uvloop_it_runs_in_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch):
    async def loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert program._run(loop()).startswith("uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert program._run(loop()).startswith("asyncio")


@pytest.mark.exhaustive
def test_it_works_without_uvloop(tmp_path: Path):
    (tmp_path / "uvloop.py").write_text("raise ImportError('not here')")
    with FreshServing(tmp_path, "tasks.db", PYTHONPATH=str(tmp_path)) as server:
        tarantool.Connection("127.0.0.1", server.port).close()
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("missing", "door"),
    [
        ("msgpack", "port"),
        pytest.param("grpc", "grpc-port", marks=pytest.mark.exhaustive),
        pytest.param("grpc_health", "grpc-port", marks=pytest.mark.exhaustive),
    ],
)
def test_without_the_extra_it_is_named_and_no_store_is_made(tmp_path: Path, missing: str, door: str):
    shell = Shell("tasks.db", tmp_path)
    (shell.folder / missing).mkdir()
    (shell.folder / missing / "__init__.py").write_text(f"raise ModuleNotFoundError('not here', name={missing!r})")
    ran = shell.run("serve", "--port", "0", "--grpc-port", "0", "--check", PYTHONPATH=str(shell.folder))
    assert (ran.status, ran.out) == (64, "") and "Traceback" not in ran.err
    assert f"--{door} needs {missing}: " in ran.err and "pip install 'penstock[server]'" in ran.err
    assert not (shell.folder / "tasks.db").exists()


def test_a_port_that_is_taken_is_an_error_with_the_next_step(shell: Shell):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refused(shell, "--port", str(port))
        assert f"nobody can listen on 127.0.0.1:{port} (Address already in use)" in text
        assert "another port, or 0 for a free one, or --takeover if a server of this store has it" in text


REFUSED_AT_ONCE = [
    (["--tls-cert", "a.pem"], "--tls-cert and --tls-key go together"),
    (["--tls-ca", "a.pem"], "--tls-ca needs --tls-cert and --tls-key"),
    (["--max-connections", "0"], "--max-connections must be at least 1, got 0"),
    (["--host", "nowhere.invalid"], "nowhere.invalid can be reached from other machines"),
    (["--port", "99999"], "--port is 0 for a free one, or up to 65535, got 99999"),
    (["--drain", "-1"], "--drain is 0 to 86400 seconds, got -1"),
    (["--drain", "nan"], "--drain is 0 to 86400 seconds, got nan"),
    (["--drain", "inf"], "--drain is 0 to 86400 seconds, got inf"),
    (["--http-port", "-1"], "--http-port is 0 for a free one, or up to 65535, got -1"),
]
REFUSED_AT_THE_START = [
    (["--durability", "maybe"], "durability must be 'strict' or 'relaxed', got 'maybe'"),
    (["--tls-cert", "a.pem", "--tls-key", "b.pem"], "--tls-cert a.pem and --tls-key b.pem cannot be used"),
    (["--logins", "nope.toml"], "`penstock login NAME --file nope.toml` makes one"),
]


def words_of(it: Any) -> str:
    return " ".join(it) if isinstance(it, list) else ""


@pytest.mark.parametrize(("words", "text"), REFUSED_AT_ONCE, ids=words_of)
def test_what_makes_no_sense_is_refused_in_one_line(
    shell: Shell, words: list[str], text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "setup", lambda *_: None)  # of this process
    ran = shell.inside("serve", "--port", "0", *words)
    assert (ran.status, ran.out) == (64, "")
    assert text in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(("words", "text"), REFUSED_AT_THE_START, ids=words_of)
def test_what_cannot_be_served_is_refused_in_one_line(shell: Shell, words: list[str], text: str):
    said = refused(shell, "--port", "0", *words)
    assert text in said and "Traceback" not in said


def test_a_server_is_no_store_of_another(shell: Shell):
    assert "penstock:// is another server; this one needs a store" in refused(
        shell, "penstock://127.0.0.1:3301", "--port", "0"
    )


def test_the_help_of_the_module_and_of_the_program_is_the_same(tmp_path: Path):
    assert PROGRAM[1:] == ["-m", "penstock"]
    said = ForkedShell("tasks.db", tmp_path).run("serve", "--help").out
    for word in (
        "--host",
        "--port",
        "--grpc-port",
        "--http-port",
        "--durability",
        "--tls-cert",
        "--tls-key",
        "--tls-ca",
    ):
        assert word in said
    for word in ("--logins", "--drain", "--takeover", "--max-connections", "SIGHUP"):
        assert word in said


SAID = "allows this process 600 open files, so about 400 connections instead of 1000"


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "said"),
    [(256, 5000, 1200, None), (2000, 5000, None, None), (256, -1, 1200, None), (600, 600, None, SAID)],
)
def test_a_limit_of_open_files_is_raised_as_far_as_it_may_be(
    soft: int,
    hard: int,
    allowed: int | None,
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    assert make_room(1000) == (1000 if said is None else 400)
    assert given == ([] if allowed is None else [(allowed, hard)])
    assert (said or "") in caplog.text and bool(caplog.text) == (said is not None)


@pytest.mark.parametrize(
    ("limit", "allowed", "said"),
    [
        ("ulimit -Sn 256 && ulimit -Hn 2000", "1200", None),
        pytest.param("ulimit -n 600", "600", SAID, marks=pytest.mark.exhaustive),
    ],
    ids=["soft", "hard"],
)
def test_room_is_made_for_as_many_connections_as_may_come(tmp_path: Path, limit: str, allowed: str, said: str | None):
    server = started(
        ["bash", "-c", f'{limit} && exec "$@"', "bash", *PROGRAM, "serve", "--port", "0", "--max-connections", "1000"],
        cwd=tmp_path,
        env=Shell("tasks.db", tmp_path).environment(XDG_RUNTIME_DIR=runtime()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None and server.stdout.readline().startswith("penstock://")
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    found = re.search(r"Max open files +(\d+)", limits)
    assert found is not None and found[1] == allowed
    server.terminate()
    log = server.communicate(timeout=60)[1]
    assert (said or "listening") in log and ("ulimit" in log) == (said is not None)


# -- under systemd -------------------------------------------------------------------------------------


class Ear:
    """What a service tells systemd."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(90)

    def heard(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def close(self) -> None:
        self._socket.close()


def test_systemd_is_told_when_it_serves_who_the_main_process_is_and_that_it_stops(tmp_path: Path):
    ear = Ear(tmp_path / "notify")
    with Serving(tmp_path, "tasks.db", NOTIFY_SOCKET=str(tmp_path / "notify")) as server:
        first = ear.heard()
        assert (first["READY"], first["MAINPID"]) == ("1", str(server.process.pid))
        new = server.successor().ready()
        second = ear.heard()
        assert (second["READY"], second["MAINPID"]) == ("1", str(new.process.pid))
        assert server.ended() == 0  # without a word: the service goes on
        new.process.send_signal(signal.SIGTERM)
        assert ear.heard() == {"STOPPING": "1"}
    ear.close()


def test_sockets_that_systemd_has_opened_are_served(tmp_path: Path):
    script = 'LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=http_port:port exec "$@" 3<&{0} 4<&{1}'
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as port:
        command = script.format(http.fileno(), port.fileno())
        server = started(
            ["bash", "-c", command, "bash", *PROGRAM, "serve", "tasks.db", "--http-port", "0", "--json"],
            cwd=tmp_path,
            env=Shell("tasks.db", tmp_path).environment(XDG_RUNTIME_DIR=runtime()),
            pass_fds=(http.fileno(), port.fileno()),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        with server.stdout:
            said = json.loads(server.stdout.readline())
        assert (said["port"], said["http_port"]) == (port.getsockname()[1], http.getsockname()[1])
        client = tarantool.Connection("127.0.0.1", said["port"])
        assert client.call("queue.state").data == ["RUNNING"]
        client.close()
        server.terminate()
        assert server.wait(60) == 0
