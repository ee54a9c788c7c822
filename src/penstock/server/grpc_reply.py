"""How long a reply of gRPC may be, and what is left out of one that would be longer."""

from __future__ import annotations

from typing import Any

from penstock.model.errors import PenstockError
from penstock.model.task import Record
from penstock.wire import messages, status
from penstock.wire._generated import penstock_pb2 as pb

MAX_REPLY = 4 * 1024 * 1024 - 65_536
"""Bytes: clients of gRPC refuse more than 4 MiB unless they are told otherwise."""
FRAMING = 8
SHORT = 32
"""Bytes for an item of a batch with no more than its code, or its number."""


def fill_tasks(reply: Any, records: list[Record], held: bool = False) -> int:
    """Write records into the tasks of a reply, as many as it may have; answers how many those are."""
    messages.fill(reply.tasks, records, held)
    return fitting(reply.tasks) if reply.ByteSize() > MAX_REPLY else len(records)


def fitting(items: Any) -> int:
    """Leave out of a reply what is too much; the first stays in any case. Answers how many there are."""
    size = 0
    for number, item in enumerate(items):
        size += item.ByteSize() + FRAMING
        if size > MAX_REPLY and number:
            del items[number:]
            break
    return len(items)


class Room:
    """What the reply to a batch may say beside the least that is said of each item.

    Who does not get the reply knows of none of them, so rather a text is missing.
    """

    def __init__(self, items: int) -> None:
        self._left = MAX_REPLY - SHORT * items

    def has(self, message: Any) -> bool:
        """True if there is room for this, which then is taken."""
        size: int = message.ByteSize()
        if size > self._left:
            return False
        self._left -= size
        return True

    def error(self, error: PenstockError) -> pb.Error:
        """A refusal; the code alone if there is no room for more."""
        whole = status.message(error)
        return whole if self.has(whole) else pb.Error(code=whole.code)
