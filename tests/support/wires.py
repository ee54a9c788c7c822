"""Connections that outlive the store that opened them.

A server starts a process for a new one, which knows nothing and reads for long; that costs a test more than its calls.
So where many tests come after each other, a connection that a store closes is wiped, as a pooler does it, and the next
store that asks for one like it finds it open. The store does with it all that it does with a new one.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, PGconn, PipelineStatus, TransactionStatus

from penstock.engines.postgres import connections
from penstock.engines.postgres.place import Place

# All of `discard all` but the plans: functions are planned alike whatever they are called with.
WIPE = b"""
    close all; set session authorization default; reset all; deallocate all; unlisten *;
    select pg_advisory_unlock_all(); discard temp; discard sequences
"""
USES = 25
"""How many stores have a connection: the plans that it keeps are all looked at whenever a table is made or dropped."""
Opener = Callable[..., psycopg.Connection[Any]]
reach: Opener = connections.reach
"""How a store opens a connection when nobody keeps any: for tests that break theirs on the way."""


class Rack:
    """Open connections to one database that nobody has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[PGconn]] = {}
        self._uses: dict[PGconn, int] = {}
        self._pid = os.getpid()
        self._open = True

    def connect(self, conninfo: str) -> Wire:
        """One of those, or a new one."""
        while (found := self._rested(conninfo)) is not None:
            if _is_quiet(found):
                wire = Wire(found)
                wire.autocommit = True
                break
            found.finish()
        else:
            wire = Wire.connect(conninfo, autocommit=True)
        wire.hang_on(self, conninfo)
        return wire

    def _rested(self, conninfo: str) -> PGconn | None:
        with self._lock:
            idle = self._idle.get(conninfo)
            return idle.pop() if idle and os.getpid() == self._pid else None

    def put(self, conninfo: str, wire: PGconn) -> bool:
        """Wipe and keep it; false if it is not for keeping."""
        sound = (
            os.getpid() == self._pid
            and wire.status == ConnStatus.OK
            and wire.transaction_status == TransactionStatus.IDLE
            and wire.pipeline_status == PipelineStatus.OFF
        )
        if not (sound and _is_quiet(wire) and wire.exec_(WIPE).status == ExecStatus.COMMAND_OK):
            return False
        while wire.notifies() is not None:
            pass
        self._uses[wire] = self._uses.get(wire, 0) + 1
        if self._uses[wire] >= USES:
            del self._uses[wire]
            return False
        with self._lock:
            if self._open:
                self._idle.setdefault(conninfo, []).append(wire)
            return self._open

    def close(self) -> None:
        with self._lock:
            self._open = False
            idle, self._idle = self._idle, {}
        for wire in (wire for wires in idle.values() for wire in wires):
            wire.finish()


class Wire(psycopg.Connection[Any]):
    """A connection that goes to its rack when it is closed."""

    _rack: Rack | None = None
    _conninfo = ""

    def hang_on(self, rack: Rack, conninfo: str) -> None:
        self._rack, self._conninfo = rack, conninfo

    def close(self) -> None:
        # Whoever closes it during a call wants the call to end.
        if self.closed or self._rack is None or not self.lock.acquire(blocking=False):
            super().close()
            return
        try:
            self._closed = self._rack.put(self._conninfo, self.pgconn)
            if self._closed:
                self.pgconn = _nobody()
        finally:
            self.lock.release()
        super().close()


def _nobody() -> PGconn:
    """What a connection has that is closed."""
    closed = PGconn.connect_start(b"host=/nowhere")
    closed.finish()
    return closed


def _is_quiet(wire: PGconn) -> bool:
    look = select.poll()
    look.register(wire.socket, select.POLLIN)
    return not look.poll(0)


@lru_cache(maxsize=100)
def _database(conninfo: str) -> str:
    return str(conninfo_to_dict(conninfo).get("dbname", ""))


@lru_cache(maxsize=100)
def _conninfo(place: Place, **options: str) -> str:
    return make_conninfo(connections.full_conninfo(place), **options)


def open_through(rack_of: Callable[[str], Rack | None]) -> None:
    """From now on stores of this process ask for the rack of a database before they open a connection to it."""

    def ask(place: Place, **options: str) -> psycopg.Connection[Any]:
        rack = rack_of(_database(place.conninfo))
        return reach(place, **options) if rack is None else rack.connect(_conninfo(place, **options))

    connections.reach = ask  # type: ignore[assignment]
