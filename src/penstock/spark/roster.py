"""Who works in a fleet, and what the driver tells them: a ledger in the store.

Spark tells a driver nothing about a worker that died, and a worker nothing about a job that was cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import (
    AccessDenied,
    DuplicateKey,
    LeaseLost,
    NotOwner,
    NotTaken,
    SessionExpired,
    TaskNotFound,
)
from penstock.model.ledger import Note
from penstock.model.session import DEFAULT_TTL, Session
from penstock.model.state import State
from penstock.model.task import Record

PAGE = 1000
LEDGERS = "fleet:"
DRIVER, STOP, NOW, FIRST = 0, 1, 2, 4
"""Numbers of a ledger: who drives; the orders to finish what runs, and to give it back; then two for each worker."""


class Worker(NamedTuple):
    """One attempt of a Spark task."""

    number: int
    """The number that Spark gives every attempt of every task."""
    partition: int
    uuid: str


class Roster:
    """The ledger of one run."""

    def __init__(self, engine: Engine, run: str) -> None:
        self._engine = engine
        self._ledger = f"{LEDGERS}{run}"

    def open(self, driver: Session) -> None:
        """Written by the driver before there are workers; what drivers that died have left is forgotten."""
        self._write(DRIVER, driver.uuid)
        with suppress(AccessDenied):  # a login for some tubes may not look for them, and leaves that to others
            for ledger in self._engine.execute(ops.ListLedgers(LEDGERS)):
                other = Roster(self._engine, ledger.removeprefix(LEDGERS))
                if not other._is_driven():
                    other.forget()

    def begin(self, worker: Worker) -> None:
        """Written before the first task is taken, so that whoever is left can give back what the worker holds."""
        self._write(_begun(worker), json.dumps({"partition": worker.partition, "session": worker.uuid}))

    def has_begun(self) -> bool:
        """Whether anybody works."""
        return any(note.number >= FIRST for note in self._engine.execute(ops.LastNotes(self._ledger)))

    def end(self, worker: Worker) -> None:
        """The worker holds nothing any more."""
        with suppress(DuplicateKey):
            self._write(_begun(worker) + 1)

    def order(self, what: int) -> None:
        """Tell every worker, those too that have not begun yet."""
        with suppress(DuplicateKey):
            self._write(what)

    def ordered(self) -> int | None:
        """What was ordered."""
        notes = self._engine.execute(ops.ReadLedger(self._ledger, DRIVER, upto=NOW))
        return notes[-1].number if notes else None

    def missing(self) -> list[Worker]:
        """Workers that have begun and did not say that they ended."""
        notes = dict(self._workers())
        found = list[Worker]()
        for number, text in notes.items():
            if (number - FIRST) % 2 == 0 and number + 1 not in notes:
                known = json.loads(text)
                found.append(Worker((number - FIRST) // 2, known["partition"], known["session"]))
        return found

    def forget(self) -> None:
        """The run is over."""
        for note in self._engine.execute(ops.LastNotes(self._ledger)):
            self._engine.execute(ops.TrimLedger(self._ledger, note.number))

    def _write(self, number: int, text: str = "") -> None:
        self._engine.execute(ops.WriteLedger(self._ledger, number, (text,)))

    def _workers(self) -> Iterator[Note]:
        after = FIRST - 1
        while page := self._engine.execute(ops.ReadLedger(self._ledger, after, PAGE)):
            yield from page
            after = page[-1].number

    def _is_driven(self) -> bool:
        """Whether its driver lives."""
        for note in self._engine.execute(ops.ReadLedger(self._ledger, DRIVER - 1, upto=DRIVER)):
            with suppress(SessionExpired):
                self._engine.execute(ops.Identify(note.text, leave=Session(note.text, "", DEFAULT_TTL)))
                return True
        return False


def _begun(worker: Worker) -> int:
    return FIRST + 2 * worker.number


def expire(engine: Engine, workers: list[Worker]) -> None:
    """These workers have died: what they hold comes back now, as it does when the time of a session is over."""
    for worker in workers:
        # A session that has less time than before may end sooner than it would have.
        engine.execute(ops.KeepAlive(Session(worker.uuid, "", 1), until=engine.execute(ops.GetMoment())))
    if workers:
        engine.execute(ops.Tick())


def refund(engine: Engine, tube: str, workers: list[Worker]) -> int:
    """These workers were stopped: what they hold comes back as if it had not been taken; answers how many tasks."""
    given_back = 0
    if workers:
        held = dict[int, list[Record]]()
        for record in _taken(engine, tube):
            held.setdefault(record.session or 0, []).append(record)
        given_back = sum(_give_back(engine, tube, records, workers) for records in held.values())
    for worker in workers:
        engine.execute(ops.EndSession(Session(worker.uuid, "", DEFAULT_TTL)))
    return given_back


def _give_back(engine: Engine, tube: str, records: list[Record], workers: list[Worker]) -> int:
    """Release the tasks of one session, if it is one of the workers': nobody else tells whose it is."""
    for worker in workers:
        session = Session(worker.uuid, "", DEFAULT_TTL)
        answers = engine.execute_many(
            [ops.Release(tube, ops.Lease(record.id, record.token), session, refund=True) for record in records]
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, _ANOTHERS):
                raise answer
        if given_back := sum(not isinstance(answer, BaseException) for answer in answers):
            return given_back
    return 0


_ANOTHERS = (LeaseLost, NotOwner, NotTaken, TaskNotFound)


def _taken(engine: Engine, tube: str) -> list[Record]:
    found = list[Record]()
    while page := engine.execute(ops.ListTasks(tube, State.TAKEN, PAGE, found[-1].id if found else None)):
        found += page
    return found


__all__ = ["NOW", "STOP", "Roster", "Worker", "expire", "refund"]
