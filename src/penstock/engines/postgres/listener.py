"""The connection on which this process hears of changes that others made."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.engines.postgres import templates
from penstock.engines.postgres.place import Place

if TYPE_CHECKING:
    from penstock.engines.postgres.store import PostgresStore

log = logging.getLogger("penstock")
LONGEST_PAUSE = 1.0
REGISTERED = "interval '15 seconds'"
AFRESH = 5.0
"""Seconds after which it is said again that somebody waits."""


class Listener:
    """Listens while somebody waits, and says in the store that it does so that others take the trouble to notify."""

    def __init__(self, store: PostgresStore, place: Place) -> None:
        self._store = weakref.ref(store)
        self._place = place
        self._schema = templates.quoted(place.schema)
        self._process = str(uuid.uuid4())
        self.hears = False
        self._stopped = False
        self._asked = threading.Event()
        self._said: dict[int, tuple[bool, bool]] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="penstock listener", daemon=True)
        self._thread.start()

    def attend(self) -> None:
        """Somebody has begun to wait."""
        self._asked.set()

    def stop(self) -> None:
        self._stopped = True
        self._asked.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        pause = 0.05
        while not self._stopped:
            self._asked.wait()
            if self._stopped:
                break
            try:
                self._listen()
                pause = 0.05
            except Exception as error:
                self.hears = False
                if self._stopped:
                    break
                log.debug("the listener lost its connection (%s); it tries again in %.2f s", error, pause)
                self._asked_pause(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            finally:
                self._hang_up()

    def _asked_pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _hang_up(self) -> None:
        self.hears = False
        self._said = {}
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _listen(self) -> None:
        """Until nobody has waited for a while."""
        with psycopg.connect(self._place.conninfo, autocommit=True) as connection:
            self._connection = connection
            connection.execute(f"listen {templates.channel(self._place.schema)}")
            idle = 0
            while not self._stopped:
                self._asked.clear()
                store = self._store()
                if store is None:
                    return
                waits = store.waits()
                self._say(connection, waits)
                self.hears = True
                if waits:
                    store.serve_all()  # for what came between its last look and our word
                del store
                idle = 0 if waits else idle + 1
                if idle > 60:
                    return
                self._hear(connection)

    def _say(self, connection: psycopg.Connection[Any], waits: dict[int, tuple[bool, bool]]) -> None:
        for number, (takes, ends) in waits.items():
            connection.execute(
                f"insert into {self._schema}.waits values (%s, %s, %s, %s, clock_timestamp() + {REGISTERED}) "
                "on conflict (tube, process) do update set takes = excluded.takes, ends = excluded.ends, until = excluded.until",
                [number, self._process, takes, ends],
            )
        for number in self._said.keys() - waits.keys():
            connection.execute(
                f"delete from {self._schema}.waits where process = %s and tube = %s",
                [self._process, number],
            )
        self._said = waits

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        """Wait for word of a change, for a newcomer, or for the time to say again that we wait."""
        import time

        until = time.monotonic() + AFRESH
        while not self._stopped and time.monotonic() < until:
            store = self._store()
            if store is None:
                return
            if self._asked.is_set() and store.waits() != self._said:
                return
            del store
            heard = {int(note.payload) for note in connection.notifies(timeout=0.05, stop_after=1)}
            if heard:
                store = self._store()
                if store is not None:
                    store.changed_elsewhere(heard)
