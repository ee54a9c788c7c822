"""What happens to a task, decided without any storage.

Each function gets a record and the time and answers the changes that follow, oldest first; the last one's
`after` is what is to be stored (or removed: see `is_gone`). Engines load a record, ask here, and save. The
numbers in brackets are those of docs/rules.md.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.model import retry as retries
from penstock.model.duration import FOREVER, SECOND, after, resolve
from penstock.model.errors import UsageError
from penstock.model.state import Event, Reason, State
from penstock.model.task import Change, Draft, Record, TaskId
from penstock.model.tube import MAX_COUNT, TubeConfig

READY, TAKEN, DELAYED, BURIED, DONE = State
WATCH_KEEP = 10 * SECOND
"""How long an ended task that somebody waits for stays readable in a tube that keeps nothing."""
MAX_ERRORS = 20
"""Error texts remembered per task, newest last."""


class Rank(IntEnum):
    """The order of what is due at one moment. [2]"""

    TTR = 0
    TTL = 1
    DELAY = 2
    PURGE = 3
    LANE = 4


class Due(NamedTuple):
    """The next thing that time alone will do to a task."""

    at: int
    rank: Rank


def due(record: Record) -> Due | None:
    """When time will change this task by itself, and how. [2]"""
    state = record.state
    if state == TAKEN:
        return None if record.deadline is None else Due(record.deadline, Rank.TTR)
    if state == DONE:
        return None if record.purge_at is None else Due(record.purge_at, Rank.PURGE)
    expires, ready = record.expires_at, record.ready_at
    if state == DELAYED and ready is not None and (expires is None or ready < expires):
        return Due(ready, Rank.DELAY)
    if expires is None or (state == BURIED and record.reason != Reason.ASKED):
        return None
    return Due(expires, Rank.TTL)


def is_gone(record: Record) -> bool:
    """True for a task that ended and is not kept."""
    return record.state == DONE and record.purge_at is not None and record.purge_at <= (record.done_at or 0)


def put(config: TubeConfig, draft: Draft, now: int, seq: int, task_id: TaskId) -> Change:
    """A fresh task. [9, 10]"""
    delay = resolve(draft.delay, now)
    ready_at = after(now, delay) if delay else now
    ttl = config.ttl if draft.ttl is None else draft.ttl
    ttr = config.ttr if draft.ttr is None else draft.ttr
    max_attempts = config.max_attempts if draft.max_attempts is None else draft.max_attempts
    if ttl == "derived":
        ttl = derived_ttl(config, ttr, max_attempts)
    if ttr is None and config.ttr_is_ttl:
        ttr = ttl
    repeats = draft.repeat is not None
    record = Record(
        seq=seq,
        id=task_id,
        state=DELAYED if delay else READY,
        reason=None,
        data=draft.data,
        pri=config.pri if draft.pri is None else draft.pri,
        lane=config.lane_of(draft.lane),
        key=draft.key,
        put_id=draft.put_id,
        attempt=0,
        failures=0,
        max_attempts=max_attempts,
        ttl=ttl,
        ttr=ttr,
        created_at=now,
        ready_at=ready_at,
        expires_at=None if repeats else after(ready_at, ttl),
        taken_at=None,
        deadline=None,
        done_at=None,
        purge_at=None,
        session=None,
        token=None,
        repeat=draft.repeat,
        keep=draft.keep,
        cancel_asked=0,
        watched_until=None,
        result=None,
        error=None,
        errors=None,
    )
    return Change(Event.PUT, now, None, record)


def derived_ttl(config: TubeConfig, ttr: int | None, max_attempts: int | None) -> int:
    """Long enough for every attempt to use all of its time and every retry all of its delay. [9]"""
    if ttr is None or max_attempts is None:
        raise UsageError("ttl='derived' needs ttr and max_attempts: it is computed from them")
    return min(FOREVER, ttr * max_attempts + retries.total_delay(config.retry, max_attempts - 1))


def replaced(config: TubeConfig, old: Record, draft: Draft, now: int) -> Change:
    """put(on_conflict="replace"): the same id and place, all else as a fresh put. [16]"""
    new = put(config, draft, now, old.seq, old.id).after
    return Change(Event.REPLACE, now, old, new)


def take(record: Record, now: int, session: int, token: int, ttr: int | None) -> Change:
    """A grant. The attempt counts from here. [8, 10]"""
    taken = record._replace(
        state=TAKEN,
        session=session,
        token=token,
        attempt=record.attempt + 1,
        taken_at=now,
        deadline=after(now, record.ttr if ttr is None else ttr),
    )
    return Change(Event.TAKE, now, record, taken)


def ack(config: TubeConfig, record: Record, now: int, result: str | None, keep: int | None) -> list[Change]:
    """The work is done. A repeating task waits for its next turn. [7, 17]"""
    free = _unleased(record)._replace(result=result, cancel_asked=0)
    if record.repeat is not None:
        again = free._replace(state=DELAYED, ready_at=after(now, record.repeat), attempt=0, failures=0)
        return [Change(Event.ACK, now, record, again)]
    for choice in (record.keep, config.keep):
        keep = choice if keep is None else keep
    done = _done(free, now, Reason.SUCCESS, keep or 0)
    return [Change(Event.ACK, now, record, done)]


def acked(record: Record, at: int, result: str | None) -> Record:
    """A task that was acked and is gone, as its holder sees it: what ack() answers, made in one go."""
    values: list[Any] = list(record)
    values[_STATE], values[_REASON], values[_RESULT] = DONE, Reason.SUCCESS, result
    values[_TAKEN_AT] = values[_DEADLINE] = values[_SESSION] = values[_TOKEN] = None
    values[_DONE_AT] = values[_PURGE_AT] = at
    values[_CANCEL_ASKED] = 0
    made: Record = tuple.__new__(Record, values)
    return made


_STATE, _REASON, _RESULT, _TAKEN_AT, _DEADLINE, _SESSION, _TOKEN, _DONE_AT, _PURGE_AT, _CANCEL_ASKED = map(
    Record._fields.index,
    ["state", "reason", "result", "taken_at", "deadline", "session", "token", "done_at", "purge_at", "cancel_asked"],
)


def release(
    config: TubeConfig,
    record: Record,
    now: int,
    *,
    delay: int = 0,
    pri: int | None = None,
    ttl: int | None = None,
    data: str | bytes | None = None,
    refund: bool = False,
) -> list[Change]:
    """Back to its place, now or after a delay. [7, 9]"""
    free = _unleased(record)._replace(
        pri=record.pri if pri is None else pri,
        data=record.data if data is None else data,
        attempt=record.attempt - 1 if refund else record.attempt,
    )
    free = _waiting(free, now, delay)
    if ttl is not None:
        free = free._replace(ttl=ttl, expires_at=after(now + delay, ttl))
    return _judged(config, [Change(Event.RELEASE, now, record, free)], now)


def bury(config: TubeConfig, record: Record, now: int, error: str | None = None) -> list[Change]:
    """Set aside because somebody asked for it. [7]"""
    buried = _with_error(_unleased(record), error)._replace(state=BURIED, reason=Reason.ASKED)
    return _judged(config, [Change(Event.BURY, now, record, buried, error)], now)


def fail(
    config: TubeConfig,
    record: Record,
    now: int,
    error: str | None,
    *,
    delay: int | None = None,
    abort: Reason | None = None,
) -> list[Change]:
    """An attempt failed: another one follows, or the task is buried. [7, 8]"""
    failed = _with_error(_unleased(record), error)._replace(failures=record.failures + 1)
    limited = record.max_attempts is not None
    left = record.attempt < record.max_attempts if record.max_attempts is not None else True
    if not limited and config.retry is None and delay is None:
        left = False
    if abort is not None or not left:
        failed = failed._replace(state=BURIED, reason=abort or Reason.NO_ATTEMPTS)
    else:
        wait = retries.jittered_delay(config.retry, failed.failures) if delay is None else delay
        failed = _waiting(failed, now, wait, moves_ttl=False)
    return _judged(config, [Change(Event.FAIL, now, record, failed, error)], now)


def lose(config: TubeConfig, record: Record, at: int, event: Event) -> list[Change]:
    """The holder ran out of time (ttr) or its session ended (release). [7]"""
    free = _unleased(record)
    if record.max_attempts is None or record.attempt < record.max_attempts:
        free = free._replace(state=READY, ready_at=at)
    else:
        free = free._replace(state=BURIED, reason=Reason.LOST)
    return _judged(config, [Change(event, at, record, free)], at)


def settle(config: TubeConfig, record: Record, what: Due) -> list[Change]:
    """Do the one thing that was due, at its own moment. A purge has no event: the list is empty. [2]"""
    if what.rank == Rank.TTR:
        return lose(config, record, what.at, Event.TTR)
    if what.rank == Rank.TTL:
        return [_expired(config, record, what.at)]
    if what.rank == Rank.DELAY:
        return [Change(Event.DELAY, what.at, record, record._replace(state=READY))]
    return []


def touch(record: Record, now: int, by: int) -> list[Change]:
    """More time for the holder, or a longer life for a task that waits; nothing where there is no end to move. [10]"""
    if by == 0 or record.state not in (TAKEN, READY):
        return []
    deadline = after(record.deadline, by) if record.state == TAKEN else record.deadline
    touched = record._replace(deadline=deadline, expires_at=after(record.expires_at, by))
    return [] if touched == record else [Change(Event.TOUCH, now, record, touched)]


def revive(record: Record, now: int, delay: int = 0, ttl: int | None = None) -> Change:
    """kick, dig, plow: out of the grave with the attempts it had. [17]"""
    woken = _waiting(record._replace(reason=None), now, delay)
    if ttl is not None:
        woken = woken._replace(ttl=ttl, expires_at=after(now + delay, ttl))
    elif _passed(record.expires_at, now):
        woken = woken._replace(expires_at=after(now + delay, record.ttl))
    return Change(Event.KICK, now, record, woken)


def restart(record: Record, now: int, delay: int = 0) -> Change:
    """From the beginning: no attempts used, a new life span. [17]"""
    fresh = _waiting(_undone(record), now, delay)._replace(attempt=0, failures=0, expires_at=_life(record, now + delay))
    return Change(Event.KICK, now, record, fresh)


def add_retries(record: Record, now: int, number: int) -> Change:
    """That many attempts more, from now. [17]"""
    fresh = _waiting(_undone(record), now, 0)._replace(
        max_attempts=min(MAX_COUNT, record.attempt + number), expires_at=_life(record, now)
    )
    return Change(Event.KICK, now, record, fresh)


def cancel(config: TubeConfig, record: Record, now: int) -> Change:
    """Nobody needs it any more."""
    return Change(Event.CANCEL, now, record, _done(record, now, Reason.CANCELLED, _keep_failed(config, record)))


def delete(record: Record, now: int) -> Change:
    """Out of the store, whatever its state. [17]"""
    gone = _unleased(record)._replace(state=DONE, reason=Reason.DELETED, done_at=now, purge_at=now)
    return Change(Event.DELETE, now, record, gone)


def switch(config: TubeConfig, record: Record, now: int, state: State, delay: int) -> list[Change]:
    """Move a task that nobody holds to a state by hand. [17]"""
    if state == DONE:
        return [cancel(config, record, now)] if record.state != DONE else []
    if record.state == state:
        return []
    alive = _undone(record)
    delay = delay if state == DELAYED else 0
    if _passed(record.expires_at, now):
        alive = alive._replace(expires_at=_life(record, now))
    if state == BURIED:
        return bury(config, alive, now)
    moved = _waiting(alive, now, delay)._replace(state=state)
    event = Event.RELEASE if record.state == READY else Event.KICK
    return [Change(event, now, record, moved)]


def _unleased(record: Record) -> Record:
    return record._replace(session=None, token=None, taken_at=None, deadline=None)


def _undone(record: Record) -> Record:
    return record._replace(reason=None, done_at=None, purge_at=None, cancel_asked=0)


def _waiting(record: Record, now: int, delay: int, moves_ttl: bool = True) -> Record:
    """READY, or DELAYED; a caller's delay moves a ttl that has not passed. [9]"""
    expires_at = record.expires_at
    if delay and moves_ttl and not _passed(expires_at, now):
        expires_at = after(expires_at, delay)
    return record._replace(
        state=DELAYED if delay else READY,
        ready_at=after(now, delay) if delay else now,
        expires_at=expires_at,
    )


def _judged(config: TubeConfig, changes: list[Change], now: int) -> list[Change]:
    """Steps 2 and 3 of the end of a lease: a cancel that was asked for, a ttl that has passed. [7]"""
    record = changes[-1].after
    if record.cancel_asked:
        return [*changes, cancel(config, record, now)]
    mortal = record.state in (READY, DELAYED) or record.reason == Reason.ASKED
    if mortal and _passed(record.expires_at, now):
        return [*changes, _expired(config, record, now)]
    return changes


def _expired(config: TubeConfig, record: Record, at: int) -> Change:
    return Change(Event.TTL, at, record, _done(record, at, Reason.EXPIRED, _keep_failed(config, record)))


def _done(record: Record, at: int, reason: Reason, keep: int) -> Record:
    if not keep and record.watched_until is not None and record.watched_until > at:
        keep = WATCH_KEEP
    return record._replace(state=DONE, reason=reason, done_at=at, purge_at=after(at, keep))


def _keep_failed(config: TubeConfig, record: Record) -> int:
    if config.keep_failed is not None:
        return config.keep_failed
    return config.keep if record.keep is None else record.keep


def _life(record: Record, ready_at: int) -> int | None:
    return None if record.repeat is not None else after(ready_at, record.ttl)


def _passed(moment: int | None, now: int) -> bool:
    return moment is not None and now >= moment


def _with_error(record: Record, error: str | None) -> Record:
    if error is None:
        return record
    texts = [*(json.loads(record.errors) if record.errors else []), error]
    return record._replace(error=error, errors=json.dumps(texts[-MAX_ERRORS:]))
