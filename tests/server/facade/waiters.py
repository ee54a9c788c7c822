"""Calls that wait at a server."""

from __future__ import annotations

from tests.support.servers import Running
from tests.worker.bench import until


def waiting(server: Running, tube: str, number: int = 1) -> None:
    """Come back when so many takes wait."""
    until(lambda: server.server.core.engine.store.waiting(tube) == number)
