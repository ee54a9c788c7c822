"""Every error that Penstock raises, as one tree.

    PenstockError                     .code is stable, on every engine and on the wire
    |-- UsageError                    the call is wrong; also a ValueError
    |-- EngineUnavailable             .outcome: not_done | unknown
    |-- SchemaMismatch                the store is newer or older than this library
    |-- AccessDenied                  this login may not do that
    |-- TubeNotFound
    |-- NotWritable                   a standby or a read-only file
    |-- PayloadTooLarge
    |-- DuplicateKey                  a live task has this key (or id)
    |-- TubeFull
    |-- TaskNotFound
    |-- NotTaken                      nobody holds the task
    |-- NotOwner                      another session holds it
    |-- LeaseLost                     .now: gone | waiting | taken | finished
    |-- WrongState                    the verb does not fit the task's state
    |-- TubeExists
    |-- TubeBusy                      tasks are taken, or takers wait
    |-- TaskFailed                    result() of a task that ended badly
    |-- WaitTimeout
    |-- SessionExpired
    `-- BatchError                    .results: a task or an error for each item

The order is the order in which a verb checks: when two errors apply, the first in this list is raised.
It also gives each error its exit status on the command line: 64 + position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

MAX_SHOWN = 120


def shown(value: object) -> str:
    """A value as an error text has it: its repr, shortened when it is long.

    >>> len(shown("x" * 1000)) <= MAX_SHOWN
    True
    """
    if isinstance(value, int) and value.bit_length() > 400:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 20]}.. {text[-1]}"


class PenstockError(Exception):
    """The root. Catch this to catch everything Penstock raises on purpose."""

    code: ClassVar[str] = "error"
    detail: ClassVar[str] = ""
    """The attribute that says more than the text, and is the second argument; "" if there is none of plain text."""

    @classmethod
    def exit_status(cls) -> int:
        """The exit status of the command line for this error."""
        return 64 + ALL.index(cls) if cls in ALL else 1


class UsageError(PenstockError, ValueError):
    """The call itself is wrong: the text names the value and the rule."""

    code = "usage"


class EngineUnavailable(PenstockError):
    """The store did not answer. `outcome` says whether the operation may have happened."""

    code = "engine_unavailable"
    detail = "outcome"

    def __init__(self, message: str, outcome: str = "not_done") -> None:
        super().__init__(message)
        self.outcome = outcome


class SchemaMismatch(PenstockError):
    """The store was written by another version of the library."""

    code = "schema_mismatch"


class AccessDenied(PenstockError):
    """This login may not do that."""

    code = "access_denied"


class TubeNotFound(PenstockError):
    """No tube has this name. Create it with create_tube()."""

    code = "tube_not_found"


class NotWritable(PenstockError):
    """The store can only be read: a standby, or a read-only file."""

    code = "not_writable"


class PayloadTooLarge(PenstockError):
    """The encoded data is longer than the tube's max_payload."""

    code = "payload_too_large"


class DuplicateKey(PenstockError):
    """A live task of the tube has this key, or a stored one has this id."""

    code = "duplicate_key"


class TubeFull(PenstockError):
    """The tube holds `capacity` tasks and none left within the timeout."""

    code = "tube_full"


class TaskNotFound(PenstockError):
    """The tube has no task with this id."""

    code = "task_not_found"


class NotTaken(PenstockError):
    """Nobody holds the task, so nobody can finish it."""

    code = "not_taken"


class NotOwner(PenstockError):
    """Another session holds the task. `owner` is that session's public name."""

    code = "not_owner"
    detail = "owner"

    def __init__(self, message: str, owner: str = "") -> None:
        super().__init__(message)
        self.owner = owner


class LeaseLost(PenstockError):
    """The lease is over and nothing was changed. `now` says what became of the task."""

    code = "lease_lost"
    detail = "now"

    def __init__(self, message: str, now: str = "gone") -> None:
        super().__init__(message)
        self.now = now


class WrongState(PenstockError):
    """The verb does not fit the state the task is in."""

    code = "wrong_state"


class TubeExists(PenstockError):
    """A tube has this name already. Pass if_not_exists=True to get it."""

    code = "tube_exists"


class TubeBusy(PenstockError):
    """The tube cannot be dropped: tasks are taken or takers wait. Pass force=True to drop it anyway."""

    code = "tube_busy"


class TaskFailed(PenstockError):
    """result() of a task that was buried, cancelled, deleted or expired."""

    code = "task_failed"

    def __init__(self, message: str, task: Any = None) -> None:
        super().__init__(message)
        self.task = task
        """The task as it ended; None when it is gone."""


class WaitTimeout(PenstockError):
    """The task did not end within the timeout."""

    code = "wait_timeout"


class SessionExpired(PenstockError):
    """identify() was given a session that is unknown or over."""

    code = "session_expired"


class BatchError(PenstockError):
    """Some items of a batch were refused; the others are committed. `results` has a task or an error each."""

    code = "batch"

    def __init__(self, message: str, results: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.results = list(results)


ALL: tuple[type[PenstockError], ...] = (
    UsageError,
    EngineUnavailable,
    SchemaMismatch,
    AccessDenied,
    TubeNotFound,
    NotWritable,
    PayloadTooLarge,
    DuplicateKey,
    TubeFull,
    TaskNotFound,
    NotTaken,
    NotOwner,
    LeaseLost,
    WrongState,
    TubeExists,
    TubeBusy,
    TaskFailed,
    WaitTimeout,
    SessionExpired,
    BatchError,
)
BY_CODE: dict[str, type[PenstockError]] = {PenstockError.code: PenstockError} | {cls.code: cls for cls in ALL}
