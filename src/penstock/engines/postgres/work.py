"""The ops of one transaction: each performed by a call, and what they did remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from penstock.engines.postgres import adopted, adoption, calls, loading, promoting, staging, tubes
from penstock.engines.postgres.answers import INFO, KIND, TUBE, Again, Row, Stale, Tube, Unusual, change, split
from penstock.engines.postgres.call import Call, Context
from penstock.engines.postgres.calls import STORE_CALLS, TUBE_CALLS
from penstock.model import ops, rules
from penstock.model.errors import PenstockError, TubeNotFound
from penstock.model.staging import Promoted
from penstock.model.task import Placed, Record
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.postgres.store import PostgresStore

Connection = psycopg.Connection[Any]
AGAIN = 1000
"""How often a take that has looked at as much as it may is called again before it is left to the next wake-up."""

TOGETHER, MOST = (ops.Ack, ops.Take), 4
"""What a worker asks for all the time, and how many of it are one statement: each combination is planned for itself."""

Shape = Callable[[Connection, Any, Context, Any], tuple[Any, list[Row]]]
SHAPES: dict[type[ops.Op[Any]], Shape] = {
    ops.CreateTube: lambda connection, store, context, op: (tubes.create(connection, store.place.schema, op), []),
    ops.GetTube: lambda connection, store, context, op: (store.known(op.tube, connection, fresh=True).config, []),
    ops.ListTubes: lambda connection, store, context, op: (
        [tube.config for tube in tubes.listed(connection, store.schema)],
        [],
    ),
    ops.AlterTube: lambda connection, store, context, op: tubes.alter(connection, store.place.schema, context, op),
    ops.PauseTube: lambda connection, store, context, op: (tubes.pause(connection, context, op), []),
    ops.TruncateTube: lambda connection, store, context, op: adoption.truncate(connection, context, op),
    ops.DropTube: lambda connection, store, context, op: tubes.drop(connection, context, op, store.waiting(op.tube)),
    ops.ConfigureLane: lambda connection, store, context, op: tubes.configure_lane(connection, context, op),
    ops.ListLanes: lambda connection, store, context, op: tubes.list_lanes(connection, context, op),
    ops.AdoptTable: lambda connection, store, context, op: (
        adoption.adopt(connection, store.place.schema, context, op),
        [],
    ),
}


STAGING: dict[type[ops.Op[Any]], Callable[[Connection, Context, Any], Any]] = {
    ops.Stage: staging.stage,
    ops.Discard: staging.discard,
    ops.ListStaged: lambda connection, context, op: staging.listed(connection, context),
}


class Told(NamedTuple):
    """Whose change it was."""

    config: TubeConfig


class Said(NamedTuple):
    """A call that was made, and what it answered."""

    call: Call
    rows: list[Row]


class Work:
    """The ops of one transaction on one connection, and what they did."""

    def __init__(self, store: PostgresStore, connection: Connection, relaxed: bool, joined: bool = False) -> None:
        self._store = store
        self._connection = connection
        now = store.clock.now() if store.clock.manual else None
        self.context = Context(store.schema, now, store.kept(), store.listened(), relaxed, joined)
        self.touched: set[str] = set()
        self.announced: list[tuple[Told, Any]] = []
        self.next_due: int | None = None
        self._emptied: str | None = None
        """The tube in which the take before this op has found nothing."""

    def answer(self, op: ops.Op[Any], said: Said | None = None) -> Any:
        """Perform an op. A refusal has changed nothing and leaves the transaction usable.

        said: its call has been made.
        """
        if type(op) is ops.Take:
            return self._take(op, said)
        self._emptied = None
        build = TUBE_CALLS.get(type(op))
        if build is not None:
            return self._on_tube(op, build, said)
        if type(op) in STORE_CALLS:
            if isinstance(op, ops.EndSession | ops.Tick | ops.OpenSession | ops.KeepAlive | ops.Identify):
                self.touched |= self._store.awaited()  # what sessions held is anybody's now
            if said is not None:
                return self._read(*said)
            return self._tick(op) if type(op) is ops.Tick else self._call(STORE_CALLS[type(op)](self.context, op))
        if isinstance(op, ops.Load):
            return self._load(op)
        if isinstance(op, ops.Promote):
            return self._promote(op)
        if type(op) in STAGING:
            return STAGING[type(op)](self._connection, self.context, op)
        return self._statistics(op) if isinstance(op, ops.GetStatistics) else self._shape(op)

    def _take(self, op: ops.Take, said: Said | None) -> list[Record] | None:
        """Whoever is refused, those behind him are too: what others have put meanwhile is for the first of the line."""
        plain = op.lane is None and not op.drain
        if plain and op.tube == self._emptied:
            return []
        granted: list[Record] | None = self._on_tube(op, TUBE_CALLS[ops.Take], said)
        self._emptied = op.tube if plain and granted == [] else None
        return granted

    def ask(self, requests: Sequence[ops.Op[Any]]) -> list[Said] | None:
        """Make the calls of some ops in one statement, a transaction of its own; None if they are not of that sort.

        Every round trip is also a wait for the interpreter, which threads that run handlers keep busy.
        """
        if all(type(op) is ops.KeepAlive for op in requests):
            return self._keep_alive(requests)
        if not 1 < len(requests) <= MOST or not all(isinstance(op, TOGETHER) for op in requests):
            return None
        if [type(op) for op in requests].count(ops.Take) > 1:
            return None  # the second one depends on what the first one gets
        try:
            asked = [self._asked(op) for op in requests]
        except PenstockError:
            return None  # the refusal is for one of them
        said = [Said(call, []) for call in asked if call is not None]
        if len(said) < len(asked):
            return None
        comma = f" union all select * from {self.context.schema}.error('next', null, null) union all "
        sql, params = comma.join([one.call.sql for one in said]), [param for one in said for param in one.call.params]
        try:
            answered = self.rows(sql, params)
        except psycopg.errors.ReadOnlySqlTransaction:
            return None  # each of them is told
        parts = iter(said)
        rows = next(parts).rows
        for row in answered:
            if row[KIND] == "error" and row[INFO] == "next":
                rows = next(parts).rows
            else:
                rows.append(row)
        return said

    def _keep_alive(self, requests: Sequence[Any]) -> list[Said]:
        """Signs of life of many sessions. Whoever else keeps some of them comes in the same order, by their uuids."""
        order = sorted(range(len(requests)), key=lambda index: requests[index].session.uuid)
        said = [Said(calls.keep_alive(self.context, op), []) for op in requests]
        for place, *row in self.rows(*calls.keep_all_alive(self.context, [requests[index] for index in order])):
            said[order[place - 1]].rows.append(tuple(row))
        return said

    def _asked(self, op: Any) -> Call | None:
        tube = self._store.known(op.tube, self._connection)
        if tube.config.adopted is not None:
            return None
        build: Any = TUBE_CALLS[type(op)]
        call: Call = build(self.context, op, tube, slowly=True)
        return call

    def _tick(self, op: ops.Tick) -> int | None:
        """All that is due, a portion a call: very much at once would hold too many rows for too long."""
        before: int | None = None
        then: int | None = self._call(calls.tick(self.context, op))
        while then is not None and then != before and then <= self._store.clock.now():
            before, then = then, self._call(calls.tick(self.context, op))
        return then

    def _load(self, op: ops.Load) -> list[PenstockError]:
        tube = self._store.known(op.tube, self._connection, fresh=True)
        if not loading.can_copy(self.context, op, tube):
            placed = self.answer(ops.Put(op.tube, tuple(op.drafts())))
            return [answer for answer in placed if isinstance(answer, PenstockError)]
        if self.context.relaxed:
            self._connection.execute("set local synchronous_commit = off")
        refused = loading.load(self._connection, self.context, op, tube)
        self.touched.add(op.tube)
        if op.shared.delay is not None or op.shared.ttl is not None or tube.config.ttl is not None:
            self.next_due = 0  # when that is, the next tick finds out
        return refused

    def _promote(self, op: ops.Promote) -> Promoted:
        try:
            return self._promoted(op)
        except psycopg.errors.OutOfMemory as error:
            raise promoting.too_many(op) from error

    def _promoted(self, op: ops.Promote) -> Promoted:
        tube = self._store.known(op.tube, self._connection, fresh=True)
        found = promoting.staged(self._connection, self.context, op, tube)
        self.touched.add(op.tube)
        if promoting.is_set_based(self.context, op, tube, found):
            promoted, timed = promoting.promote(self._connection, self.context, op, tube, found)
            if timed:
                self.next_due = 0  # when that is, the next tick finds out
            return promoted
        outcomes: Counter[str] = Counter()
        try:
            for some in promoting.drafts(self._connection, self.context, op, found):
                promoting.count(self.answer(ops.Put(op.tube, tuple(some))), outcomes)
        except PenstockError:
            promoting.refuse(self._connection)
            raise
        return Promoted(outcomes["new"], outcomes["existing"], outcomes["replaced"], outcomes["restarted"])

    def _on_tube(self, op: Any, build: Any, said: Said | None) -> Any:
        name = op.tube
        granted: list[Record] = []
        for attempt in range(AGAIN):
            try:
                if said is not None:
                    (call, rows), said = said, None
                    answer = self._read(call, rows)
                else:
                    tube = self._store.known(name, self._connection)
                    answer = self._call(self._built(build, op, tube), tube)
            except Stale:
                self._store.forget(name)
                if attempt == AGAIN - 1:
                    raise TubeNotFound(f"tube {name!r} is altered all the time") from None
            except Unusual:
                build = partial(build, slowly=True)
            except Again as more:
                granted += more.granted
                op = replace(op, n=op.n - len(more.granted))
            else:
                self.touched.add(name)
                if granted:
                    answer = [*granted, *(answer or ())]
                self._note(answer)
                return answer
        self.touched.add(name)
        return granted

    def _built(self, build: Any, op: Any, tube: Tube) -> Call:
        if tube.config.adopted is not None:
            return adopted.build(self.context, op, tube, build)
        call: Call = build(self.context, op, tube)
        return call

    def _call(self, call: Call, tube: Tube | None = None) -> Any:
        if tube is None or tube.config.adopted is None:
            rows = self.rows(call.sql, call.params)
        else:
            with adopted.guarded(self._connection, tube):
                rows = self.rows(call.sql, call.params)
        return self._read(call, rows)

    def _read(self, call: Call, rows: Iterable[Row]) -> Any:
        if call.raw:
            return call.read(rows)
        answer = split(rows)
        self._steps(answer.steps)
        return call.read(answer)

    def rows(self, sql: str, params: Sequence[Any]) -> Iterable[Row]:
        return self._connection.cursor(binary=True).execute(sql, params).fetchall()

    def _steps(self, steps: Sequence[Row]) -> None:
        for row in steps:
            config = self._store.config_of(row[TUBE])
            if config is not None:
                self.announced.append((Told(config), change(row)))

    def _note(self, answer: Any) -> None:
        """Remember when the first of these tasks is due."""
        for item in answer if isinstance(answer, list) else (answer,):
            task = item.record if isinstance(item, Placed) else item
            if isinstance(task, Record) and (what := rules.due(task)) is not None:
                self.next_due = what.at if self.next_due is None else min(self.next_due, what.at)

    def _shape(self, op: Any) -> Any:
        """An op that changes or lists what there is."""
        answer, steps = SHAPES[type(op)](self._connection, self._store, self.context, op)
        self._steps(steps)
        if not isinstance(op, ops.GetTube | ops.ListTubes | ops.ListLanes):
            name = op.tube if hasattr(op, "tube") else answer.name
            self._store.forget(name)
            self.touched.add(name)
        return answer

    def _statistics(self, op: ops.GetStatistics) -> Any:
        connection, store = self._connection, self._store
        if op.tube is None:
            found = tubes.listed(connection, store.schema)
        else:
            found = [store.known(op.tube, connection, fresh=True)]
        names = {tube.number: tube.config.name for tube in found}
        return self._call(calls.get_statistics(self.context, names, None if op.tube is None else found[0].number))
