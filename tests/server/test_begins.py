"""Transactions of remote engines that wait for another one to end before they begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import PATIENCE
from tests.server.raw import Raw, call
from tests.support.postgres import until
from tests.support.servers import Running

import penstock
from penstock.engines.remote.request import Call
from penstock.wire import codec, talk

HELLO = codec.pack(talk.Hello(codec.VERSION, "far", None))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(str(tmp_path / "tasks.db"), grpc_port=0) as running:
        yield running


def waiting(server: Running) -> list[int]:
    """Numbers of requests to begin that are not answered yet."""
    clients = server.server.book._clients  # the server's own thread changes it meanwhile
    return [number for client in list(clients.values()) for number in list(client.pending)]


@pytest.mark.parametrize("scheme", ["penstock", "grpc"])
def test_one_that_waits_begins_over_the_next_connection(server: Running, scheme: str) -> None:
    with penstock.connect(server.url if scheme == "penstock" else server.grpc_url) as q:
        tube = q.create_tube("jobs", "fifo")
        inside, go, done = threading.Event(), threading.Event(), threading.Event()

        def first() -> None:
            with pytest.raises(penstock.EngineUnavailable):
                hold()

        def hold() -> None:
            with q.transaction() as tx:
                inside.set()
                go.wait()
                tube.put(1, transaction=tx)

        def second() -> None:
            inside.wait()
            with q.transaction() as tx:
                tube.put(2, transaction=tx)
            done.set()

        threads = [threading.Thread(target=work, daemon=True) for work in (first, second)]
        for thread in threads:
            thread.start()
        assert inside.wait(PATIENCE)
        until(lambda: waiting(server), "the second should wait to begin")
        q._engine.store.channel._link.close()
        go.set()
        assert done.wait(PATIENCE)
        for thread in threads:
            thread.join()
        assert tube.statistics().tasks["ready"] == 1


def test_one_that_is_given_up_never_begins(server: Running) -> None:
    with Raw(server.server.port()) as raw, penstock.connect(server.url) as other:
        tube = other.create_tube("jobs", "fifo")
        raw.call("penstock.hello", -1, 0, HELLO)
        raw.call("penstock.begin", 1, 0, codec.pack(None))
        raw.send(call(5, "penstock.begin", 2, 0, codec.pack(None)))
        answers = {}
        raw.send(call(6, "penstock.rollback", 3, 0, codec.pack(2)))
        for _ in range(2):
            answer = raw.answer()
            answers[answer.sync] = answer.data
        assert answers[5][0] is True, "it was told that it did not begin"
        assert answers[6][0] is False
        raw.call("penstock.commit", 4, 0, codec.pack(1))
        connections = server.server.doors["port"].connections
        until(lambda: not any(c._link is not None and c._link.busy for c in list(connections)), "none should be open")
        tube.put(1)
        assert tube.statistics().tasks["ready"] == 1


def test_a_call_that_is_interrupted_while_it_waits_to_begin_leaves_nothing_behind(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.connect(server.url) as q:
        tube = q.create_tube("jobs", "fifo")
        inside, go = threading.Event(), threading.Event()

        def hold() -> None:
            with q.transaction() as tx:
                inside.set()
                go.wait()
                tube.put(1, transaction=tx)

        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        inside.wait()

        def interrupted(call: Call) -> bytes:
            until(lambda: waiting(server), "it should wait to begin")
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Call, "result", interrupted)
            with pytest.raises(KeyboardInterrupt), q.transaction():
                pass
        until(lambda: not waiting(server), "nothing should wait")
        go.set()
        holder.join()
        (connection,) = server.server.doors["port"].connections
        until(lambda: not connection._link.busy, "no transaction should be open")
        tube.put(2)
        assert tube.statistics().tasks["ready"] == 2
