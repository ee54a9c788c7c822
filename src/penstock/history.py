"""Events of the past, as callers see them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from penstock import payload
from penstock.model import duration
from penstock.model.task import HistoryRow, TaskId


class HistoryEvent(NamedTuple):
    """One event of a tube with history=True."""

    seq: int
    at: datetime
    tube: str
    task_id: TaskId
    event: str
    from_state: str | None
    to_state: str
    reason: str | None
    attempt: int
    pri: int
    lane: str | None
    key: str | None
    worker: str | None
    error_class: str | None
    error: str | None
    ready_at: datetime | None
    taken_at: datetime | None
    delay: float | None
    data: Any

    @classmethod
    def of(cls, row: HistoryRow) -> HistoryEvent:
        at = duration.date(row.at)
        assert at is not None
        return cls(
            *row._replace(
                at=at,  # type: ignore[arg-type]
                ready_at=duration.date(row.ready_at),  # type: ignore[arg-type]
                taken_at=duration.date(row.taken_at),  # type: ignore[arg-type]
                delay=duration.seconds(row.delay),  # type: ignore[arg-type]
                data=None if row.data is None else payload.decode(row.data),
            )
        )
