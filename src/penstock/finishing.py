"""The hook on_finish of kinds: told what has ended, and only once that is committed."""

from __future__ import annotations

import logging
from weakref import WeakKeyDictionary

from penstock.model.tube import Kind
from penstock.view import TaskView

log = logging.getLogger("penstock")
_waiting: WeakKeyDictionary[object, list[tuple[Kind, TaskView]]] = WeakKeyDictionary()
"""What transactions that are still open have ended."""


def tell(kind: Kind, task: TaskView) -> None:
    """Call the hook; what it raises is its own affair."""
    try:
        kind.on_finish(task)
    except Exception:
        log.exception("on_finish() of kind %r failed for task %r", kind.name, task.id)


def tell_later(transaction: object, kind: Kind, task: TaskView) -> None:
    """Call the hook when the transaction has been committed."""
    _waiting.setdefault(transaction, []).append((kind, task))


def committed(transaction: object) -> None:
    """A transaction ended well."""
    for kind, task in _waiting.pop(transaction, ()):
        tell(kind, task)
