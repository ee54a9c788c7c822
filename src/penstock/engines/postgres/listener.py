"""The connection on which this process hears of changes that others made."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
import uuid
import weakref
from typing import TYPE_CHECKING

from psycopg import Notify

from penstock.engines.postgres import templates
from penstock.engines.postgres.connections import Connection, Connections
from penstock.engines.postgres.place import Place

if TYPE_CHECKING:
    from penstock.engines.postgres.store import PostgresStore

log = logging.getLogger("penstock")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
REGISTERED = "interval '15 seconds'"
AFRESH = 5.0
"""Seconds after which it is said again that somebody waits."""
IDLE = 300.0
"""Seconds without anybody waiting after which the connection is given up."""


class Listener:
    """Listens while somebody waits, and says in the store that it does so that others take the trouble to notify.

    It sleeps in a select on its connection and on a socket by which threads of this process wake it.
    """

    def __init__(self, store: PostgresStore, place: Place, connections: Connections) -> None:
        self._store = weakref.ref(store)
        self._connections = connections
        self._schema = templates.quoted(place.schema)
        self._channel = templates.channel(place.schema)
        self._process = str(uuid.uuid4())
        self.hears = False
        """True while every change that somebody waits for here is told us."""
        self._stopped = False
        self._said: dict[int, tuple[bool, bool]] = {}
        self._heard: set[int] = set()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="penstock listener", daemon=True)
        self._thread.start()

    def attend(self) -> None:
        """Somebody has begun to wait."""
        with contextlib.suppress(OSError):  # it has been rung often enough, or is closed
            self._rope.send(b"x")

    def stop(self) -> None:
        self._stopped = True
        self.attend()
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._bell.close()
            self._rope.close()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        rung = False
        while not self._stopped:
            if not rung:
                self._sleep(None)
            if self._stopped:
                break
            try:
                self._listen()
                pause, rung = FIRST_PAUSE, False
            except Exception as error:
                self.hears = False
                if self._stopped:
                    break
                log.debug("the listener lost its connection (%s); it tries again in %.2f s", error, pause)
                self._sleep(pause, woken=False)
                store = self._store()
                pause, rung = min(LONGEST_PAUSE, pause * 2), store is not None and bool(store.waits())
                del store
            finally:
                self.hears = False
                self._said = {}

    def _sleep(self, seconds: float | None, connection: Connection | None = None, woken: bool = True) -> bool:
        """Until something comes in, the bell rings or the time is over; True if it was the bell."""
        sources = select.poll()
        if connection is not None:
            sources.register(connection.fileno(), select.POLLIN)
        sources.register(self._bell.fileno(), select.POLLIN)
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = sources.poll(None if left is None else left * 1000)
            rung = any(number == self._bell.fileno() for number, _ in ready)
            if rung:
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(4096)
            if woken or self._stopped or not ready:
                return rung

    def _listen(self) -> None:
        """Until nobody has waited for a while."""
        connection = self._connections.connect()
        try:
            connection.add_notify_handler(self._note)
            connection.execute(f"listen {self._channel}")
            busy_at = time.monotonic()
            while not self._stopped:
                store = self._store()
                if store is None:
                    return
                waits = store.waits()
                self._say(connection, waits)
                self.hears = True
                if waits:
                    busy_at = time.monotonic()
                    store.serve_all()  # for what came between its last look and our word
                elif time.monotonic() - busy_at > IDLE:
                    return
                del store
                self._hear(connection)
        finally:
            self._connections.drop(connection)

    def _note(self, note: Notify) -> None:
        self._heard.add(int(note.payload))

    def _say(self, connection: Connection, waits: dict[int, tuple[bool, bool]]) -> None:
        for number, (takes, ends) in waits.items():
            connection.execute(
                f"insert into {self._schema}.waits values (%s, %s, %s, %s, clock_timestamp() + {REGISTERED}) "
                "on conflict (tube, process) "
                "do update set takes = excluded.takes, ends = excluded.ends, until = excluded.until",
                [number, self._process, takes, ends],
            )
        for number in self._said.keys() - waits.keys():
            connection.execute(
                f"delete from {self._schema}.waits where process = %s and tube = %s",
                [self._process, number],
            )
        self._said = waits

    def _hear(self, connection: Connection) -> None:
        """Pass on word of changes until there is a newcomer, or it is time to say again that we wait."""
        until = time.monotonic() + AFRESH
        while not self._stopped and (left := until - time.monotonic()) > 0:
            if self._heard:
                heard, self._heard = self._heard, set()
                store = self._store()
                if store is None:
                    return
                store.changed_elsewhere(heard)
                del store
                continue
            rung = self._sleep(left, connection)
            store = self._store()
            if store is None or (rung and _is_more(store.waits(), self._said)):
                return
            del store
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                self._heard.add(int(note.extra))


def _is_more(waits: dict[int, tuple[bool, bool]], said: dict[int, tuple[bool, bool]]) -> bool:
    """True if somebody waits for something of which nothing has been said. Who has left is struck off later."""
    return any(
        number not in said or any(a > b for a, b in zip(want, said[number], strict=True))
        for number, want in waits.items()
    )
