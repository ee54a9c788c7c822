"""A task as callers see it: seconds and dates out, data decoded when it is looked at."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from penstock import payload
from penstock.model import duration
from penstock.model.state import Reason, State
from penstock.model.task import Outcome, Record, TaskId

_UNREAD = object()


class TaskView:
    """What Task and AsyncTask show; `repr` leaves the data out."""

    __slots__ = ("_data", "_ended", "_held", "_record", "_tube", "_undo", "outcome")

    def __init__(self, tube: Any, record: Record, outcome: Outcome | None = None, held: bool = False) -> None:
        self._tube = tube
        self._record = record
        self._held = record.token if held else None
        self._data: Any = _UNREAD
        self._ended: str | None = None
        self._undo: tuple[object, Record] | None = None
        self.outcome = outcome
        """For tasks that put answered: new, existing, replaced or restarted."""

    def _renew(self, record: Record) -> None:
        if record.data != self._record.data:
            self._data = _UNREAD
        self._record = record

    def __repr__(self) -> str:
        record = self._record
        return f"<{type(self).__name__} {record.id!r} of {self.tube!r}: {record.state}, attempt {record.attempt}>"

    @property
    def id(self) -> TaskId:
        """Its name in the tube: an integer, text, or a tuple for composite keys."""
        return self._record.id

    @property
    def tube(self) -> str:
        """The name of the task's tube."""
        name: str = self._tube.name
        return name

    @property
    def state(self) -> State:
        """Where it was in its life when the call answered."""
        return State(self._record.state)

    @property
    def reason(self) -> Reason | None:
        """Why it is buried or done."""
        return None if self._record.reason is None else Reason(self._record.reason)

    @property
    def data(self) -> Any:
        """What was put."""
        if self._data is _UNREAD:
            self._data = payload.decode(self._record.data)
        return self._data

    @property
    def pri(self) -> int:
        """Its priority; lower comes first."""
        return self._record.pri

    @property
    def lane(self) -> str | None:
        """The sub-queue it stands in, or None."""
        return self._record.lane

    @property
    def key(self) -> str | None:
        """What no other live task of the tube has, or None."""
        return self._record.key

    @property
    def attempt(self) -> int:
        """How many times it was taken."""
        return self._record.attempt

    @property
    def max_attempts(self) -> int | None:
        """How many attempts it has; None is no limit."""
        return self._record.max_attempts

    @property
    def last_attempt(self) -> bool:
        """True when a failure of this attempt buries the task."""
        limit = self._record.max_attempts
        return limit is not None and self._record.attempt >= limit

    @property
    def ttl(self) -> float | None:
        """Seconds it may live; None is for ever."""
        return duration.seconds(self._record.ttl)

    @property
    def ttr(self) -> float | None:
        """Seconds one run may last; None is for ever."""
        return duration.seconds(self._record.ttr)

    @property
    def created_at(self) -> datetime:
        """When it was put."""
        date = duration.date(self._record.created_at)
        assert date is not None
        return date

    @property
    def ready_at(self) -> datetime | None:
        """When it became ready, or will."""
        return duration.date(self._record.ready_at)

    @property
    def expires_at(self) -> datetime | None:
        """When its ttl ends; None is never."""
        return duration.date(self._record.expires_at)

    @property
    def deadline(self) -> datetime | None:
        """When the lease ends by itself."""
        return duration.date(self._record.deadline)

    @property
    def done_at(self) -> datetime | None:
        """When it was acked, cancelled, deleted or expired; None before."""
        return duration.date(self._record.done_at)

    @property
    def purge_at(self) -> datetime | None:
        """When a kept task is removed; None while it lives, or is kept for ever."""
        return duration.date(self._record.purge_at)

    @property
    def error(self) -> str | None:
        """The text of the last failure."""
        return self._record.error

    @property
    def errors(self) -> list[str]:
        """Texts of the failures, oldest first."""
        texts: list[str] = json.loads(self._record.errors) if self._record.errors else []
        return texts

    @property
    def result(self) -> Any:
        """What ack() was given."""
        return None if self._record.result is None else payload.decode(self._record.result)

    @property
    def cancel_asked(self) -> bool:
        """True once somebody has asked that this task stop."""
        token = self._record.token
        return bool(self._record.cancel_asked) or (self._held is not None and token in self._tube.cancelled)

    @property
    def token(self) -> int | None:
        """The lease's number, rising with every grant: pass it downstream to tell late writers. Holders only."""
        return self._record.token if self._held else None
