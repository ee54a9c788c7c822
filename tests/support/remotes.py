"""Servers of this process that stand in front of a store under test."""

from __future__ import annotations

import itertools
from typing import Any

from tests.support.reservation import free_port, give_back
from tests.support.servers import Running

from penstock.engines import open_store
from penstock.model.duration import FOREVER, SECOND
from penstock.model.session import Session
from penstock.server.settings import Limits
from penstock.testing import ManualClock, new_run

_names = itertools.count()
LIMITS = Limits(session_seconds=FOREVER / SECOND)
"""The contract knows no shorter sessions."""
survivors: set[str] = set()
"""Sessions that a run does not end: to a server all of them are such, so tests name those that are meant to be."""
_running: dict[str, tuple[Running, str, Any]] = {}


def served(clock: ManualClock | None = None, store: str | None = None) -> str:
    """The URL of a new server of a store in memory."""
    store = store or f"memory:served{next(_names)}"
    running = Running(store, clock, port=free_port(), limits=LIMITS)
    _running[running.url] = (running, store, clock)
    return running.url


def served_by_grpc(clock: ManualClock | None = None) -> str:
    """The same over gRPC."""
    store = f"memory:served{next(_names)}"
    running = Running(store, clock, port=None, grpc_port=free_port(), limits=LIMITS)
    _running[running.grpc_url] = (running, store, clock)
    return running.grpc_url


def behind(url: str) -> str:
    """The URL of the store itself."""
    return _running[url][1] if url in _running else url


def server(url: str) -> Running:
    """The server of a URL."""
    return _running[url][0]


def begin_run(url: str) -> None:
    """Everybody dies, the server too; another one is started there. Sessions of processes end with them."""
    new_run(url)
    running, store, clock = _running[url]
    running.stop()
    found: Any = open_store(store)
    for uuid in set(found.data.sessions) - survivors:
        holder = found.data.sessions[uuid]
        found.data.sessions[uuid] = holder._replace(session=Session(*holder.session[:3], direct=True))
    new_run(store)
    port = _port(url)
    ports = {"port": None, "grpc_port": port} if url.startswith("grpc://") else {"port": port}
    _running[url] = (Running(store, clock, limits=LIMITS, **ports), store, clock)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def stop(url: str) -> None:
    """The test is over."""
    running, store, _ = _running.pop(url)
    running.stop()
    give_back(_port(url))
    if (left := open_store(store)) is not None:
        left.close()
