"""A store under test on a manual clock, and the testing kit for queues of both colours."""

from __future__ import annotations

from typing import Any

from tests.support import engines
from tests.support.blocking import Blocking, Managed, unwrap
from tests.worker.bench import AsyncApp

from penstock.testing import Drained, adrain, drain, inline


class Bench(engines.Bench):
    """Opens queues whose handlers can be defined, called and put to in one way."""

    def connect(self, **options: Any) -> Any:
        queue = super().connect(**options)
        return AsyncApp(self._loop, queue._target) if self._loop is not None else queue


def drained(q: Any, *tubes: Any, **options: Any) -> Drained:
    """drain(q), or what an async program awaits instead."""
    if isinstance(q, Blocking):
        found: Drained = q._loop.run(adrain(unwrap(q), *map(unwrap, tubes), **options))
        return found
    return drain(q, *tubes, **options)


def inlined(q: Any) -> Any:
    """inline(q), to be entered by `with` whatever the queue is."""
    return Managed(q._loop, inline(unwrap(q))) if isinstance(q, Blocking) else inline(q)
