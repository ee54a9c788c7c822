"""A call of a function in the database: a statement with its parameters, and how to read what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.engines.postgres.answers import Tube, stored_id
from penstock.model.duration import At, Delay
from penstock.model.task import TaskId

CONTEXT = "%s::bigint, %s::uuid[], %s::int[]"


class Context(NamedTuple):
    """What is the same for all ops of one moment."""

    schema: str
    """Quoted."""
    now: int | None
    """None: the server's clock says."""
    kept: str
    """The sessions that this process keeps alive and the database may take for dead, as an array."""
    listened: list[int]
    relaxed: bool
    joined: bool = False


class Call(NamedTuple):
    """A statement, its parameters and how to read the rows."""

    sql: str
    params: tuple[Any, ...]
    read: Callable[[Any], Any]
    raw: bool = False
    """The rows are not those of an Answer."""


def times(context: Context) -> tuple[Any, ...]:
    return context.now, context.kept, context.listened or None


def delay_of(delay: Delay | None) -> dict[str, int]:
    if delay is None:
        return {}
    return {"delay_until": delay.moment} if isinstance(delay, At) else {"delay": delay}


def id_of(tube: Tube, task_id: TaskId | None) -> str | None:
    """An id as the database knows it; one that no task of the tube can have is an id that none has."""
    config = tube.config
    if task_id is None or config.id not in ("auto", "time64") or config.adopted is not None:
        return None if task_id is None else stored_id(task_id)
    if isinstance(task_id, bool) or not isinstance(task_id, int) or not 0 <= task_id < 1 << 63:
        return "-1"
    return str(task_id)


def ids_of(tube: Tube, ids: list[TaskId]) -> Any:
    """Many ids as the database knows them."""
    if tube.config.id in ("auto", "time64") and all(type(task_id) is int and task_id >= 0 for task_id in ids):
        return int_array(ids)  # type: ignore[arg-type]
    return [id_of(tube, task_id) for task_id in ids]


def text_array(values: Iterable[str]) -> str:
    """Texts as PostgreSQL reads an array; the driver's way would look at each item's type."""
    return "{" + ",".join(['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]) + "}"


def int_array(values: Iterable[int | None]) -> str:
    """Whole numbers as PostgreSQL reads an array."""
    return "{" + ",".join(["null" if value is None else str(value) for value in values]) + "}"


def unless_none(values: list[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else values
