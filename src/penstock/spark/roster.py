"""Who works in a fleet, and what the driver tells them: ledgers in the store.

Spark tells a driver nothing about a worker that died, and a worker nothing about a job that was cancelled.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import DuplicateKey, LeaseLost, NotOwner, NotTaken, TaskNotFound
from penstock.model.session import DEFAULT_TTL, Session
from penstock.model.state import State
from penstock.model.task import Record

PAGE = 1000
STOP, NOW = 0, 1
"""What can be ordered: take no more and finish what runs; give back what runs as well."""


class Worker(NamedTuple):
    """One attempt of a Spark task."""

    number: int
    """The number that Spark gives every attempt of every task."""
    partition: int
    uuid: str


class Roster:
    """The ledgers of one run."""

    def __init__(self, engine: Engine, run: str) -> None:
        self._engine = engine
        self._begun, self._ended, self._orders = f"fleet:{run}", f"fleet:{run}:ended", f"fleet:{run}:orders"

    def begin(self, worker: Worker) -> None:
        """Written before the first task is taken, so that whoever is left can give back what the worker holds."""
        text = json.dumps({"partition": worker.partition, "session": worker.uuid})
        self._engine.execute(ops.WriteLedger(self._begun, worker.number, (text,)))

    def has_begun(self) -> bool:
        """Whether anybody works."""
        return bool(self._engine.execute(ops.LastNotes(self._begun)))

    def end(self, worker: Worker) -> None:
        """The worker holds nothing any more."""
        with suppress(DuplicateKey):
            self._engine.execute(ops.WriteLedger(self._ended, worker.number, ("",)))

    def order(self, what: int) -> None:
        """Tell every worker, those too that have not begun yet."""
        with suppress(DuplicateKey):
            self._engine.execute(ops.WriteLedger(self._orders, what, ("",)))

    def ordered(self) -> int | None:
        """What was ordered."""
        notes = self._engine.execute(ops.LastNotes(self._orders))
        return notes[0].number if notes else None

    def missing(self) -> list[Worker]:
        """Workers that have begun and did not say that they ended."""
        ended = {number for number, _ in self._read(self._ended)}
        found = list[Worker]()
        for number, text in self._read(self._begun):
            if number not in ended:
                known = json.loads(text)
                found.append(Worker(number, known["partition"], known["session"]))
        return found

    def forget(self) -> None:
        """The run is over."""
        for ledger in (self._begun, self._ended, self._orders):
            for note in self._engine.execute(ops.LastNotes(ledger)):
                self._engine.execute(ops.TrimLedger(ledger, note.number))

    def _read(self, ledger: str) -> list[tuple[int, str]]:
        found = list[tuple[int, str]]()
        while page := self._engine.execute(ops.ReadLedger(ledger, found[-1][0] if found else -1, PAGE)):
            found += [(note.number, note.text) for note in page]
        return found


def expire(engine: Engine, workers: list[Worker]) -> None:
    """These workers have died: what they hold comes back now, as it does when the time of a session is over."""
    for worker in workers:
        # A session that has less time than before may end sooner than it would have.
        session = Session(worker.uuid, "", 1)
        engine.execute(ops.KeepAlive(session, engine.clock.now()))
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
