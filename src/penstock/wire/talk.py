"""Payloads of the requests between a remote engine and a server, beside ops and their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.model import ops, tube
from penstock.model.state import Event
from penstock.model.task import Record
from penstock.wire.codec import OP, LooseRecord, op_of, pack, plain_op, reader


class SentWait(NamedTuple):
    """An op that may wait."""

    op: Any
    limit: int | None
    """Microseconds."""
    arrived: list[int]
    """Earlier waits whose answers have arrived: the server may forget them."""


_read_wait = reader(tuple[OP, int | None, list[int]], "an op that waits")
_read_in = reader(tuple[int, OP], "an op in a transaction")


def encode_wait(op: ops.Op[Any], limit: int | None, arrived: Sequence[int]) -> bytes:
    """An op that waits so long at most."""
    return pack((plain_op(op), limit, arrived))


def decode_wait(payload: bytes) -> SentWait:
    """The other way round."""
    sent, limit, arrived = _read_wait(payload)
    return SentWait(op_of(sent), limit, arrived)


def encode_in(transaction: int, op: ops.Op[Any]) -> bytes:
    """An op inside a transaction."""
    return pack((transaction, plain_op(op)))


def decode_in(payload: bytes) -> tuple[int, ops.Op[Any]]:
    """The other way round."""
    transaction, sent = _read_in(payload)
    return transaction, op_of(sent)


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who connects. What a later release adds at the end, and what comes there, is not looked at by this one."""

    version: int
    client: str
    """A uuid that a remote engine makes up: whoever knows it gets its answers."""
    incarnation: str | None
    """Of the server that it was connected to before."""


class Welcome(msgspec.Struct, array_like=True, frozen=True):
    """What a server says first; it grows as a Hello does."""

    version: int
    incarnation: str
    store: str
    writable: bool
    remembered: bool
    """True if it knows what it has answered the client before."""
    moment: int
    frame: int
    """How many bytes a request may have."""


class Look(NamedTuple):
    """Lanes of a tube; without one, all that is held."""

    tube: str | None = None
    first: tuple[str, ...] = ()
    limit: int = 0


EVENT, BYE = range(2)
decode_hello: Callable[[bytes], Hello] = reader(Hello, "a hello")
decode_welcome: Callable[[bytes], Welcome] = reader(Welcome, "a welcome")
decode_number: Callable[[bytes], int] = reader(int, "a number")
decode_text: Callable[[bytes], str] = reader(str, "a text")
decode_alive: Callable[[bytes], list[tuple[str, int]]] = reader(list[tuple[str, int]], "a list of sessions")
decode_look: Callable[[bytes], Look] = reader(Look, "a look")


class _Changed(msgspec.Struct, array_like=True, tag=EVENT):
    config: tube.TubeConfig
    record: LooseRecord
    event: Event


class Bye(msgspec.Struct, array_like=True, tag=BYE):
    """The server goes; what came behind this number, if there is one, it will not read."""

    last: int | None


_read_push = reader(_Changed | Bye, "a push")


def encode_change(config: tube.TubeConfig, record: Record, event: Event) -> bytes:
    """A change of a task, for whoever listens."""
    return pack((EVENT, config, record, event))


def encode_bye(last: int | None) -> bytes:
    """The server goes."""
    return pack((BYE, last))


def decode_push(payload: bytes) -> Any:
    """A Bye, or what changed with its config, record and event."""
    return _read_push(payload)
