"""Ops, answers and errors as msgpack, between a remote engine and a server.

An op is an array: its place in `ops.ALL`, then its fields. An answer is an array too: what kind it is, then what the op
answers; the kinds that come most often have a shape of their own, so that one pass decodes a whole group. Types are
those of the ops themselves. What has another shape is a UsageError that says where, before anything is done; nothing
that arrives ever names a class or a function.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.msgpack import Decoder, Encoder, Ext

from penstock.model import errors, ops, tube
from penstock.model.duration import FOREVER, At
from penstock.model.errors import EngineUnavailable, PenstockError, UsageError, shown
from penstock.model.retry import Exponential
from penstock.model.session import Session, parse_uuid
from penstock.model.staging import Lost
from penstock.model.task import Draft, Gone, HistoryRow, Placed, Record
from penstock.payload import checked_json, plain_json

VERSION = 1
"""Of the protocol; a server refuses another one."""
SMALL = 256
"""Data up to so many characters comes back with the answer to a put; longer data the caller has itself."""
EXPONENTIAL, TUPLE, TIMEDELTA, DATE, TIME, NAIVE, DECIMAL, UUID, WHOLE = range(1, 10)
"""Numbers of values that msgpack does not know, in options and in columns of adopted tables."""


# -- values of any type --------------------------------------------------------------------------------


def dressed(value: Any) -> Any:
    """A value of a caller's as one that comes out of decoding as the same."""
    if value is None or isinstance(value, bool | float | str | bytes):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else Ext(WHOLE, _int_bytes(value))
    if isinstance(value, Mapping):
        return {dressed(key): dressed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return Ext(TUPLE, _encode([dressed(item) for item in value]))
    if isinstance(value, list):
        return [dressed(item) for item in value]
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is not None else Ext(NAIVE, value.isoformat().encode())
    for number, (kind, write, _) in _DRESSED.items():
        if isinstance(value, kind):
            return Ext(number, _encode(write(value)))
    raise UsageError(f"a {type(value).__name__} cannot be sent to a server, got {shown(value)}")


_DRESSED: dict[int, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    EXPONENTIAL: (Exponential, lambda it: [it.base, it.factor, it.max, it.jitter], lambda it: Exponential(*it)),
    TIMEDELTA: (
        dt.timedelta,
        lambda it: [it.days, it.seconds, it.microseconds],
        lambda it: dt.timedelta(it[0], it[1], it[2]),
    ),
    DATE: (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    TIME: (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    DECIMAL: (Decimal, str, Decimal),
    UUID: (uuid.UUID, str, uuid.UUID),
}


def _int_bytes(value: int) -> bytes:
    """Big-endian two's complement: unlike decimal digits, it has no limit of 4300 digits."""
    return value.to_bytes(value.bit_length() // 8 + 1, signed=True)


def _undressed(number: int, data: memoryview) -> Any:
    try:
        if number == WHOLE:
            return int.from_bytes(data, signed=True)
        if number == NAIVE:
            return dt.datetime.fromisoformat(bytes(data).decode())
        value = _decode(data)
        return tuple(value) if number == TUPLE else _DRESSED[number][2](value)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"there is no value of kind {number} like this: {type(error).__name__}: {error}") from None


# -- errors --------------------------------------------------------------------------------------------


class Failure(msgspec.Struct, omit_defaults=True):
    """An error: a map, so that no answer looks like one."""

    code: str
    text: str
    detail: str = ""
    """Of the attribute that says more."""
    results: list[Any] | None = None


LOST_PART = "lost_part"
_ERRORS: dict[str, type[PenstockError]] = {**errors.BY_CODE, LOST_PART: Lost}
_CODES = {kind: code for code, kind in _ERRORS.items()}


def failure(error: BaseException) -> Failure:
    """An error as it is sent; one that is not ours may have come in the middle of anything."""
    if not isinstance(error, PenstockError):
        error = EngineUnavailable(f"the server failed: {type(error).__name__}: {error}", "unknown")
    code = next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
    text = str(error).encode("utf-8", "backslashreplace").decode()
    results = [_result(item) for item in error.results] if isinstance(error, errors.BatchError) else None
    return Failure(code, text, getattr(error, error.detail, ""), results)


def _result(item: Any) -> Any:
    return item if isinstance(item, Record | Placed | BaseException) else None


def error_of(sent: Failure) -> PenstockError:
    """The error that was sent, as the same class."""
    kind = _ERRORS.get(sent.code, PenstockError)
    if kind is errors.BatchError:
        return errors.BatchError(sent.text, [_result_of(item) for item in sent.results or ()])
    return kind(sent.text, sent.detail) if kind.detail else kind(sent.text)


def _result_of(item: Any) -> Any:
    if isinstance(item, dict):
        return error_of(msgspec.convert(item, Failure))
    if isinstance(item, list) and len(item) == len(Placed._fields):
        return Placed(_record(item[0]), item[1])
    return _record(item) if isinstance(item, list) else item


def _record(values: list[Any]) -> Record:
    values[1] = tuple(values[1]) if isinstance(values[1], list) else values[1]
    return Record(*values)


def _hook(value: Any) -> Any:
    if isinstance(value, BaseException):
        return failure(value)
    raise UsageError(f"a {type(value).__name__} cannot be sent to a server, got {shown(value)}")


_encoder = Encoder(enc_hook=_hook)
_encode = _encoder.encode
_decode = Decoder(ext_hook=_undressed).decode


def pack(value: Any) -> bytes:
    """A value of plain parts, records and errors as bytes."""
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"this cannot be sent to a server: {error}") from None


def reader(kind: Any, what: str) -> Callable[[bytes | memoryview], Any]:
    """What decodes bytes as values of this type; UsageError says what else they are."""
    decode = Decoder(kind, ext_hook=_undressed).decode

    def read(payload: bytes | memoryview) -> Any:
        try:
            return decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"this is not {what}: {error}") from None

    return read


# -- types ---------------------------------------------------------------------------------------------


def _loose(kind: type[Any], **hints: Any) -> Any:
    """A named tuple with looser types: msgspec cannot tell text from bytes by type, so data is looked at afterwards."""
    return type(kind.__name__, (kind,), {"__slots__": (), "__annotations__": hints, "__module__": __name__})


_WHOLE: Any = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What every store can write down."""
_BOUNDS: dict[str, Any] = {
    **dict.fromkeys(("delay", "by"), Annotated[int, Meta(ge=-FOREVER, le=FOREVER)]),
    **dict.fromkeys(("ttl", "ttr", "keep"), Annotated[int, Meta(ge=0, le=FOREVER)]),
    "repeat": Annotated[int, Meta(ge=1, le=FOREVER)],
    **dict.fromkeys(("n", "limit"), Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]),
    "max_attempts": Annotated[int, Meta(ge=1, le=(1 << 63) - 1)],
}
"""What numbers may be, by the names of their fields."""
_TEXT: Any = Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]
_TEXTS = frozenset(("lane", "key", "put_id"))
"""Fields with text that is looked for, so it must be what every store can have."""
_UUID: Any = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
_NAME: Any = Annotated[str, Meta(max_length=1000)]


def _bounded(kind: type[Any], **hints: Any) -> Any:
    """A named tuple of the model whose numbers fit."""
    found = {name: _field(name, hint) for name, hint in get_type_hints(kind).items() if name not in hints}
    return _loose(kind, **found, **hints)


LooseRecord = _loose(Record, data=Any)
_HistoryRow = _loose(HistoryRow, data=Any)
_Placed = _loose(Placed, record=LooseRecord)
_LOOSE: dict[Any, Any] = {
    Record: LooseRecord,
    HistoryRow: _HistoryRow,
    Gone: int,
    PenstockError: Failure,
    int: _WHOLE,
}


def _field(name: str, hint: Any) -> Any:
    """The type of a field, whose name may say more of what it can be."""
    wired = _wire(hint)
    whole, text = _BOUNDS.get(name, _WHOLE), _TEXT if name in _TEXTS else str
    tight = {_WHOLE: whole, str: text}
    parts = get_args(wired) if get_origin(wired) in (Union, UnionType) else (wired,)
    return Union[tuple(tight.get(part, part) for part in parts)]  # noqa: UP007


def _wire(hint: Any) -> Any:
    """A type of the model as msgspec can decode it."""
    if hint in _LOOSE:
        return _LOOSE[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if bytes in parts:
            return Any
        return Union[tuple(_wire(part) for part in parts)]  # noqa: UP007
    if origin in (list, tuple, dict, Sequence, Mapping):
        plain: Any = {Mapping: dict, Sequence: list}.get(origin, origin)
        return plain[tuple(part if part is Ellipsis else _wire(part) for part in parts)]
    return hint


for _kind in (At, ops.Lease, ops.Finish):
    _LOOSE[_kind] = _bounded(_kind)
_LOOSE[Session] = _bounded(Session, uuid=_UUID, name=_NAME, ttl=Annotated[int, Meta(gt=0, le=FOREVER)])
_LOOSE[Draft] = _bounded(Draft, data=Any)


# -- ops -----------------------------------------------------------------------------------------------


def _struct(number: int, kind: type[ops.Op[Any]]) -> type[msgspec.Struct]:
    hints = get_type_hints(kind)
    shape: list[Any] = []
    for field in fields(kind):  # type: ignore[arg-type]
        optional = () if field.default is MISSING else (field.default,)
        shape.append((field.name, _field(field.name, hints[field.name]), *optional))
    return msgspec.defstruct(kind.__name__, shape, array_like=True, tag=number, forbid_unknown_fields=True)


def _few(names: list[str]) -> Callable[[Any], Any]:
    return lambda op: [getattr(op, name) for name in names]


NUMBERS = {kind: number for number, kind in enumerate(ops.ALL)}
_STRUCTS = [_struct(number, kind) for number, kind in enumerate(ops.ALL)]
_KINDS: dict[type[msgspec.Struct], type[ops.Op[Any]]] = dict(zip(_STRUCTS, ops.ALL, strict=True))
OP: Any = Union[tuple(_STRUCTS)]  # noqa: UP007
_NAMES = {kind: [field.name for field in fields(kind)] for kind in ops.ALL}  # type: ignore[arg-type]
_PARTS: dict[type[ops.Op[Any]], Callable[[Any], Any]] = {
    kind: attrgetter(*names) if len(names) > 1 else _few(names) for kind, names in _NAMES.items()
}
_ANY = ("given", "options", "update")
"""Fields with values of the caller's."""
_DRESS = {kind: [i for i, name in enumerate(names) if name in _ANY] for kind, names in _NAMES.items()}


def plain_op(op: ops.Op[Any]) -> Any:
    """An op as what pack() takes."""
    kind = type(op)
    try:
        values = _PARTS[kind](op)
    except KeyError:
        raise UsageError(f"{kind.__name__} is not an op that a server performs") from None
    if type(op) is ops.Ack:
        if any(item.update is not None for item in op.items):
            items = [item._replace(update=dressed(item.update)) for item in op.items]
            return (NUMBERS[kind], op.tube, items, op.session)
    elif type(op) is ops.AdoptTable:
        name, table, named, features, options = op.asked
        return (NUMBERS[kind], (name, table, named, dressed(features), dressed(options)))
    elif _DRESS[kind]:
        values = list(values)
        for index in _DRESS[kind]:
            values[index] = dressed(values[index])
    return (NUMBERS[kind], *values)


def op_of(sent: Any) -> ops.Op[Any]:
    """The op that was sent, if it is one that the library's own calls could make."""
    kind = _KINDS[type(sent)]
    op: Any = kind(*msgspec.structs.astuple(sent))
    if kind is ops.Put:
        _check_data([draft[0] for draft in op.drafts])
    elif kind is ops.Take:
        if not 1 <= op.n <= ops.MAX_BATCH:
            raise UsageError(f"n must be from 1 to {ops.MAX_BATCH}, got {op.n}")
    elif kind is ops.Load:
        _check_data(op.data)
    elif kind is ops.Release and op.data is not None:
        _check_data((op.data,))
    elif kind is ops.CreateTube:
        op.config = _checked(op.config)
    elif kind is ops.Identify:
        op.uuid = parse_uuid(op.uuid)
    session: Session | None = getattr(op, "session", None)
    if session is not None and session.direct:
        # Over a connection no session ends with the run of the store. [rule 13]
        op.session = Session(session[0], session[1], session[2], False)
    return op  # type: ignore[no-any-return]


def _check_data(data: Sequence[Any]) -> None:
    kinds = set(map(type, data))
    if kinds == {str} and plain_json(data) is not None:
        return
    for each in data:
        if type(each) is str:
            checked_json(each)
        elif type(each) is not bytes:
            raise UsageError(f"a task's data is text or bytes, got {shown(each)}")


def _checked(config: tube.TubeConfig) -> tube.TubeConfig:
    tube.check_name(config.name)
    for name in ("ttl", "ttr", "keep", "keep_failed"):
        value = getattr(config, name)
        if isinstance(value, int) and value < 0:
            raise UsageError(f"{name} must not be negative, got {value}")
    plain = {name: getattr(config, name) for name in tube.OPTIONS if name not in tube.DURATIONS}
    tube.parse_options(plain, tube.Features(*[True] * len(tube.Features._fields)))
    return tube.checked(config)


_read_ops = reader(list[OP], "a list of ops")


def encode_ops(requests: Sequence[ops.Op[Any]]) -> bytes:
    """Ops, to be performed in one group."""
    return pack([plain_op(op) for op in requests])


def decode_ops(payload: bytes | memoryview) -> list[ops.Op[Any]]:
    """The ops that were sent; UsageError if one of them is none."""
    return [op_of(sent) for sent in _read_ops(payload)]


# -- answers -------------------------------------------------------------------------------------------

FAILED, PUT, TAKEN, ACKED, OTHER = range(5)


class _Failed(msgspec.Struct, array_like=True, tag=FAILED):
    error: Failure


class _Put(msgspec.Struct, array_like=True, tag=PUT):
    items: list[_Placed | Failure]  # type: ignore[valid-type]


class _Taken(msgspec.Struct, array_like=True, tag=TAKEN):
    items: list[LooseRecord] | None  # type: ignore[valid-type]


class _Acked(msgspec.Struct, array_like=True, tag=ACKED):
    items: list[LooseRecord | int | Failure]  # type: ignore[valid-type]


class _Other(msgspec.Struct, array_like=True, tag=OTHER):
    value: msgspec.Raw


_ANSWER: Any = _Failed | _Put | _Taken | _Acked | _Other
_read_answers = reader(list[_ANSWER], "a list of answers")
_read_answer = reader(_ANSWER, "an answer")


def _result_type(kind: type[ops.Op[Any]]) -> Any:
    base = kind.__orig_bases__[0]  # type: ignore[attr-defined]
    return _wire(get_args(base)[0])


_RESULTS = {
    kind: reader(_result_type(kind), f"an answer to {kind.__name__}")
    for kind in ops.ALL
    if kind not in (ops.Put, ops.Take, ops.Ack)
}


def plain_answer(op: ops.Op[Any], answer: Any) -> Any:
    """An answer, or the exception that it is, as what pack() takes."""
    if isinstance(answer, BaseException):
        return (FAILED, answer)
    kind = type(op)
    if kind is ops.Put:
        return (PUT, [_lean(item) for item in answer])
    if kind is ops.Take:
        return (TAKEN, answer)
    if kind is ops.Ack:
        return (ACKED, [item.at if type(item) is Gone else item for item in answer])
    return (OTHER, answer)


def _lean(item: Any) -> Any:
    """Without data that the caller has itself."""
    if type(item) is Placed and item.outcome == "new" and len(item.record.data) > SMALL:
        return (item.record._replace(data=None), item.outcome)  # type: ignore[arg-type]
    return item


def _answer_of(op: ops.Op[Any], sent: Any) -> Any:
    kind = type(sent)
    if kind is _Put and type(op) is ops.Put and len(sent.items) == len(op.drafts):
        return [_placed(draft, item) for draft, item in zip(op.drafts, sent.items, strict=True)]
    if kind is _Taken and type(op) is ops.Take:
        return sent.items
    if kind is _Acked and type(op) is ops.Ack and len(sent.items) == len(op.items):
        gone = {at: Gone(at) for at in {item for item in sent.items if type(item) is int}}
        return [gone[item] if type(item) is int else _acked(item) for item in sent.items]
    if kind is _Failed:
        return error_of(sent.error)
    if kind is _Other and type(op) in _RESULTS:
        value = _RESULTS[type(op)](sent.value)
        return [error_of(item) for item in value] if type(op) is ops.Load else value
    raise UsageError(f"this is not an answer to {type(op).__name__}")


def _placed(draft: Draft, item: Any) -> Any:
    if type(item) is Failure:
        return error_of(item)
    return item if item[0][4] is not None else Placed(item[0]._replace(data=draft.data), item[1])


def _acked(item: Any) -> Any:
    return error_of(item) if type(item) is Failure else item


def encode_answers(requests: Sequence[ops.Op[Any]], answers: Sequence[Any]) -> bytes:
    """What a group of ops answered."""
    return pack([plain_answer(op, answer) for op, answer in zip(requests, answers, strict=True)])


def decode_answers(requests: Sequence[ops.Op[Any]], payload: bytes | memoryview) -> list[Any]:
    """The answers to these ops; errors are among them."""
    sent = _read_answers(payload)
    if len(sent) != len(requests):
        raise UsageError(f"there are {len(sent)} answers to {len(requests)} ops")
    return [_answer_of(op, one) for op, one in zip(requests, sent, strict=True)]


def encode_answer(op: ops.Op[Any], answer: Any) -> bytes:
    """What one op answered."""
    return pack(plain_answer(op, answer))


def decode_answer(op: ops.Op[Any], payload: bytes | memoryview) -> Any:
    """The answer to this op, which may be an error."""
    return _answer_of(op, _read_answer(payload))


_read_failure = reader(Failure, "an error")


def encode_error(error: BaseException) -> bytes:
    """An error alone."""
    return pack(failure(error))


def decode_error(payload: bytes | memoryview) -> PenstockError:
    """The other way round."""
    return error_of(_read_failure(payload))
