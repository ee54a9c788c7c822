"""Who holds tasks of a SQLite store: read beside the store, by connections that cannot write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw

from penstock.engines.holdings import COUNTED, Holding, Lookout
from penstock.engines.sqlite.database import Database, unavailable
from penstock.engines.sqlite.lanes import LaneRow
from penstock.engines.sqlite.place import Place
from penstock.engines.sqlite.statements import named, render, waiting
from penstock.engines.sqlite.store import SqliteStore
from penstock.model import lane as lanes
from penstock.model.clock import Clock, epoch_began
from penstock.model.duration import SECOND, date
from penstock.model.errors import TubeNotFound
from penstock.model.lane import LaneInfo
from penstock.model.tube import TubeConfig

_STORE = named("store.sql")


def statements(number: int, config: TubeConfig) -> dict[str, str]:
    """Those of one tube."""
    table = f"penstock_tasks_{number}"
    values = {"table": f'"{table}"', "waiting": waiting(config)}
    for index in ("taken", "waiting", "slot"):
        values[f"{index}_index"] = f'"{table}_{index}"'
    return {name: text.format(**values) for name, text in named("holdings.sql").items()}


def run_began(place: Place) -> int:
    """Since when calls are counted: a process opened the file that nobody had open. Seconds since 1970."""
    database = Database(place.path, "NORMAL", read_only=True)
    try:
        return epoch_began(database.value("SELECT epoch FROM penstock_store"))
    finally:
        database.close()


class SqliteLookout(Lookout):
    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._main = Database(place.path, "NORMAL", read_only=True)
        self._temporary: Database | None = None

    def sessions(self) -> int:
        with self._reading():
            return int(self._main.value("SELECT count(*) FROM penstock_sessions"))

    def holdings(self) -> list[Holding]:
        now = self._clock.now()
        found = list[Holding]()
        with self._reading():
            names = {row[0]: row[2] for row in self._main.rows(_STORE["load_sessions"])}
            for number, config in self._tubes():
                database = self._database(config)
                if database is not None:
                    for session, lane, taken, since in database.rows(statements(number, config)["holdings"]):
                        age = max(0, now - since) / SECOND
                        found.append(Holding(config.name, lane, names.get(session, "?"), taken, age))
        return found

    def lanes(self, tube: str, first: Sequence[str], limit: int) -> list[LaneInfo]:
        with self._reading():
            number, config = next(((n, c) for n, c in self._tubes() if c.name == tube), (0, None))
            if config is None:
                raise TubeNotFound(f"there is no tube {tube!r}")
            database = self._database(config)
            if database is None or not config.features.lanes:
                return []
            names = list(dict.fromkeys(first))[:limit]
            for name in self._names(database, number, config):
                if len(names) >= limit:
                    break
                if name not in names:
                    names.append(name)
            return [self._lane(database, number, config, name) for name in names]

    def _names(self, database: Database, number: int, config: TubeConfig) -> Iterator[str]:
        """Lanes with ready or taken tasks or settings, by name."""
        shared = self._lane(database, number, config, "")
        if shared.ready or shared.taken:
            yield ""
        follow = render(number, config)["next_lane"]
        name: str | None = ""
        while (name := database.value(follow, (name, name, name, number, name))) is not None:
            yield name

    def _lane(self, database: Database, number: int, config: TubeConfig, name: str) -> LaneInfo:
        sql = statements(number, config)
        ready = min(COUNTED, database.value(sql["ready"], (name, COUNTED)))
        taken = database.value(sql["taken"], (name,))
        found = database.row(_STORE["load_lane"], (number, name))
        if found is None:
            return LaneInfo(name, ready, taken, config.limits, None)
        row = LaneRow(*found)
        limits = row.over(config.limits)
        next_at = lanes.opens_at(limits, row.tat) if limits.rate else 0
        return LaneInfo(name, ready, taken, limits, date(next_at) if next_at > self._clock.now() else None)

    def _tubes(self) -> Iterator[tuple[int, TubeConfig]]:
        for number, _, text in self._main.rows(_STORE["load_tubes"]):
            yield number, TubeConfig.from_json(json.loads(text))

    def _database(self, config: TubeConfig) -> Database | None:
        """Temporary tubes are in a file of their own."""
        if not config.temporary:
            return self._main
        path = self._place.beside("-temporary")
        if self._temporary is None and path.exists():
            self._temporary = Database(path, "OFF", read_only=True)
        return self._temporary

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """All that is read belongs together; a tube may be dropped between two looks, not during one."""
        try:
            self._main.execute("BEGIN")
            try:
                yield
            finally:
                self._main.execute("ROLLBACK")
        except apsw.Error as error:
            raise unavailable(self._place.path, error) from error

    def close(self) -> None:
        for database in (self._temporary, self._main):
            if database is not None:
                database.close()


def lookout(store: SqliteStore) -> SqliteLookout:
    """What looks at a store."""
    return SqliteLookout(store._place, store.clock)
