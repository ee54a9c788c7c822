"""Who holds tasks of a queue on PostgreSQL: read over a connection that the store lends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from penstock.engines.holdings import COUNTED, Holding, Lookout
from penstock.engines.postgres.connections import refused
from penstock.engines.postgres.store import PostgresStore
from penstock.engines.postgres.tubes import existing, listed
from penstock.model.duration import date
from penstock.model.lane import LaneInfo, LaneLimits

Connection = psycopg.Connection[Any]


class PostgresLookout(Lookout):
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._schema = store.schema

    def sessions(self) -> int:
        with self._lent() as connection:
            row = connection.execute(f"select count(*) from {self._schema}.sessions").fetchone()
            assert row is not None
            return int(row[0])

    def holdings(self) -> list[Holding]:
        with self._lent() as connection:
            names = {}
            parts = list[str]()
            for tube in listed(connection, self._schema):
                if self._store.writable or not tube.config.temporary:  # what is not logged cannot be read on a standby
                    names[tube.number] = tube.config.name
                    parts.append(
                        f"select {tube.number}, t.lane, t.session, count(*), min(t.taken_at) "
                        f"from {self._schema}.tasks_{tube.number} t where t.state = 'taken' group by t.lane, t.session"
                    )
            if not parts:
                return []
            rows = connection.execute(
                f"select h.*, coalesce(s.name, '?'), ({self._schema}.now_us() - h.since) / 1e6 "
                f"from ({' union all '.join(parts)}) h (tube, lane, session, taken, since) "
                f"left join {self._schema}.sessions s on s.number = h.session"
            ).fetchall()
        return [
            Holding(names[tube], lane, name, taken, max(0.0, float(age))) for tube, lane, _, taken, _, name, age in rows
        ]

    def lanes(self, tube: str, first: Sequence[str], limit: int) -> list[LaneInfo]:
        with self._lent() as connection:
            found = existing(connection, self._schema, tube)
            if not found.config.features.lanes:
                return []
            given = {"most": len(first) + limit, "first": list(first), "limit": limit, "counted": COUNTED}
            rows = connection.execute(lanes_query(self._schema, found.number), given).fetchall()
        return [LaneInfo(row[0], row[1], row[2], LaneLimits(*row[3:7]), date(row[7])) for row in rows]

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        with self._store._connections.borrowed() as connection:
            try:
                yield connection
            except psycopg.Error as error:
                raise refused(error) from error


def lanes_query(schema: str, number: int) -> str:
    """Lanes of a tube: those of %(first)s, then others by name, %(limit)s in all."""
    return f"""
        with recursive others (lane, i) as (
            select ({_first_lane(schema, number, ">= ''")}), 1
            union all
            select ({_first_lane(schema, number, "> o.lane")}), i + 1
            from others o where o.lane is not null and i < %(most)s
        ), named as (
            select lane, i - %(most)s as i from unnest(%(first)s::text[]) with ordinality f (lane, i)
            union all
            select lane, i from others where lane is not null
        ), chosen as (
            select lane, min(i) as i from named group by lane order by min(i) limit %(limit)s
        )
        select v.lane,
            -- In the order of the index, or else many rows of other lanes may be read to find these.
            (select count(*) from (
                select from {schema}.tasks_{number} t where t.lane = v.lane and t.state = 'ready'
                order by t.pri, t.seq limit %(counted)s
            ) ready),
            (select count(*) from {schema}.tasks_{number} t where t.lane = v.lane and t.state = 'taken'),
            l.concurrency, l.rate, l.burst, l.paused, case when l.next_at > {schema}.now_us() then l.next_at end
        from chosen v, {schema}.tubes c, {schema}.limits_{number}(c, v.lane) l
        where c.number = {number} order by v.i
    """


def _first_lane(schema: str, number: int, rule: str) -> str:
    """The first lane, of those that a rule leaves, that holds tasks or has settings: one look into each index."""
    tasks, lanes = f"{schema}.tasks_{number}", f"{schema}.lanes_{number}"
    return f"""
        select min(f.lane) from (
            (select lane from {tasks} where state = 'ready' and lane is not null and lane {rule} order by lane limit 1)
            union all
            (select lane from {tasks} where state = 'taken' and lane is not null and lane {rule} order by lane limit 1)
            union all
            (select lane from {lanes} where lane {rule}
                and (concurrency is not null or rate is not null or burst is not null or paused) order by lane limit 1)
        ) f
    """


def lookout(store: PostgresStore) -> PostgresLookout:
    """What looks at a store."""
    return PostgresLookout(store)
