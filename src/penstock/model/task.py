"""A task as engines store it, a task about to be put, and a change of a task."""

from __future__ import annotations

from typing import Literal, NamedTuple

from penstock.model.duration import Delay
from penstock.model.state import Event

TaskId = int | str | tuple[int | str, ...]
Data = str | bytes
"""JSON text, or bytes in tubes with payload="bytes"."""

OnConflict = Literal["error", "ignore", "replace", "restart"]
Outcome = Literal["new", "existing", "replaced", "restarted"]


class Record(NamedTuple):
    """One stored task. Immutable; the fields are the columns of a tube's table, in order."""

    seq: int
    id: TaskId
    state: str
    reason: str | None
    data: Data
    pri: int
    lane: str | None
    key: str | None
    put_id: str | None
    attempt: int
    failures: int
    max_attempts: int | None
    ttl: int | None
    ttr: int | None
    created_at: int
    ready_at: int | None
    expires_at: int | None
    taken_at: int | None
    deadline: int | None
    done_at: int | None
    purge_at: int | None
    session: int | None
    token: int | None
    repeat: int | None
    keep: int | None
    cancel_asked: bool | int
    watched_until: int | None
    result: str | None
    error: str | None
    errors: str | None


class Draft(NamedTuple):
    """A task about to be put. None means the tube's default."""

    data: Data
    pri: int | None = None
    ttl: int | Literal["derived"] | None = None
    ttr: int | None = None
    delay: Delay | None = None
    lane: str | None = None
    key: str | None = None
    on_conflict: OnConflict = "error"
    put_id: str | None = None
    id: TaskId | None = None
    max_attempts: int | None = None
    keep: int | None = None
    repeat: int | None = None


class Placed(NamedTuple):
    """What became of a draft."""

    record: Record
    outcome: Outcome


class Gone(NamedTuple):
    """The short answer to an ack: the task ended at this moment and is not kept. The caller knows the rest."""

    at: int


class Change(NamedTuple):
    """One step of a task's life, at the moment it happened."""

    event: Event
    at: int
    before: Record | None
    after: Record
    error: str | None = None
    """What the caller said went wrong with this very step."""


class HistoryRow(NamedTuple):
    """One event as `history=True` stores it. Never a session, a token, or (unless history_data) the data."""

    seq: int
    at: int
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
    ready_at: int | None
    taken_at: int | None
    delay: int | None
    data: Data | None
