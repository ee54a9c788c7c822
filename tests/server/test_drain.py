"""An orderly end: what was asked is answered, what waits ends, what was held goes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tests.cli.shell import PATIENCE
from tests.server.raw import Raw, call
from tests.support.reservation import free_port
from tests.support.serving import Serving

import penstock
from penstock.server import run as program
from penstock.server.server import Server
from penstock.server.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = os.fspath(tmp_path / "tasks.db")
    with penstock.connect(path) as queue:
        queue.create_tube("mail", "fifo")
    return path


@pytest.fixture
def server(tmp_path: Path, store: str) -> Iterator[Serving]:
    port = str(free_port())
    with Serving(tmp_path, store, "--durability", "relaxed", "--port", port, "--http-port", "0") as running:
        yield running


def answered(client: Raw) -> int:
    """The number of the next answer, which is no error."""
    answer = client.answer()
    assert answer.error is None
    return answer.sync


def test_everything_that_was_stored_was_answered(server: Serving, store: str):
    client = Raw(server.port)
    client.send(b"".join(call(number, "queue.tube.mail:put", number) for number in range(1, 3001)))
    done = [answered(client)]
    server.process.send_signal(signal.SIGTERM)
    with contextlib.suppress(EOFError):
        while True:
            done.append(answered(client))
    client.close()
    assert server.ended() == 0
    with penstock.connect(store) as queue:
        stored = [task.data for task in queue.tube("mail").tasks(limit=10_000)]
    assert done == stored and len(stored) >= 1


def test_takes_that_wait_end_with_nothing_and_nobody_new_comes_in(server: Serving):
    got, clients = list[Any](), [tarantool.Connection("127.0.0.1", server.port) for _ in range(5)]

    def take(client: tarantool.Connection) -> None:
        got.append(client.call("queue.tube.mail:take", ()).data)

    threads = [threading.Thread(target=take, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    server.waited_at(5)
    assert server.stop() == 0
    for client, thread in zip(clients, threads, strict=True):
        thread.join(PATIENCE)
        client.close()
    assert len(got) == 5 and all(answer in ([], [None]) for answer in got)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), PATIENCE)


def test_what_clients_of_tarantool_held_is_ready_again(server: Serving, store: str):
    client = tarantool.Connection("127.0.0.1", server.port)
    client.call("queue.tube.mail:put", ("a",))
    client.call("queue.tube.mail:take", (0,))
    assert server.stop() == 0
    client.close()
    with penstock.connect(store) as queue:
        task = queue.tube("mail").take()
        assert task is not None and task.data == "a"


def slow(port: int, store: str) -> Raw:
    """A client that asks for much and reads nothing."""
    with penstock.connect(store) as queue:
        id = queue.tube("mail").put("x" * 1_000_000).id
    client = Raw(port)
    client.send(b"".join(call(number, "queue.tube.mail:peek", id) for number in range(1, 41)))
    assert answered(client) == 1
    return client


def test_a_client_that_does_not_read_is_waited_for_and_then_left(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(program, "LEAST", 0.2)

    async def ended() -> int:
        settings = Settings(store, port=0, drain_seconds=0)
        server = Server(settings)
        await server.start()
        client = await asyncio.get_running_loop().run_in_executor(None, slow, server.port(), store)
        try:
            return await program.Program(settings, lambda server: None)._end(server)
        finally:
            client.close()  # and what goes on without it comes to its end
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

    assert asyncio.run(ended()) == 1
    assert "clients have not read their answers within 0.2 s: stopping without them" in caplog.text


@pytest.mark.exhaustive  # waits for two seconds in which nothing happens
def test_a_server_leaves_a_client_that_does_not_read(tmp_path: Path, store: str):
    with Serving(tmp_path, store, "--drain", "0") as server, slow(server.port, store):
        assert server.stop() == 1
        server.err.said("clients have not read their answers within 2 s: stopping without them")


def test_a_store_that_takes_its_time_is_waited_for_when_nobody_is_left(store: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "LEAST", 0.01)

    async def ended() -> int:
        settings = Settings(store, port=0, drain_seconds=0)
        server = Server(settings)
        await server.start()
        engine: Any = server._engine
        close = engine.close

        def slowly() -> None:
            threading.Event().wait(0.2)
            close()

        engine.close = slowly
        return await program.Program(settings, lambda server: None)._end(server)

    assert asyncio.run(ended()) == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path, store: str):
    with Serving(tmp_path, store, "--drain", "600") as server, slow(server.port, store):
        server.process.send_signal(signal.SIGTERM)
        server.err.said("SIGTERM: answering what was asked, then stopping")
        server.process.send_signal(signal.SIGTERM)
        server.err.said("SIGTERM again: stopping at once")
        assert server.ended() == 1


def test_clients_of_the_library_wait_for_the_next_server(tmp_path: Path, store: str):
    with Serving(tmp_path, store, "--port", str(free_port())) as server:
        queue = penstock.connect(server.url, session_ttl=600)
        tube, got = queue.tube("mail"), list[Any]()
        held = tube.put("held")
        assert tube.take() is not None
        thread = threading.Thread(target=lambda: got.append(tube.take(timeout=600)))
        thread.start()
        assert server.stop() == 0
        with Serving(tmp_path, store, "--port", str(server.port)):
            tube.put("later")
            thread.join(PATIENCE)
            assert got[0].data == "later"
            got[0].ack()
            tube.ack(held.id)  # its session goes on
            assert tube.statistics().tasks["total"] == 0
            queue.close()
