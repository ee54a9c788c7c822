"""Producers and consumers at a server, of a kind of clients: what becomes of them when servers end under them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any, Self

from tarantool.error import DatabaseError, NetworkError

import penstock
from penstock.model.errors import EngineUnavailable, LeaseLost

PATIENCE = 90.0
HANDS = 3
"""Producers, and as many consumers."""
AHEAD = 30
"""Tasks that producers are ahead of consumers."""
WAIT = 0.05
"""Seconds that a take waits."""
PACE = 0.02
"""Seconds between two puts of a hand: without a pause, clients take the time that the next server needs to start."""


def made(store: str) -> None:
    """Make the tube that hammers work on."""
    with penstock.connect(store) as queue:
        queue.create_tube("mail", "fifo")


class Tarantool:
    """How clients of tarantool/queue work."""

    unanswered = (NetworkError, OSError)
    """What calls fail with whose server has ended: they were done, or not."""
    not_held = (DatabaseError,)
    """What an ack fails with whose task is not held any more."""

    def put(self, client: Any, number: int) -> None:
        client.call("queue.tube.mail:put", (number,))

    def take(self, client: Any) -> tuple[Any, int] | None:
        """What an ack wants to have, and the number that was put."""
        found = client.call("queue.tube.mail:take", (WAIT,)).data
        return (found[0][0], int(found[0][2])) if found and found[0] else None

    def ack(self, client: Any, task: Any) -> None:
        assert client.call("queue.tube.mail:ack", (task,)).data[0][1] == "-"


class Library:
    """How the library's own clients work."""

    unanswered = (EngineUnavailable,)
    not_held = (LeaseLost,)

    def put(self, client: Any, number: int) -> None:
        client.tube("mail").put(number)

    def take(self, client: Any) -> tuple[Any, int] | None:
        task = client.tube("mail").take(timeout=WAIT)
        return None if task is None else (task, int(task.data))

    def ack(self, client: Any, task: Any) -> None:
        task.ack()


class Named(Library):
    """The same with put ids: what is put again is stored once."""

    def put(self, client: Any, number: int) -> None:
        client.tube("mail").put(number, put_id=f"n{number}")


class Hammer:
    """Clients that put, take and ack all the time until it is enough; what goes wrong for one is kept."""

    def __init__(self, kind: Tarantool | Library, opened: Callable[[], Any]) -> None:
        self._kind, self._opened = kind, opened
        self.put, self.taken, self.acked = list[int](), list[int](), list[int]()
        self.done = set[int]()
        """What nobody has to take any more."""
        self.trouble = list[BaseException]()
        self._enough = False
        self._more = threading.Condition()
        self._producers, self._consumers = (
            [threading.Thread(target=self._run, args=(work, hand), daemon=True) for hand in range(HANDS)]
            for work in (self._produce, self._consume)
        )

    def __enter__(self) -> Self:
        for thread in (*self._producers, *self._consumers):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let what was put be done; come back when all have closed what they had open, for which they need a server."""
        with self._more:
            self._enough = True
            self._more.notify_all()
        for thread in (*self._producers, *self._consumers):
            thread.join(PATIENCE)

    def more(self, count: int) -> None:
        """Wait until so many more are done."""
        with self._more:
            wanted = len(self.done) + count
            assert self._more.wait_for(lambda: len(self.done) >= wanted or self.trouble, PATIENCE), len(self.done)
            assert not self.trouble, self.trouble

    def check(self) -> None:
        """Nothing failed, nothing was lost, nothing came twice."""
        assert self.trouble == []
        assert sorted(self.put) == sorted(self.taken) == sorted(self.acked) == sorted(self.done)

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

    def _produce(self, client: Any, hand: int) -> None:
        for number in itertools.count(hand, HANDS):
            with self._more:
                self._more.wait_for(lambda: self._enough or self.trouble, PACE)
                self._more.wait_for(lambda: self._enough or self.trouble or len(self.put) < len(self.done) + AHEAD)
            if self._enough or self.trouble:
                return
            self._put(client, number)
            self.put.append(number)

    def _consume(self, client: Any, hand: int) -> None:
        while not self._over():
            found = self._take(client)
            if found is not None:
                task, number = found
                self.taken.append(number)
                self._ack(client, task, number)
                with self._more:
                    self.done.add(number)
                    self._more.notify_all()

    def _over(self) -> bool:
        if self.trouble or any(thread.is_alive() for thread in self._producers):
            return bool(self.trouble)
        return len(self.done) >= len(self.put)

    def _put(self, client: Any, number: int) -> None:
        self._kind.put(client, number)

    def _take(self, client: Any) -> tuple[Any, int] | None:
        return self._kind.take(client)

    def _ack(self, client: Any, task: Any, number: int) -> None:
        self._kind.ack(client, task)
        self.acked.append(number)


class Stubborn(Hammer):
    """One that goes on through every failure, as programs do that mean it."""

    def __init__(self, kind: Tarantool | Library, opened: Callable[[], Any]) -> None:
        super().__init__(kind, opened)
        self.unsure = set[int]()
        """Acks that were not answered: the server was killed before or after it had done them."""

    def _put(self, client: Any, number: int) -> None:
        """Until it is answered; it may be stored twice then, but not lost."""
        while not self.trouble:
            with contextlib.suppress(*self._kind.unanswered):
                super()._put(client, number)
                return

    def _take(self, client: Any) -> tuple[Any, int] | None:
        try:
            return super()._take(client)
        except self._kind.unanswered:
            return None  # what it was granted comes back with the end of its session

    def _ack(self, client: Any, task: Any, number: int) -> None:
        try:
            super()._ack(client, task, number)
        except (*self._kind.unanswered, *self._kind.not_held):
            self.unsure.add(number)

    def kept(self, left: set[int]) -> None:
        """Every task was acked, or is there, or its ack was under way when a server was killed; those are few."""
        assert self.trouble == []
        assert len(self.unsure - set(self.acked)) <= 2 * HANDS
        assert set(self.acked) | self.unsure | left == set(self.put)
