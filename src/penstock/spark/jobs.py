"""Jobs that put tasks in bulk, each exactly once: who began them, who committed them, and what they left behind.

A job with a name is a ledger with three notes: 0 it was begun, 1 it was committed, 2 what came of it. Notes 1 and 2 are
written in the transaction that makes its tasks, and a number is written once: whoever comes second finds the job done.
A job without a name is run once, so all of them share a ledger, in which the number of a commit is its moment.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Any, NamedTuple

import msgspec

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import DuplicateKey, EngineUnavailable, PenstockError, UsageError
from penstock.model.staging import Promoted, StagedJob
from penstock.model.task import OnConflict
from penstock.spark.patience import patiently

PREFIX = "job:"
RUNS = "runs"
"""The ledger of jobs without a name."""
MOMENT = 1000
"""Numbers that one microsecond has in it."""
BEGUN, COMMITTED, OUTCOME = range(3)
DAY = 24 * 3600.0
_cleaned: dict[str, float] = {}
"""When this process last cleaned a store."""
CLEAN_EVERY = 3600.0
PATIENCE = 300.0
"""Seconds that a commit is tried for: another driver may be at the same job, and a large one takes a while."""
log = logging.getLogger("penstock.spark")


class Part(NamedTuple):
    """What one attempt at one partition has staged."""

    name: str
    rows: int


def begin(engine: Engine, job: str, tube: str) -> bool:
    """Say that a job with a name begins; False if it was committed already."""
    ledger = PREFIX + job
    try:
        engine.execute(ops.WriteLedger(ledger, BEGUN, (_text(tube=tube, at=engine.execute(ops.GetMoment()) / SECOND),)))
    except DuplicateKey:
        said = _notes(engine, ledger)
        if said.get(BEGUN, {}).get("tube", tube) != tube:
            raise UsageError(
                f"job {job!r} puts into tube {said[BEGUN]['tube']!r}, not into {tube!r}: give this one another jobId"
            ) from None
        return COMMITTED not in said
    return True


def commit(engine: Engine, job: str | None, run: str, tube: str, parts: list[Part], on_conflict: OnConflict) -> bool:
    """Make tasks of all parts at once; False if another driver has committed the job.

    job: its name, if it has one.
    """
    note = _text(run=run, rows=sum(part.rows for part in parts), at=engine.execute(ops.GetMoment()) / SECOND)
    while True:
        ledger, number = (RUNS, _moment(engine)) if job is None else (PREFIX + job, COMMITTED)
        outcome = None if job is None else OUTCOME
        done = promote(engine, ledger, number, note, run, tube, parts, on_conflict, outcome)
        mine = done is not None or _committed_by(engine, ledger, number) == run
        if mine or job is not None:
            discard(engine, run)
            return mine


def _committed_by(engine: Engine, ledger: str, number: int) -> str:
    """The run that wrote a number which was found written; our own, if its answer was lost."""
    said = engine.execute(ops.ReadLedger(ledger, number - 1, 1, number))
    if not said:
        raise EngineUnavailable(
            f"number {number} of the ledger {ledger!r} was forgotten before it was written: nothing was put; run "
            "the job again"
        )
    return str(msgspec.json.decode(said[0].text)["run"])


def promote(
    engine: Engine,
    ledger: str,
    number: int,
    note: str,
    run: str,
    tube: str,
    parts: list[Part],
    on_conflict: OnConflict,
    outcome: int | None = None,
) -> Promoted | None:
    """Write a number of a ledger and make tasks, in one transaction; None if the number was written before.

    The number makes it safe to try again, whatever came of the first time.
    """
    staged = tuple((part.name, part.rows) for part in parts if part.rows)

    def once() -> Promoted:
        with engine.transaction() as tx:
            try:
                tx.execute(ops.WriteLedger(ledger, number, (note,)))
            except DuplicateKey:
                raise _Done from None
            done = tx.execute(ops.Promote(tube, run, staged, on_conflict))
            if outcome is not None:
                tx.execute(ops.WriteLedger(ledger, outcome, (_text(**done._asdict()),)))
        return done

    try:
        return patiently(once, longest=PATIENCE)
    except _Done:
        return None


class _Done(Exception):
    """Somebody has decided this before."""


def discard(engine: Engine, run: str) -> None:
    """Forget what a run has staged. What cannot be removed now is cleaned later: it is no reason to fail."""
    try:
        while engine.execute(ops.Discard(run)):
            pass
    except PenstockError as error:
        log.warning("what %s has staged cannot be removed now: %s", run, error)


def outcome(engine: Engine, job: str) -> Promoted | None:
    """What came of a job; None if it was not committed.

    >>> from penstock.engines import open_engine
    >>> outcome(open_engine("memory:", None, "strict"), "load-7") is None
    True
    """
    said = _notes(engine, PREFIX + job).get(OUTCOME)
    return None if said is None else Promoted(**said)


def run_name(job: str | None, run: str) -> str:
    """What a run stages under. Two drivers may run one job, and must not discard each other's rows."""
    return f"run:{run}" if job is None else f"{PREFIX}{job}:{run}"


# -- what was left behind ------------------------------------------------------------------------------


def clean(engine: Engine, older_than: float = DAY) -> int:
    """Discard what runs have staged that never ended, and what no run can need; answers how many runs.

    older_than: seconds since a run has staged last. Runs of a job that is committed are never waited for.
    """
    number = 0
    # By the clock of the store, as what is compared with it.
    before = engine.execute(ops.GetMoment()) - int(older_than * SECOND)
    for staged in engine.execute(ops.ListStaged()):
        if staged.at <= before or _is_over(engine, staged):
            discard(engine, staged.job)
            number += 1
    # Nobody asks for a run that ended long ago; one that goes on gets its number when it commits.
    engine.execute(ops.TrimLedger(RUNS, before * MOMENT))
    return number


def clean_sometimes(engine: Engine) -> None:
    """Clean once an hour: nobody else may come by."""
    if time.monotonic() - _cleaned.get(engine.name, -CLEAN_EVERY) >= CLEAN_EVERY:
        _cleaned[engine.name] = time.monotonic()
        try:
            clean(engine)
        except PenstockError as error:
            log.warning("what others have staged cannot be cleaned now: %s", error)


def _is_over(engine: Engine, staged: StagedJob) -> bool:
    job, _, run = staged.job.removeprefix(PREFIX).rpartition(":")
    return staged.job.startswith(PREFIX) and bool(run) and COMMITTED in _notes(engine, PREFIX + job)


def _moment(engine: Engine) -> int:
    """A number for what is committed now, hardly one that another has in the same microsecond."""
    return engine.execute(ops.GetMoment()) * MOMENT + random.randrange(MOMENT)


def _notes(engine: Engine, ledger: str) -> dict[int, dict[str, Any]]:
    return {note.number: msgspec.json.decode(note.text) for note in engine.execute(ops.ReadLedger(ledger))}


def _text(**said: Any) -> str:
    return msgspec.json.encode(said).decode()
