"""Jobs that put tasks in bulk, each exactly once: who began them, who committed them, and what they left behind.

A job is a ledger with three notes: 0 it was begun, 1 it was committed, 2 what came of it. Notes 1 and 2 are written in
the transaction that makes its tasks, and a number is written once: whoever comes second finds the job done.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import DuplicateKey, UsageError
from penstock.model.staging import Promoted, StagedJob
from penstock.model.task import OnConflict

PREFIX = "job:"
BEGUN, COMMITTED, OUTCOME = range(3)
DAY = 24 * 3600.0
_cleaned: dict[str, float] = {}
"""When this process last cleaned a store."""
CLEAN_EVERY = 3600.0


class Part(NamedTuple):
    """What one attempt at one partition has staged."""

    name: str
    rows: int


def begin(engine: Engine, job: str, tube: str, given: bool) -> bool:
    """Say that a job begins; False if it was committed already.

    given: the user named it, so it is remembered for good.
    """
    ledger = PREFIX + job
    try:
        engine.execute(ops.WriteLedger(ledger, BEGUN, (_text(tube=tube, given=given, at=time.time()),)))
    except DuplicateKey:
        said = _notes(engine, ledger)
        if said.get(BEGUN, {}).get("tube", tube) != tube:
            raise UsageError(
                f"job {job!r} puts into tube {said[BEGUN]['tube']!r}, not into {tube!r}: give this one another jobId"
            ) from None
        return COMMITTED not in said
    return True


def commit(engine: Engine, job: str, run: str, tube: str, parts: list[Part], on_conflict: OnConflict) -> bool:
    """Make tasks of all parts at once; False if the job was committed before, by this driver or another."""
    ledger = PREFIX + job
    rows = sum(part.rows for part in parts)
    done = promote(engine, ledger, COMMITTED, _text(rows=rows, at=time.time()), run, tube, parts, on_conflict, OUTCOME)
    discard(engine, run)
    return done is not None


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
    """Write a number of a ledger and make tasks, in one transaction; None if the number was written before."""
    staged = tuple((part.name, part.rows) for part in parts if part.rows)
    try:
        with engine.transaction() as tx:
            try:
                tx.execute(ops.WriteLedger(ledger, number, (note,)))
            except DuplicateKey:
                raise _Done from None
            done = tx.execute(ops.Promote(tube, run, staged, on_conflict))
            if outcome is not None:
                tx.execute(ops.WriteLedger(ledger, outcome, (_text(**done._asdict()),)))
    except _Done:
        return None
    return done


class _Done(Exception):
    """Somebody has decided this before."""


def abort(engine: Engine, job: str, run: str) -> None:
    """A run has failed. What it staged is forgotten, unless its commit was done and only its answer lost."""
    if COMMITTED not in _notes(engine, PREFIX + job):
        discard(engine, run)


def discard(engine: Engine, run: str) -> None:
    """Forget what a run has staged."""
    while engine.execute(ops.Discard(run)):
        pass


def outcome(engine: Engine, job: str) -> Promoted | None:
    """What came of a job; None if it was not committed.

    >>> from penstock.engines import open_engine
    >>> outcome(open_engine("memory:", None, "strict"), "load-7") is None
    True
    """
    said = _notes(engine, PREFIX + job).get(OUTCOME)
    return None if said is None else Promoted(**said)


def run_name(job: str, run: str) -> str:
    """What a run stages under. Two drivers may run one job, and must not discard each other's rows."""
    return f"{PREFIX}{job}:{run}"


# -- what was left behind ------------------------------------------------------------------------------


def clean(engine: Engine, older_than: float = DAY) -> int:
    """Discard what runs have staged that never ended, and what no run can need; answers how many runs.

    older_than: seconds since a run has staged last. Runs of a job that is committed are never waited for.
    """
    number = 0
    now = engine.clock.now()
    for staged in engine.execute(ops.ListStaged()):
        if now - staged.at >= older_than * SECOND or _is_over(engine, staged):
            discard(engine, staged.job)
            number += 1
    _forget_jobs(engine, older_than)
    return number


def clean_sometimes(engine: Engine) -> None:
    """Clean once an hour: nobody else may come by."""
    if time.monotonic() - _cleaned.get(engine.name, -CLEAN_EVERY) >= CLEAN_EVERY:
        _cleaned[engine.name] = time.monotonic()
        clean(engine)


def _is_over(engine: Engine, staged: StagedJob) -> bool:
    job, _, run = staged.job.removeprefix(PREFIX).rpartition(":")
    return staged.job.startswith(PREFIX) and bool(run) and COMMITTED in _notes(engine, PREFIX + job)


def _forget_jobs(engine: Engine, older_than: float) -> None:
    """A job without a name cannot be run again, so nobody will ask for it."""
    after = ""
    while names := engine.execute(ops.ListLedgers(PREFIX, after=after)):
        for name in names:
            said = _notes(engine, name).get(BEGUN, {})
            if not said.get("given", True) and time.time() - said["at"] >= older_than:
                engine.execute(ops.TrimLedger(name, OUTCOME))
        after = names[-1]


def _notes(engine: Engine, ledger: str) -> dict[int, dict[str, Any]]:
    return {note.number: msgspec.json.decode(note.text) for note in engine.execute(ops.ReadLedger(ledger))}


def _text(**said: Any) -> str:
    return msgspec.json.encode(said).decode()
