"""Very many connections and very many takes that wait."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.raw import GREETING, Raw, call
from tests.support.servers import Running, run
from tests.worker.bench import until

from penstock.engines.line import Lines, Taker
from penstock.model import ops
from penstock.model.session import new_session

CROWD = 5000


@pytest.fixture(params=[300, pytest.param(2000, marks=pytest.mark.exhaustive)])
def many(request: Any) -> Iterator[int]:
    """A number of connections, of which both ends are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * request.param + 500 + len(os.listdir("/proc/self/fd"))
    assert hard == resource.RLIM_INFINITY or hard >= wanted, "the system lets a process have too few files"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield request.param
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


BOTH = pytest.mark.parametrize("server", ["memory relaxed", "sqlite strict"], indirect=True)
"""In the loop and in the thread: enough for what takes long."""


@pytest.fixture(params=["memory relaxed", "sqlite relaxed", "sqlite strict"])
def server(request: Any, tmp_path: Path) -> Iterator[Running]:
    """Relaxed, ops are performed in the loop; strict, in a thread beside it."""
    engine, durability = request.param.split()
    url = "memory:" if engine == "memory" else str(tmp_path / "tasks.db")
    with Running(url, durability=durability) as running:
        yield running


def waiting(server: Running) -> int:
    return server.server.core.waiting


def statistics(server: Running, tube: str) -> dict[str, int]:
    return run(server.server.core.execute(ops.GetStatistics(tube)))[tube].tasks


@BOTH
def test_many_connections_with_a_take_each_that_waits(server: Running, many: int) -> None:
    port = server.server.port()
    with Raw(port) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=90) for _ in range(many)]
        try:
            for number, one in enumerate(crowd):
                one.sendall(call(number, "queue.tube.mail:take"))
            until(lambda: waiting(server) == many)
            assert len(server.server.doors["port"].connections) == many + 1
            for number in range(many):
                raw.send(call(number, "queue.tube.mail:put", number))
            assert [raw.answer().error for _ in range(many)] == [None] * many
            got = [Met(one).task() for one in crowd]
            assert [state for _, state, _ in got] == ["t"] * many
            assert sorted(data for _, _, data in got) == list(range(many))  # each one, to one of them
            assert statistics(server, "mail")["taken"] == many
        finally:
            for one in crowd:
                one.close()
        until(lambda: statistics(server, "mail")["ready"] == many)  # their sessions ended


class Met(Raw):
    """A socket that is there already, greeting unread."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._buffer = bytearray()
        self._take(GREETING)

    def task(self) -> Any:
        return self.answer().data[0]


@BOTH
@pytest.mark.parametrize("crowd_size", [1000, pytest.param(CROWD, marks=pytest.mark.exhaustive)])
def test_acks_are_answered_while_many_takes_wait(server: Running, crowd_size: int) -> None:
    port = server.server.port()
    with Raw(port) as crowd, Raw(port) as worker:
        worker.call("queue.create_tube", "mail", "fifo")
        worker.call("queue.create_tube", "busy", "fifottl")
        crowd.send(b"".join(call(number, "queue.tube.mail:take", 600) for number in range(crowd_size)))
        until(lambda: waiting(server) == crowd_size)
        for number in range(50):
            worker.call("queue.tube.busy:put", number)
            [[task_id, _, data]] = worker.call("queue.tube.busy:take", 10)
            worker.call("queue.tube.busy:touch", task_id, 60)
            assert worker.call("queue.tube.busy:ack", task_id) == [[task_id, "-", data]]
        assert waiting(server) == crowd_size
        worker.call("queue.tube.mail:put", "for the first")
        answer = crowd.answer()
        assert (answer.sync, answer.data[0][2]) == (0, "for the first")
        assert waiting(server) == crowd_size - 1


def test_takes_of_a_closed_connection_never_take(server: Running) -> None:
    port = server.server.port()
    with Raw(port) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        with Raw(port) as gone, Raw(port) as stays:
            gone.send(b"".join(call(number, "queue.tube.mail:take") for number in range(20)))
            until(lambda: waiting(server) == 20)
            stays.send(call(7, "queue.tube.mail:take"))
            until(lambda: waiting(server) == 21)
            gone.close()
            until(lambda: waiting(server) == 1)
            raw.call("queue.tube.mail:put", "x")
            answer = stays.answer()
            assert (answer.sync, answer.data[0][1:]) == (7, ["t", "x"])
            raw.call("queue.tube.mail:put", "y")
            assert statistics(server, "mail")["ready"] == 1


def test_a_take_that_comes_with_the_end_of_its_connection_takes_nothing_for_good(server: Running) -> None:
    port = server.server.port()
    with Raw(port) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        for number in range(20):
            raw.call("queue.tube.mail:put", number)
        for _ in range(20):
            with Raw(port) as gone:
                gone.send(call(1, "queue.tube.mail:take"))
        until(lambda: len(server.server.doors["port"].connections) == 1)
        until(lambda: statistics(server, "mail")["ready"] == 20)


def test_who_wakes_is_the_one_that_came_first(server: Running) -> None:
    port = server.server.port()
    takers = [Raw(port) for _ in range(10)]
    with Raw(port) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        for number, taker in enumerate(takers, 1):
            taker.send(call(number, "queue.tube.mail:take"))
            until(lambda number=number: waiting(server) == number)
        for number, taker in enumerate(takers, 1):
            raw.call("queue.tube.mail:put", number)
            assert taker.answer().data[0][2] == number
    for taker in takers:
        taker.close()


def test_a_take_ends_when_its_time_is_over_and_others_wait_on(server: Running) -> None:
    with Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        raw.send(call(1, "queue.tube.mail:take", 0.05) + call(2, "queue.tube.mail:take", 600))
        answer = raw.answer()
        assert (answer.sync, answer.data) == (1, [])
        until(lambda: waiting(server) == 1)


def test_those_who_wait_are_tried_only_until_one_is_refused() -> None:
    lines, session = Lines(), new_session(1, direct=False)
    takers = [Taker(ops.Take("mail", 1, session), None) for _ in range(CROWD)]
    lane = [Taker(ops.Take("mail", 1, session, lane="a"), None) for _ in range(CROWD)]
    for taker in (*takers, *lane):
        lines.add(taker)
    tried: list[ops.Take] = []
    tasks = ["first", "second"]

    def attempt(requests: Any) -> list[Any]:
        tried.extend(requests)
        return [[tasks.pop(0)] if op.lane is None and tasks else [] for op in requests]

    lines.serve("mail", attempt)
    assert [taker.answer for taker in takers[:2]] == [["first"], ["second"]]
    assert not any(taker.done for taker in takers[2:])
    assert len(tried) <= 5  # one for the lane, one, two, and no more than two that were refused
    assert lines.count == 2 * CROWD - 2


class Counted(Taker):
    """A taker that counts how often it is compared with another."""

    compared = 0
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return self is other


def test_leaving_a_long_line_is_one_step_wherever_one_stands() -> None:
    session, lines = new_session(1, direct=False), Lines()
    takers = [Counted(ops.Take("mail", 1, session), None) for _ in range(CROWD)]
    for taker in takers:
        lines.add(taker)
    for taker in reversed(takers):
        lines.remove(taker)
    assert (lines.count, lines.has("mail")) == (0, False)
    assert Counted.compared < CROWD  # nobody asks the others who they are
