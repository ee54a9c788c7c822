"""Servers that are killed under load, and servers side by side: nothing is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tarantool.error import DatabaseError, NetworkError
from tests.cli.shell import PATIENCE
from tests.support import postgres
from tests.support.serving import Serving

import penstock
from penstock.model.errors import EngineUnavailable, LeaseLost, PenstockError

TASKS = 400
HANDS = 3
LONG = PATIENCE
pytestmark = [pytest.mark.filterwarnings("ignore::tarantool.error.NetworkWarning"), pytest.mark.timeout(200)]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield os.fspath(tmp_path / "tasks.db")
        return
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


def made(store: str) -> None:
    with penstock.connect(store) as queue:
        queue.create_tube("mail", "fifo")


class Hands:
    """Producers and consumers that go on through every failure, as programs do that mean it."""

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = opened
        self.put, self.acked = set[int](), set[int]()
        self.unsure = set[int]()
        """Acks that were not answered: the server was killed before or after it had done them."""
        self.trouble = list[BaseException]()
        self._more = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, args=(work, hand), daemon=True)
            for hand in range(HANDS)
            for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> Hands:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Come back when all have closed what they had open, for which they need a server."""
        for thread in self._threads:
            thread.join(LONG)

    def reached(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.done) >= count or self.trouble, LONG), len(self.done)
            assert not self.trouble, self.trouble

    @property
    def done(self) -> set[int]:
        return self.acked | self.unsure

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

    def _note(self, kept: set[int], number: int) -> None:
        with self._more:
            kept.add(number)
            self._more.notify_all()

    def _produce(self, client: Any, hand: int) -> None:
        for number in range(hand, TASKS, HANDS):
            while not self._put(client, number):
                pass
            self._note(self.put, number)

    def _consume(self, client: Any, hand: int) -> None:
        while len(self.done) < TASKS and not self.trouble:
            task = self._take(client)
            if task is not None:
                self._note(self.acked if self._ack(client, task) else self.unsure, self._number(task))

    def _put(self, client: Any, number: int) -> bool:
        """Whether it was answered; it may be stored twice then, but not lost."""
        try:
            client.call("queue.tube.mail:put", (number,))
        except (NetworkError, OSError):
            return False
        return True

    def _take(self, client: Any) -> Any:
        try:
            found = client.call("queue.tube.mail:take", (0.1,)).data
        except (NetworkError, OSError):
            return None  # what it was granted comes back with the end of its session
        return found[0] if found and found[0] else None

    def _ack(self, client: Any, task: Any) -> bool:
        try:
            client.call("queue.tube.mail:ack", (task[0],))
        except (NetworkError, OSError, DatabaseError):
            return False
        return True

    def _number(self, task: Any) -> int:
        return int(task[2])

    def check(self, left: set[int]) -> None:
        """Every task was acked, or is there, or its ack was under way when a server was killed; those are few."""
        assert self.trouble == []
        assert self.put == set(range(TASKS))
        assert len(self.unsure - self.acked) <= 2 * HANDS
        assert self.acked | self.unsure | left == self.put


class LibraryHands(Hands):
    """The same by the library's own clients: what is put with a put id is stored once."""

    def _put(self, client: Any, number: int) -> bool:
        try:
            client.tube("mail").put(number, put_id=f"n{number}")
        except EngineUnavailable:
            return False
        return True

    def _take(self, client: Any) -> Any:
        try:
            return client.tube("mail").take(timeout=0.1)
        except EngineUnavailable:
            return None

    def _ack(self, client: Any, task: Any) -> bool:
        try:
            task.ack()
        except (EngineUnavailable, LeaseLost):
            return False
        return True

    def _number(self, task: Any) -> int:
        return int(task.data)


def killed_twice(tmp_path: Path, store: str, hands: Callable[[Serving], Hands], *words: str) -> None:
    """Run hands while their server is killed and started anew, twice, at its place."""
    made(store)
    with Serving(tmp_path, store, *words) as first, hands(first) as working:
        port = ["--port", str(first.port), *words]
        if "grpc_port" in first.document:
            port = ["--port", str(first.port), "--grpc-port", str(first.document["grpc_port"])]
        working.reached(TASKS // 4)
        first.kill()
        with Serving(tmp_path, store, *port) as second:
            working.reached(2 * TASKS // 4)
            second.kill()
        with Serving(tmp_path, store, *port):
            working.reached(TASKS)
            working.end()
    with penstock.connect(store) as queue:
        working.check({task.data for task in queue.tube("mail").tasks(limit=1000)})


def test_clients_of_tarantool_lose_nothing_when_servers_are_killed(tmp_path: Path, store: str):
    def hands(server: Serving) -> Hands:
        return Hands(
            lambda: tarantool.Connection("127.0.0.1", server.port, reconnect_delay=0.05, reconnect_max_attempts=1000)
        )

    killed_twice(tmp_path, store, hands)


def test_clients_of_the_library_lose_nothing_when_servers_are_killed(tmp_path: Path, store: str):
    killed_twice(tmp_path, store, lambda server: LibraryHands(lambda: penstock.connect(server.url)))


def test_clients_of_grpc_lose_nothing_when_servers_are_killed(tmp_path: Path, store: str):
    def hands(server: Serving) -> Hands:
        return LibraryHands(lambda: penstock.connect(server.document["urls"]["grpc_port"]))

    killed_twice(tmp_path, store, hands, "--grpc-port", "0")


def test_a_lease_of_the_library_outlives_a_server_that_was_killed(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store) as first:
        queue = penstock.connect(first.url, session_ttl=60)
        tube = queue.tube("mail")
        tube.put("a")
        task = tube.take()
        assert task is not None
        first.kill()
        with Serving(tmp_path, store, "--port", str(first.port)):
            task.ack()
            with pytest.raises(PenstockError):
                tube.peek(task.id)
            queue.close()


# -- side by side --------------------------------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[str]:
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


def test_servers_side_by_side_wake_each_others_takers(tmp_path: Path, database: str):
    made(database)
    with Serving(tmp_path, database) as left, Serving(tmp_path, database) as right:
        assert left.port != right.port
        taker = tarantool.Connection("127.0.0.1", left.port)
        putter = tarantool.Connection("127.0.0.1", right.port)
        for number in range(20):
            got = list[Any]()
            thread = threading.Thread(target=lambda got=got: got.append(taker.call("queue.tube.mail:take", (60,)).data))
            thread.start()
            putter.call("queue.tube.mail:put", (number,))
            thread.join(PATIENCE)
            assert got[0][0][2] == number
            taker.call("queue.tube.mail:ack", (got[0][0][0],))
        taker.close()
        putter.close()
        assert (left.stop(), right.stop()) == (0, 0)


def test_a_session_is_resumed_at_the_other_server(tmp_path: Path, database: str):
    made(database)
    with Serving(tmp_path, database) as left, Serving(tmp_path, database) as right:
        first = tarantool.Connection("127.0.0.1", left.port, encoding=None)  # uuids are 16 bytes
        second = tarantool.Connection("127.0.0.1", right.port, encoding=None)
        first.call("queue.tube.mail:put", ("a",))
        task = first.call("queue.tube.mail:take", (0,)).data[0]
        uuid = first.call("queue.identify").data[0]
        second.call("queue.identify", (uuid,))
        first.close()
        assert second.call("queue.tube.mail:ack", (task[0],)).data[0][1] == b"-"
        second.close()


def test_one_of_two_is_killed_and_the_other_goes_on_with_all_of_it(tmp_path: Path, database: str):
    made(database)
    with Serving(tmp_path, database) as left, Serving(tmp_path, database) as right:
        doomed = tarantool.Connection("127.0.0.1", left.port)
        for number in range(10):
            doomed.call("queue.tube.mail:put", (number,))
        held = doomed.call("queue.tube.mail:take", (0,)).data[0]
        left.kill()
        doomed.close()
        client = tarantool.Connection("127.0.0.1", right.port)
        seen = set()
        while len(seen) < 10:  # the one that was held comes back with the end of its session
            found = client.call("queue.tube.mail:take", (60,)).data
            seen.add(found[0][2])
            client.call("queue.tube.mail:ack", (found[0][0],))
        assert held[2] in seen
        client.close()
