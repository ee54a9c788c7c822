"""A store on PostgreSQL as its tables are, read in one snapshot and without the engine."""

from __future__ import annotations

import atexit
import os
from typing import Any, NamedTuple

import psycopg

from penstock.engines.postgres.answers import task_id
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.templates import quoted
from penstock.model.lane import LaneLimits
from penstock.model.state import State
from penstock.model.stats import Counters
from penstock.model.task import Record
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
STORED = [name for name in Record._fields if name not in ("id", "data")]
TASKS = f"select {', '.join(STORED)}, id, data::text, body, due_at, due_rank, place from {{}}.tasks_{{}} order by seq"  # noqa: S608
COUNTS = "select n, source, target, event, second from {}.counts_{}"
LANES = "select lane, concurrency, rate, burst, paused, tat from {}.lanes_{}"
TICKETS = "select lane, pri, place, at from {}.tickets_{}"
NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_connections: dict[tuple[int, str], Connection] = {}


class Stored(NamedTuple):
    """A task with what its row holds beside it."""

    record: Record
    due_at: int | None
    due_rank: int | None
    place: int | None


class LaneRow(NamedTuple):
    """What is written down about a lane."""

    concurrency: int | None = None
    rate: float | None = None
    burst: int | None = None
    paused: bool = False
    tat: int = 0


class Ticket(NamedTuple):
    lane: str
    pri: int
    place: int
    at: int | None


class TubeSnapshot(NamedTuple):
    number: int
    version: int
    config: TubeConfig
    tasks: list[Stored]
    counts: list[tuple[Any, ...]]
    lanes: dict[str, LaneRow]
    tickets: list[Ticket]

    @property
    def records(self) -> list[Record]:
        return [task.record for task in self.tasks]

    @property
    def counters(self) -> Counters:
        """What the deltas add up to."""
        total = Counters.zero()
        for n, source, target, event, second in self.counts:
            total.move(source if source in set(State) else None, target if target in set(State) else None, n)
            for called in (event, second):
                if called is not None:
                    total.call(called, n)
            if event is not None and target in ("gone", "done") and (source != "done" or second is not None):
                total.finished(n)
        return total

    def by_lane(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in self.records:
            if record.lane is not None:
                found.setdefault(record.lane, []).append(record)
        return found

    def limits(self, lane: str) -> LaneLimits:
        row = self.lanes.get(lane, LaneRow())
        own = {"concurrency": row.concurrency, "rate": row.rate, "burst": row.burst}
        given = {name: value for name, value in own.items() if value is not None}
        return self.config.limits._replace(paused=row.paused, **given)

    def tat(self, lane: str) -> int:
        return self.lanes.get(lane, LaneRow()).tat


class Snapshot(NamedTuple):
    now: int
    """By the server's clock."""
    sessions: list[int]
    tubes: list[TubeSnapshot]


def snapshot(url: str) -> Snapshot:
    """All tubes and sessions at one moment; nobody waits for it and it waits for nobody."""
    place = Place.parse(url)
    key = (os.getpid(), place.conninfo)
    for attempt in (1, 2):
        connection = _connections.get(key)
        if connection is None or connection.closed:
            connection = _connections[key] = _connected(place)
        try:
            return _read(connection, quoted(place.schema))
        except psycopg.OperationalError:
            connection.close()
            if attempt == 2:
                raise
    raise AssertionError


def forget(database: str) -> None:
    """Close what is open to a database of this process that nobody will look at any more."""
    for key, connection in list(_connections.items()):
        if key[0] == os.getpid() and (connection.closed or connection.info.dbname == database):
            del _connections[key]
            connection.close()


def _close(process: int) -> None:
    if os.getpid() == process:
        while _connections:
            _connections.popitem()[1].close()


atexit.register(_close, os.getpid())


def _connected(place: Place) -> Connection:
    connection: Connection = psycopg.connect(place.conninfo, autocommit=True, prepare_threshold=2)
    connection.prepared_max = 1000
    return connection


def _read(connection: Connection, schema: str) -> Snapshot:
    with connection.pipeline(), connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        tubes = connection.execute(f"select number, version, config from {schema}.tubes order by number")  # noqa: S608
        sessions = connection.execute(f"select number from {schema}.sessions order by number")  # noqa: S608
        moment = connection.execute(f"select {NOW}")
        found = [(number, version, TubeConfig.from_json(config)) for number, version, config in tubes.fetchall()]
        asked = [
            (number, version, config, _ask(connection, schema, number, config)) for number, version, config in found
        ]
        row = moment.fetchone()
        assert row is not None
        return Snapshot(
            row[0],
            [number for (number,) in sessions.fetchall()],
            [_tube(number, version, config, answers) for number, version, config, answers in asked],
        )


def _ask(connection: Connection, schema: str, number: int, config: TubeConfig) -> list[psycopg.Cursor[Any]]:
    """The questions of one tube, sent but not waited for."""
    if config.adopted is not None:
        return []
    questions = [TASKS, COUNTS, *([LANES, TICKETS] if config.features.lanes else [])]
    return [connection.execute(question.format(schema, number)) for question in questions]


def _tube(number: int, version: int, config: TubeConfig, answers: list[psycopg.Cursor[Any]]) -> TubeSnapshot:
    tasks, counts, lanes, tickets = ([*(cursor.fetchall() for cursor in answers), [], [], [], []])[:4]
    return TubeSnapshot(
        number,
        version,
        config,
        [_stored(row) for row in tasks],
        counts,
        {row[0]: LaneRow(*row[1:]) for row in lanes},
        [Ticket(*row) for row in tickets],
    )


def _stored(row: tuple[Any, ...]) -> Stored:
    values = dict(zip(STORED, row, strict=False))
    stored_id, data, body, due_at, due_rank, place = row[len(STORED) :]
    record = Record(
        id=values["seq"] if stored_id is None else task_id(stored_id), data=data if body is None else body, **values
    )
    return Stored(record, due_at, due_rank, place)
