"""Counters pushed to Graphite, over real sockets."""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.blocking import unwrap
from tests.support.postgres import free_port
from tests.worker.bench import PATIENCE, until
from tests.worker.conftest import on_both

import penstock
from penstock.metrics.graphite import Pusher

INTERVAL = 0.05
LINE = re.compile(r"([A-Za-z0-9_.-]+) (-?[0-9.]+) (\d+)")


class Graphite:
    """An endpoint that can be stopped and started again on its port."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.visits = 0
        self.port = free_port()
        self._sockets: list[socket.socket] = []
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        kind = socket.SOCK_STREAM if self.transport == "tcp" else socket.SOCK_DGRAM
        listening = socket.socket(socket.AF_INET, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self._sockets = [listening]
        if self.transport == "tcp":
            listening.listen()
            target: Any = self._accept
        else:
            target = self._receive
        threading.Thread(target=target, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                visitor, _ = listening.accept()
                self.visits += 1
                self._sockets.append(visitor)
                threading.Thread(target=self._read, args=(visitor,), daemon=True).start()

    def _read(self, visitor: socket.socket) -> None:
        with contextlib.suppress(OSError), visitor.makefile() as lines:
            for line in lines:
                self.lines.put(line)

    def _receive(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while packet := listening.recv(65536):
                assert len(packet) <= 1400 and packet.endswith(b"\n")
                for line in packet.decode().splitlines(keepends=True):
                    self.lines.put(line)

    def stop(self) -> None:
        """Go away, and whoever is connected notices."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def forget(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.lines.get_nowait()

    def next(self) -> tuple[str, float, int]:
        """The next line: name, value, time."""
        line = self.lines.get(timeout=PATIENCE)
        assert line.endswith("\n")
        found = LINE.fullmatch(line[:-1])
        assert found, line
        return found[1], float(found[2]), int(found[3])

    def until(self, name: str, value: float) -> int:
        """Wait for a counter to have a value; answers when it had."""
        while (found := self.next())[:2] != (name, value):
            pass
        return found[2]


@pytest.fixture(params=["tcp", "udp"])
def graphite(request: pytest.FixtureRequest) -> Iterator[Graphite]:
    graphite = Graphite(request.param)
    yield graphite
    graphite.stop()


@pytest.fixture
def pushed(graphite: Graphite) -> Iterator[Any]:
    """Start pushing to the endpoint; the end of the test stops it."""
    with contextlib.ExitStack() as stack:
        yield lambda q, **options: stack.enter_context(
            Pusher(unwrap(q), graphite.address, graphite.transport, **{"interval": INTERVAL, **options})
        )


@on_both
def test_every_counter_is_a_line(q: Any, graphite: Graphite, pushed: Any) -> None:  # cases 351, 352
    jobs = q.create_tube("jobs")
    jobs.put_many([1, 2, 3, 4])
    jobs.put(5, delay=1000)
    jobs.take().ack(keep=True)
    jobs.take().bury()
    jobs.take()
    before = int(time.time())
    pushed(q)
    first = graphite.next()
    round_: dict[str, float] = {first[0]: first[1]}
    while (found := graphite.next())[0] != first[0]:
        round_[found[0]] = found[1]
        assert before <= found[2] <= time.time()
    statistics = jobs.statistics()
    assert round_ == {
        **{f"penstock.jobs.{name}": number for name, number in statistics.tasks.items()},
        **{f"penstock.jobs.calls.{name}": number for name, number in statistics.calls.items()},
    }
    states = {name: int(round_[f"penstock.jobs.{name}"]) for name in ("ready", "taken", "delayed", "buried")}
    assert states == {"ready": 1, "taken": 1, "delayed": 1, "buried": 1}
    assert round_["penstock.jobs.total"] == sum(states.values()) == 4


def test_an_endpoint_that_goes_away_is_reached_again_and_the_queue_does_not_notice(
    q: Any, graphite: Graphite, pushed: Any, caplog: pytest.LogCaptureFixture
) -> None:  # case 352
    caplog.set_level("INFO", "penstock.metrics")
    jobs = q.create_tube("jobs")
    pushed(q)
    graphite.until("penstock.jobs.ready", 0)
    for number in (1, 2):
        graphite.stop()
        graphite.forget()
        jobs.put(number)
        assert jobs.statistics().tasks["ready"] == number
        if graphite.transport == "tcp":
            until(lambda number=number: len(_said(caplog, "cannot be reached")) == number)
        graphite.start()
        graphite.until("penstock.jobs.ready", number)
    if graphite.transport == "tcp":
        assert graphite.visits == 3
        until(lambda: len(_said(caplog, "is reached again")) == 2)


def _said(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_an_endpoint_that_was_down_from_the_start_is_reached_when_it_comes(graphite: Graphite, pushed: Any) -> None:
    graphite.stop()
    with penstock.connect("memory:") as q:
        q.create_tube("jobs").put(1)
        pushed(q)
        graphite.start()
        graphite.until("penstock.jobs.ready", 1)


def test_lines_come_again_and_again(graphite: Graphite, pushed: Any) -> None:
    with penstock.connect("memory:") as q:
        jobs = q.create_tube("jobs")
        pushed(q)
        for number in range(1, 4):
            jobs.put(number)
            graphite.until("penstock.jobs.ready", number)
            graphite.until("penstock.jobs.ready", number)
        if graphite.transport == "tcp":
            assert graphite.visits == 1


def test_names_are_made_fit_and_begin_with_the_prefix(graphite: Graphite, pushed: Any) -> None:
    with penstock.connect("memory:") as q:
        q.create_tube("shop.mails-2").put(1)
        pushed(q, prefix="prod.queue")
        graphite.until("prod.queue.shop_mails-2.ready", 1)
        graphite.until("prod.queue.shop_mails-2.calls.put", 1)


def test_a_worker_is_told_too_also_when_its_queue_is_closed(graphite: Graphite, pushed: Any) -> None:
    q = penstock.connect("memory:")

    @q.handler("jobs", max_attempts=1)
    def job(n: int) -> None:
        if n < 0:
            raise ValueError(n)

    job.put_many([1, 2, -1])
    worker = penstock.Worker(q)
    worker.run(until_empty=True, signals=False)
    pushed(q, worker=worker)
    graphite.until("penstock.jobs.worker.ok", 2)
    graphite.until("penstock.jobs.worker.trouble", 1)
    graphite.until("penstock.jobs.worker.busy", 0)
    q.close()
    graphite.forget()
    graphite.until("penstock.jobs.worker.ok", 2)
    graphite.until("penstock.jobs.worker.ok", 2)


def test_many_tubes_are_told_in_packets_of_whole_lines(graphite: Graphite, pushed: Any) -> None:
    with penstock.connect("memory:") as q:
        for number in range(30):
            q.create_tube(f"tube{number}")
        pushed(q)
        wanted = {f"penstock.tube{number}.total" for number in range(30)}
        while wanted:
            wanted.discard(graphite.next()[0])


def test_a_pusher_that_is_closed_sends_no_more_and_lets_go(graphite: Graphite) -> None:
    with penstock.connect("memory:") as q:
        q.create_tube("jobs")
        pusher = Pusher(q, graphite.address, graphite.transport, interval=INTERVAL)
        graphite.until("penstock.jobs.ready", 0)
        pusher.close()
        pusher.close()
        until(lambda: not pusher._thread.is_alive())


def test_an_endpoint_that_reads_nothing_holds_up_nobody(pushed: Any) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    with listening, penstock.connect("memory:") as q, Pusher(q, address, interval=0.001):
        jobs = q.create_tube("jobs")
        for number in range(200):
            jobs.put(number)
        assert len(jobs.take_many(200)) == 200


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "graphite"}, r"Graphite's address is host:port, such as 127\.0\.0\.1:2003, got 'graphite'"),
        ({"address": "graphite:port"}, "host:port"),
        ({"address": "graphite:99999"}, "host:port"),
        ({"address": ":2003"}, "host:port"),
        ({"address": "a:1/udp"}, "host:port"),
        ({"transport": "http"}, "transport must be 'tcp' or 'udp', got 'http'"),
        ({"prefix": "a b"}, "prefix must be names of letters, digits, _ and - with dots between, got 'a b'"),
        ({"prefix": "a..b"}, "prefix"),
        ({"interval": 0}, "interval must be above 0 seconds, got 0"),
        ({"interval": -1}, "interval"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], told: str) -> None:
    with penstock.connect("memory:") as q, pytest.raises(penstock.UsageError, match=told):
        Pusher(q, **{"address": "127.0.0.1:2003", **options})


def test_an_address_may_be_of_the_sixth_version() -> None:
    with penstock.connect("memory:") as q, Pusher(q, "[::1]:2003", "udp") as pusher:
        assert repr(pusher) == "<Pusher to [::1]:2003 over udp>"
