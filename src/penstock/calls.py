"""From the arguments of a call to an op: checked, rounded and encoded once, for both facades."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypedDict

from penstock import payload
from penstock.model import duration, ops
from penstock.model.duration import FOREVER, SECOND, Seconds
from penstock.model.errors import BatchError, PenstockError, UsageError, shown
from penstock.model.session import Session
from penstock.model.state import Reason, State
from penstock.model.task import Draft, OnConflict, Placed, TaskId
from penstock.model.tube import (
    HOOKS,
    KINDS,
    PRI_RANGE,
    Features,
    Kind,
    TubeConfig,
    check_count,
    check_name,
    check_text,
    parse_keep,
)
from penstock.view import TaskView

DelayArgument = Seconds | datetime
MAX_BATCH = ops.MAX_BATCH


@dataclass(frozen=True)
class Entry:
    """One item of put_many with options of its own; what is None comes from the call.

    >>> Entry({"url": "http://a.example/"}, lane="a.example").lane
    'a.example'
    """

    data: Any
    pri: int | None = None
    ttl: Seconds | Literal["derived"] | None = None
    ttr: Seconds | None = None
    delay: DelayArgument | None = None
    lane: str | None = None
    key: str | None = None
    on_conflict: OnConflict | None = None
    put_id: str | None = None
    id: TaskId | None = None
    max_attempts: int | None = None
    keep: bool | Seconds | None = None
    repeat: Seconds | None = None


class PutOptions(TypedDict, total=False):
    """What Tube.put and Tube.put_many take beside the data, for those who pass it on."""

    pri: int | None
    ttl: Seconds | Literal["derived"] | None
    ttr: Seconds | None
    delay: DelayArgument | None
    lane: str | None
    key: str | None
    on_conflict: OnConflict
    put_id: str | None
    id: TaskId | None
    max_attempts: int | None
    keep: bool | Seconds | None
    repeat: Seconds | None
    timeout: Seconds | None
    transaction: object


def drafts(
    config: TubeConfig, kind: Kind, items: Iterable[Any], options: Mapping[str, Any]
) -> list[Draft | PenstockError]:
    """What put_many was given: a draft or an error each. Options of the call are checked once, for all."""
    items = listed(items)
    if len(items) > MAX_BATCH:
        raise UsageError(f"put_many takes at most {MAX_BATCH} items a call, got {len(items)}; put them in parts")
    if config.adopted is not None:
        return [draft(config, kind, item, options) for item in items]
    shared = put_draft(config, Kind(), b"" if config.payload == "bytes" else None, **options)[1:]
    if config.hooks:
        return [draft(config, kind, item, options) for item in items]
    encode, payload_kind = payload.encode, config.payload
    try:
        return [
            draft(config, kind, item, options) if type(item) is Entry else Draft(encode(item, payload_kind), *shared)
            for item in items
        ]
    except UsageError:
        return [draft(config, kind, item, options) for item in items]


def listed(items: Iterable[Any]) -> list[Any]:
    """The items of put_many; one thing that only looks like many is refused."""
    if isinstance(items, str | bytes | Mapping):
        raise UsageError(f"put_many takes a list of items, not one {type(items).__name__}: pass [..] or use put")
    return list(items)


def load(config: TubeConfig, items: list[Any], options: Mapping[str, Any]) -> ops.Load | None:
    """Very many items as one op; None if they differ in more than data, pri and lane, or one of them is refused."""
    shared = put_draft(config, Kind(), b"" if config.payload == "bytes" else None, **options)
    if (
        config.hooks
        or config.adopted is not None
        or shared.key
        or shared.put_id
        or shared.id
        or config.id == "function"
    ):
        return None
    encode, payload_kind = payload.encode, config.payload
    pris: list[int | None] | None = None
    lanes: list[str | None] | None = None
    try:
        if any(type(item) is Entry for item in items):
            entries = [item if type(item) is Entry else Entry(item) for item in items]
            if any(map(_is_special, entries)):
                return None
            pris = [shared.pri if entry.pri is None else check_pri(entry.pri) for entry in entries]
            lanes = [shared.lane if entry.lane is None else check_text(entry.lane, "lane") for entry in entries]
            items = [entry.data for entry in entries]
        return ops.Load(config.name, [encode(item, payload_kind) for item in items], pris, lanes, shared)
    except PenstockError:
        return None


_SPECIAL = tuple(name for name in Entry.__dataclass_fields__ if name not in ("data", "pri", "lane"))


def _is_special(entry: Entry) -> bool:
    return any(getattr(entry, name) is not None for name in _SPECIAL)


def draft(config: TubeConfig, kind: Kind, item: Any, options: Mapping[str, Any]) -> Draft | PenstockError:
    """One item, or why it is refused: its own options before those of the call. A handler may have refused it."""
    entry = item if isinstance(item, Entry) else Entry(item)
    if isinstance(entry.data, PenstockError):
        return entry.data
    own = {name: value for name in ENTRY_OPTIONS if (value := getattr(entry, name)) is not None}
    try:
        return put_draft(config, kind, entry.data, **{**options, **own})
    except PenstockError as error:
        return error


def merged(drafts: list[Draft | PenstockError], answers: list[Placed | PenstockError]) -> list[Placed | PenstockError]:
    """The answers to the good items, with the errors of the others between them."""
    if len(answers) == len(drafts):
        return answers
    rest = iter(answers)
    return [draft if isinstance(draft, PenstockError) else next(rest) for draft in drafts]


ENTRY_OPTIONS = tuple(name for name in Entry.__dataclass_fields__ if name != "data")


def put_draft(
    config: TubeConfig,
    kind: Kind,
    data: Any,
    pri: int | None = None,
    ttl: Seconds | Literal["derived"] | None = None,
    ttr: Seconds | None = None,
    delay: DelayArgument | None = None,
    lane: str | None = None,
    key: str | None = None,
    on_conflict: OnConflict = "error",
    put_id: str | None = None,
    id: TaskId | None = None,
    max_attempts: int | None = None,
    keep: bool | Seconds | None = None,
    repeat: Seconds | None = None,
) -> Draft:
    """The arguments of put, checked."""
    if config.hooks:
        kind.check_put(
            Entry(data, pri, ttl, ttr, delay, lane, key, on_conflict, put_id, id, max_attempts, keep, repeat)
        )
    text = payload.encode(data, config.payload)
    if id is None and config.adopted is not None and config.id == "required":
        id = id_in(data, config.adopted["key"])
    if on_conflict not in ("error", "ignore", "replace", "restart"):
        raise UsageError(f"on_conflict must be error, ignore, replace or restart, got {on_conflict!r}")
    if max_attempts is not None:
        check_count(max_attempts, "max_attempts")
    if id is not None:
        check_id(id)
    return Draft(
        text,
        None if pri is None else check_pri(pri),
        None if ttl is None else "derived" if ttl == "derived" else duration.length(ttl, "ttl"),
        None if ttr is None else duration.length(ttr, "ttr"),
        None if delay is None else duration.delay(delay),
        None if lane is None else check_text(lane, "lane"),
        None if key is None else check_text(key, "key"),
        on_conflict,
        None if put_id is None else check_text(put_id, "put_id"),
        id,
        max_attempts,
        None if keep is None else parse_keep(keep, "keep"),
        None if repeat is None else check_repeat(repeat),
    )


def id_in(data: Any, key: list[str]) -> TaskId | None:
    """The id of a row that names its primary key itself."""
    if not isinstance(data, dict) or not all(name in data for name in key):
        return None
    parts = tuple(data[name] for name in key)
    return parts if len(parts) > 1 else parts[0]


def check_pri(value: Any) -> int:
    if type(value) is not int or value not in PRI_RANGE:
        raise UsageError(f"pri must be a signed 64-bit integer, got {shown(value)}")
    return value


def check_repeat(value: Seconds | None) -> int | None:
    repeat = duration.length(value, "repeat")
    if repeat == 0:
        raise UsageError("repeat must be more than 0 seconds")
    return repeat


def check_id(value: Any) -> TaskId:
    """Ids are integers, text, or tuples of them (composite keys of adopted tables)."""
    if isinstance(value, tuple) and value:
        return tuple(check_id(part) for part in value)  # type: ignore[misc]
    if type(value) is int and value in PRI_RANGE:
        return value
    if isinstance(value, str) and value:
        check_text(value, "id")
        return value
    hint = "; a task has the verbs itself, as in task.ack(), or pass task.id" if isinstance(value, TaskView) else ""
    raise UsageError(
        f"id must be a 64-bit integer, text of up to 255 bytes, or a tuple of them, got {shown(value)}{hint}"
    )


def with_id(item: Any, make_id: Callable[[], TaskId]) -> Entry:
    """An item of put_many with the id that a function made."""
    entry = item if isinstance(item, Entry) else Entry(item)
    return entry if entry.id is not None else replace(entry, id=make_id())


def take(tube: str, n: int, session: Session, ttr: Seconds | None, lane: str | None, drain: bool) -> ops.Take:
    """The arguments of take."""
    if type(n) is not int or not 1 <= n <= MAX_BATCH:
        raise UsageError(f"n must be a whole number from 1 to {MAX_BATCH}, got {shown(n)}")
    return ops.Take(tube, n, session, duration.length(ttr, "ttr"), lane if lane is None else lane_name(lane), drain)


def lane_name(lane: Any, what: str = "lane") -> str:
    """A lane to take from; "" is the one that tasks of utube kinds without a lane share."""
    return check_text(lane, what) or ""


def finish(lease: ops.Lease, result: Any, keep: bool | Seconds | None, update: Mapping[str, Any] | None) -> ops.Finish:
    """The arguments of ack."""
    return ops.Finish(lease, payload.encode_result(result), None if keep is None else parse_keep(keep, "keep"), update)


def release(
    config: TubeConfig,
    lease: ops.Lease,
    session: Session,
    delay: DelayArgument | None,
    pri: int | None,
    ttl: Seconds | None,
    data: Any,
    refund: bool,
    update: Mapping[str, Any] | None,
) -> ops.Release:
    """The arguments of release; data=... (the default) leaves the data as it is."""
    return ops.Release(
        config.name,
        lease,
        session,
        duration.delay(delay),
        None if pri is None else check_pri(pri),
        duration.length(ttl, "ttl"),
        None if data is ... else payload.encode(data, config.payload),
        refund,
        update,
    )


def touch_by(value: Seconds) -> int:
    """How much a touch adds."""
    by = duration.length(value, "seconds")
    if by is None:
        raise UsageError("touch needs the seconds to add, got None")
    return by


def abort_reason(abort: bool | str) -> Reason | None:
    """fail(abort=True), or the reason of a worker that has no handler."""
    if abort in (True, False):
        return Reason.ABORTED if abort else None
    if abort in (Reason.ABORTED, Reason.UNKNOWN_HANDLER):
        return Reason(abort)
    raise UsageError(f"abort must be True, False, 'aborted' or 'unknown_handler', got {abort!r}")


def state(value: State | str | None) -> State | None:
    """A state by its name."""
    try:
        return None if value is None else State(value)
    except ValueError:
        raise UsageError(f"state must be one of {', '.join(State)}, got {value!r}") from None


def hook_delay(kind: str, answer: Any) -> duration.Delay | None:
    """What the hook retry_delay answered."""
    name = f"what retry_delay() of kind {kind!r} answers"
    return duration.delay(answer, name) if isinstance(answer, datetime) else duration.length(answer, name)


def history(tube: str | None, after: int, limit: int) -> ops.ReadHistory:
    """The arguments of history."""
    name = None if tube is None else check_name(tube)
    return ops.ReadHistory(name, check_count(after, "after", 0), check_count(limit, "limit"))


def plow_count(n: int | float | None) -> int | None:
    """None and infinity are all."""
    return None if n is None or n == float("inf") else check_count(n, "n", 0)


def wait_until(now: int, timeout: int | None) -> int:
    """The moment up to which a waiting call can go on."""
    return now + (FOREVER if timeout is None else timeout)


def seconds(timeout: int | None) -> float | None:
    """A timeout as threads and loops take it."""
    return None if timeout is None else timeout / SECOND


def kind_named(kinds: Mapping[str, Kind], name: Any) -> Kind:
    """A built-in or registered kind."""
    if isinstance(name, str) and (found := kinds.get(name) or KINDS.get(name)):
        return found
    known = ", ".join([*KINDS, *kinds])
    raise UsageError(f"unknown kind {shown(name)}; there are {known}, and register_kind() adds more")


def new_kind(kinds: Mapping[str, Kind], name: str, kind: Features | Kind | type[Kind] | Mapping[str, bool]) -> Kind:
    """What register_kind was given, as a kind with that name."""
    if not isinstance(name, str) or not name or name in kinds or name in KINDS:
        raise UsageError(f"kind {name!r} is registered already, or is no name")
    if isinstance(kind, type) and issubclass(kind, Kind):
        kind = kind()
    if isinstance(kind, Mapping):
        unknown = set(kind) - set(Features._fields)
        if unknown:
            raise UsageError(f"unknown features {sorted(unknown)}; there are {', '.join(Features._fields)}")
        kind = Features(**kind)
    if isinstance(kind, Features):
        made = Kind()
        made.features = kind
        kind = made
    if not isinstance(kind, Kind):
        raise UsageError("register_kind takes Features(..), a mapping of features, or a subclass of penstock.Kind")
    for hook in HOOKS:
        if not callable(getattr(kind, hook, None)):
            raise UsageError(f"kind {name!r} lacks the method {hook}()")
    kind.name = name
    return kind


def middleware(function: Callable[..., Any]) -> Callable[..., Any]:
    """What runs around handlers is awaited."""
    called = getattr(type(function), "__call__", None)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        is_async = False
    if not is_async:
        raise UsageError(f"middleware is `async def f(run, go_on)`, got {shown(function)}")
    return function


def check_errors(errors: str) -> None:
    if errors not in ("raise", "return"):
        raise UsageError(f"errors must be 'raise' or 'return', got {errors!r}")


def batch(results: list[Any], errors: str, what: str) -> list[Any]:
    """A list of tasks, or BatchError when some were refused and the caller did not ask for the list."""
    bad = [result for result in results if isinstance(result, PenstockError)]
    if bad and errors == "raise":
        raise BatchError(f"{len(bad)} of {len(results)} items of {what} were refused, first: {bad[0]}", results)
    return results
