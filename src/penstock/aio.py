"""The awaiting facade, made from queue.py by tools/generate.py. Do not edit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal, TypeVar

from penstock import calls, payload
from penstock.calls import DelayArgument
from penstock.engines.bridge import AsyncEngine, AsyncTransactor, open_async_engine
from penstock.engines.line import Producer, Taker, Watcher
from penstock.history import HistoryEvent
from penstock.model import duration, ops, rules, tube
from penstock.model.clock import Clock
from penstock.model.duration import Seconds
from penstock.model.errors import (
    LeaseLost,
    PenstockError,
    TaskFailed,
    TaskNotFound,
    TubeNotFound,
    UsageError,
    WaitTimeout,
)
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.session import Session, new_session, parse_uuid
from penstock.model.state import Event, Reason, State
from penstock.model.stats import Statistics
from penstock.model.task import Gone, OnConflict, Placed, Record, TaskId
from penstock.model.tube import Features, Kind, TubeConfig
from penstock.view import TaskView

R = TypeVar("R")
Errors = Literal["raise", "return"]


async def aconnect(
    url: str,
    durability: Literal["strict", "relaxed"] = "strict",
    session_ttl: Seconds | None = None,
    clock: Clock | None = None,
) -> AsyncQueue:
    """Open a queue by its URL: a file name, sqlite:///path, memory: or memory:name."""
    engine = await open_async_engine(url, clock, durability)
    session = new_session(duration.length(session_ttl, "session_ttl"))
    queue = AsyncQueue(engine, session)
    try:
        await queue._start()
    except BaseException:
        await engine.close()
        raise
    return queue


class AsyncQueue:
    """A place with tubes, and this process's session on it. Threads may share one."""

    def __init__(self, engine: AsyncEngine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self._kinds: dict[str, Kind] = {}
        self._makers: dict[str, Callable[[], TaskId]] = {}
        self._closed = False

    async def _start(self) -> None:
        if self._engine.writable:
            await self._engine.execute(ops.OpenSession(self._session))
            self._engine.keep(self._session)

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._engine.name}>"

    async def close(self) -> None:
        """Give back what this session holds and let go of the store. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._engine.lose(self._session)
        try:
            if self._engine.writable and self._engine.usable:
                await self._engine.dismiss()
                await self._engine.execute(ops.EndSession(self._session))
        finally:
            await self._engine.close()

    # -- tubes -------------------------------------------------------------------------------------

    async def create_tube(
        self,
        name: str,
        kind: str = "standard",
        *,
        if_not_exists: bool = False,
        temporary: bool = False,
        **options: Any,
    ) -> AsyncTube:
        """Make a tube. The reference lists its options; an option of a missing feature is refused."""
        maker = options.get("id")
        if callable(maker):
            options["id"] = "function"
        named = calls.kind_named(self._kinds, kind)
        config = tube.new_tube(name, named, temporary, options)
        found = await self._engine.execute(ops.CreateTube(config, if_not_exists, options))
        if callable(maker):
            self._makers[name] = maker
        return AsyncTube(self, found)

    async def tube(self, name: str) -> AsyncTube:
        """A tube that exists; TubeNotFound otherwise."""
        return AsyncTube(self, await self._engine.execute(ops.GetTube(tube.check_name(name))))

    async def tubes(self) -> list[AsyncTube]:
        """All tubes, by name; those of a kind with hooks appear once it is registered in this process."""
        found = await self._engine.execute(ops.ListTubes())
        return [AsyncTube(self, config) for config in found if not config.hooks or config.kind in self._kinds]

    async def adopt(
        self,
        name: str,
        *,
        table: str,
        fields: Mapping[str, str] | None = None,
        features: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncTube:
        """Make a table of your own a tube: it needs a primary key and a text column for the status.

        `fields` maps status, run_at, priority, lane, attempts to columns; `features` are those of the guide
        "Adopt a table". Dropping the tube leaves the table and its data as they are.
        """
        config = self._engine.adoption(tube.check_name(name), table, fields, features, options)
        found = await self._engine.execute(ops.AdoptTable(config))
        maker = (features or {}).get("id")
        if callable(maker):
            self._makers[name] = maker
        return AsyncTube(self, found)

    async def register_kind(self, name: str, features: Features | Kind | type[Kind] | Mapping[str, bool]) -> None:
        """Add a kind of tube: a set of features, or a Kind with hooks that run in this process."""
        self._kinds[name] = calls.new_kind(self._kinds, name, features)

    async def statistics(self) -> dict[str, Statistics]:
        """Counters of every tube, by name."""
        return await self._engine.execute(ops.GetStatistics())

    async def history(self, after: int = 0, limit: int = 1000, tube: str | None = None) -> list[HistoryEvent]:
        """Events of tubes with history=True, oldest first; pass the last `seq` as `after` for the next page."""
        rows = await self._engine.execute(ops.ReadHistory(tube, after, calls.check_count(limit, "limit")))
        return [HistoryEvent.of(row) for row in rows]

    # -- sessions, time, transactions --------------------------------------------------------------

    async def identify(self, uuid: object = None) -> str:
        """This session's uuid. Given the uuid of another living session: join it and leave one's own."""
        if uuid is not None:
            joined = await self._engine.execute(ops.Identify(parse_uuid(uuid), self._session))
            self._engine.lose(self._session)
            self._session = joined
            self._engine.keep(joined)
        return self._session.uuid

    async def configure(self, *, session_ttl: Seconds) -> None:
        """How long the session outlives a lost connection or process."""
        ttl = duration.length(session_ttl, "session_ttl")
        if ttl is None:
            raise UsageError("session_ttl must be seconds, got None")
        session = self._session._replace(ttl=ttl)
        await self._engine.execute(ops.KeepAlive(session))
        self._session = session
        self._engine.keep(session)

    async def state(self) -> str:
        """INIT, STARTUP, RUNNING, ENDING or WAITING (a store that can only be read)."""
        return await self._engine.execute(ops.GetState())

    async def tick(self) -> float | None:
        """Do what is due; answers the seconds until the next thing is, or None. Nobody has to call it."""
        moment = await self._engine.execute(ops.Tick())
        return None if moment is None else duration.seconds(max(0, moment - self._engine.clock.now()))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransactor]:
        """Several puts and acks that happen together or not at all."""
        async with self._engine.transaction() as transactor:
            yield transactor

    async def _run(self, op: ops.Op[R], transaction: object) -> R:
        if transaction is None:
            return await self._engine.execute(op)
        return await self._engine.join(transaction).execute(op)


class AsyncTube:
    """A named line of tasks."""

    def __init__(self, queue: AsyncQueue, config: TubeConfig) -> None:
        self._queue = queue
        self._engine = queue._engine
        self._config = config
        if config.hooks and config.kind not in queue._kinds:
            raise UsageError(f"kind {config.kind!r} is not known in this process; register_kind() it first")
        self._kind = queue._kinds.get(config.kind) or tube.KINDS.get(config.kind) or Kind()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of kind {self.kind!r}>"

    @property
    def name(self) -> str:
        """What create_tube called it."""
        return self._config.name

    @property
    def kind(self) -> str:
        """The kind it was created with, which fixed its features."""
        return self._config.kind

    @property
    def options(self) -> dict[str, Any]:
        """The tube's settings as they were when this object was made or altered; durations in seconds."""
        return self._config.shown()

    @property
    def cancelled(self) -> set[int]:
        """Tokens of tasks held here that were asked to stop."""
        return self._engine.cancelled

    @property
    def _session(self) -> Session:
        return self._queue._session

    # -- put ---------------------------------------------------------------------------------------

    async def put(
        self,
        data: Any,
        *,
        pri: int | None = None,
        ttl: Seconds | Literal["derived"] | None = None,
        ttr: Seconds | None = None,
        delay: DelayArgument | None = None,
        lane: str | None = None,
        key: str | None = None,
        on_conflict: OnConflict = "error",
        put_id: str | None = None,
        id: TaskId | None = None,
        max_attempts: int | None = None,
        keep: bool | Seconds | None = None,
        repeat: Seconds | None = None,
        timeout: Seconds | None = 0,
        transaction: object = None,
    ) -> AsyncTask:
        """Store a task. In a full tube it waits up to `timeout` seconds for room, then raises TubeFull."""
        if id is None and self._config.id == "function":
            id = self._make_id()
        draft = calls.put_draft(
            self._config, self._kind, data, pri, ttl, ttr, delay, lane, key, on_conflict, put_id, id,
            max_attempts, keep, repeat,
        )  # fmt: skip
        if timeout == 0 and transaction is None:
            placed = (await self._engine.execute(ops.Put(self._config.name, (draft,))))[0]
        else:
            placed = (await self._put((draft,), timeout, transaction))[0]
        if isinstance(placed, PenstockError):
            raise placed
        return AsyncTask(self, placed.record, placed.outcome)

    async def put_many(
        self,
        items: Iterable[Any],
        *,
        timeout: Seconds | None = 0,
        transaction: object = None,
        errors: Errors = "raise",
        **options: Any,
    ) -> list[AsyncTask]:
        """Store many tasks in one transaction, in order. Items are data, or Entry(data, pri=.., lane=..).

        Good items are stored even when others are refused; BatchError then has a task or an error for each.
        """
        calls.check_errors(errors)
        unknown = set(options) - set(calls.ENTRY_OPTIONS)
        if unknown:
            raise UsageError(f"unknown options of put_many: {', '.join(sorted(unknown))}")
        if self._config.id == "function":
            items = [calls.with_id(item, self._make_id) for item in items]
        drafts = calls.drafts(self._config, self._kind, items, options)
        good = tuple(draft for draft in drafts if not isinstance(draft, PenstockError))
        placed = calls.merged(drafts, await self._put(good, timeout, transaction))
        tasks = [p if isinstance(p, PenstockError) else AsyncTask(self, p.record, p.outcome) for p in placed]
        return calls.batch(tasks, errors, "put_many")

    async def _put(
        self, drafts: tuple[Any, ...], timeout: Seconds | None, transaction: object
    ) -> list[Placed | PenstockError]:
        op = ops.Put(self.name, drafts)
        if timeout == 0:
            return await self._queue._run(op, transaction)
        if transaction is not None:
            raise UsageError("a put inside a transaction cannot wait: leave timeout out")
        wait = duration.timeout(timeout)
        producer = Producer(op, calls.wait_until(self._engine.clock.now(), wait))
        answer: list[Placed | PenstockError] = await self._engine.wait(producer, calls.seconds(wait))
        return answer

    def _make_id(self) -> TaskId:
        maker = self._queue._makers.get(self.name)
        if maker is None:
            raise UsageError(
                f"tube {self.name!r} makes ids with a function; attach it in this process with "
                "create_tube(.., if_not_exists=True, id=function), or pass id="
            )
        return maker()

    # -- take --------------------------------------------------------------------------------------

    async def take(
        self,
        timeout: Seconds | None = 0,
        *,
        ttr: Seconds | None = None,
        lane: str | None = None,
        drain: bool = False,
    ) -> AsyncTask | None:
        """The next task, or None if there is none within `timeout` seconds (None waits for ever).

        With drain=True the answer is None as soon as nothing is ready, delayed or taken any more.
        """
        records = await self._take(1, timeout, ttr, lane, drain)
        return AsyncTask(self, records[0], None, True) if records else None

    async def take_many(
        self,
        n: int,
        timeout: Seconds | None = 0,
        *,
        ttr: Seconds | None = None,
        lane: str | None = None,
        drain: bool = False,
    ) -> list[AsyncTask]:
        """Up to n tasks: waits for the first and takes what is there."""
        records = await self._take(n, timeout, ttr, lane, drain)
        return [AsyncTask(self, record, None, True) for record in records or ()]

    async def _take(
        self, n: int, timeout: Seconds | None, ttr: Seconds | None, lane: str | None, drain: bool
    ) -> list[Record] | None:
        op = calls.take(self._config.name, n, self._queue._session, ttr, lane, drain)
        wait = 0 if timeout == 0 else duration.timeout(timeout)
        records = await self._engine.execute(op)
        if records == [] and wait != 0:
            return await self._wait_for_task(op, wait)
        return records

    async def _wait_for_task(self, op: ops.Take, wait: int | None) -> list[Record] | None:
        taker = Taker(op, None if wait is None else calls.wait_until(self._engine.clock.now(), wait))
        try:
            records: list[Record] | None = await self._engine.wait(taker, calls.seconds(wait))
        except KeyboardInterrupt:
            for record in taker.answer or ():
                await self._engine.execute(
                    ops.Release(op.tube, ops.Lease(record.id, record.token), op.session, refund=True)
                )
            raise
        return records

    # -- finishing, by id or task ------------------------------------------------------------------

    async def ack(
        self,
        id: TaskId,
        result: Any = None,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """Finish a task this session holds."""
        return AsyncTask(self, await self._ack(ops.Lease(calls.check_id(id)), result, keep, transaction, update, None))

    async def _ack(
        self,
        lease: ops.Lease,
        result: Any,
        keep: bool | Seconds | None,
        transaction: object,
        update: Mapping[str, Any] | None,
        held: Record | None,
    ) -> Record:
        item = calls.finish(lease, result, keep, update)
        op = ops.Ack(self._config.name, (item,), self._queue._session)
        answer = (await self._queue._run(op, transaction))[0]
        if isinstance(answer, PenstockError):
            raise answer
        if isinstance(answer, Gone):
            assert held is not None
            answer = rules.acked(held, answer.at, item.result)
        return self._finished(answer)

    async def ack_many(
        self,
        tasks: Sequence[AsyncTask | TaskId],
        *,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        errors: Errors = "raise",
    ) -> list[AsyncTask]:
        """Finish many tasks in one transaction: AsyncTask objects, or ids this session holds."""
        calls.check_errors(errors)
        views = [task if isinstance(task, AsyncTask) else None for task in tasks]
        for view in views:
            if view is not None and view._undo is not None:
                await view._recall(transaction)
        leases = [task._lease() if isinstance(task, AsyncTask) else ops.Lease(calls.check_id(task)) for task in tasks]
        items = tuple(calls.finish(lease, None, keep, None) for lease in leases)
        answers = await self._queue._run(ops.Ack(self.name, items, self._session), transaction)
        results: list[Any] = []
        for view, answer in zip(views, answers, strict=True):
            if isinstance(answer, PenstockError):
                results.append(view if view is not None and view._ended == "ack" else answer)
            elif view is None:
                assert not isinstance(answer, Gone)
                results.append(AsyncTask(self, self._finished(answer)))
            else:
                record = rules.acked(view._record, answer.at, None) if isinstance(answer, Gone) else answer
                results.append(view._end("ack", self._finished(record), transaction))
        return calls.batch(results, errors, "ack_many")

    async def _holds(self, record: Record, transaction: object) -> bool:
        """True if the lease of a record is there, as seen from a transaction while that is open."""
        try:
            self._engine.join(transaction)
        except UsageError:
            transaction = None
        try:
            found = await self._queue._run(ops.Peek(self.name, record.id), transaction)
        except (TaskNotFound, TubeNotFound):
            return False
        return found.token == record.token

    def _finished(self, record: Record) -> Record:
        if self._config.hooks:
            self._kind.on_finish(AsyncTask(self, record))
        return record

    async def release(
        self,
        id: TaskId,
        delay: DelayArgument | None = None,
        pri: int | None = None,
        ttl: Seconds | None = None,
        data: Any = ...,
        refund: bool = False,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """Give back a task this session holds, now or after a delay; it keeps its place."""
        return AsyncTask(
            self, await self._release(ops.Lease(calls.check_id(id)), delay, pri, ttl, data, refund, update)
        )

    async def _release(
        self,
        lease: ops.Lease,
        delay: DelayArgument | None,
        pri: int | None,
        ttl: Seconds | None,
        data: Any,
        refund: bool,
        update: Mapping[str, Any] | None,
    ) -> Record:
        op = calls.release(self._config, lease, self._session, delay, pri, ttl, data, refund, update)
        return self._finished(await self._engine.execute(op))

    async def bury(
        self, id: TaskId, error: str | BaseException | None = None, update: Mapping[str, Any] | None = None
    ) -> AsyncTask:
        """Set a task aside until kick, dig or plow: one that waits, or one this session holds."""
        return AsyncTask(self, await self._bury(ops.Lease(calls.check_id(id)), error, update))

    async def _bury(
        self, lease: ops.Lease, error: str | BaseException | None, update: Mapping[str, Any] | None
    ) -> Record:
        op = ops.Bury(self.name, lease, self._session, payload.error_text(error), update)
        return self._finished(await self._engine.execute(op))

    async def fail(
        self,
        id: TaskId,
        error: str | BaseException | None = None,
        delay: DelayArgument | None = None,
        abort: bool | str = False,
    ) -> AsyncTask:
        """An attempt of a task this session holds failed: it is tried again, or buried."""
        return AsyncTask(self, await self._fail(ops.Lease(calls.check_id(id)), error, delay, abort, None))

    async def _fail(
        self,
        lease: ops.Lease,
        error: str | BaseException | None,
        delay: DelayArgument | None,
        abort: bool | str,
        view: TaskView | None,
    ) -> Record:
        if delay is None and self._config.hooks:
            task = view or AsyncTask(self, await self._engine.execute(ops.Peek(self.name, lease.id)))
            delay = self._kind.retry_delay(task, task._record.failures + 1)
        text, reason = payload.error_text(error), calls.abort_reason(abort)
        op = ops.Fail(self.name, lease, self._session, text, duration.delay(delay), reason)
        return self._finished(await self._engine.execute(op))

    async def touch(self, id: TaskId, seconds: Seconds) -> AsyncTask:
        """Give a task that much more time: its deadline and its life. 0 only checks that it is held here."""
        return AsyncTask(self, await self._touch(ops.Lease(calls.check_id(id)), seconds))

    async def _touch(self, lease: ops.Lease, seconds: Seconds) -> Record:
        return await self._engine.execute(ops.Touch(self.name, lease, self._session, calls.touch_by(seconds)))

    # -- looking and moving ------------------------------------------------------------------------

    async def peek(self, id: TaskId) -> AsyncTask:
        """Look at a task."""
        return AsyncTask(self, await self._engine.execute(ops.Peek(self.name, calls.check_id(id))))

    async def kick(self, n: int = 1) -> int:
        """Make the first n buried tasks ready; answers how many."""
        return await self._engine.execute(ops.Kick(self.name, calls.check_count(n, "n", 0)))

    async def dig(
        self,
        id: TaskId,
        delay: DelayArgument | None = None,
        ttl: Seconds | None = None,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """Make one buried task ready, or delayed."""
        op = ops.Dig(self.name, calls.check_id(id), duration.delay(delay), duration.length(ttl, "ttl"), update)
        return AsyncTask(self, await self._engine.execute(op))

    async def plow(
        self,
        n: int | float | None = None,
        delay: DelayArgument | None = None,
        ttl: Seconds | None = None,
        update: Mapping[str, Any] | None = None,
    ) -> int:
        """Make all (or the first n) buried tasks ready; answers how many."""
        number = calls.plow_count(n)
        op = ops.Kick(self.name, number, duration.delay(delay), duration.length(ttl, "ttl"), update)
        return await self._engine.execute(op)

    async def delete(self, id: TaskId) -> AsyncTask:
        """Remove a task in any state, whoever holds it."""
        return AsyncTask(self, await self._engine.execute(ops.Delete(self.name, calls.check_id(id))))

    async def release_all(self) -> int:
        """Give back every taken task, whoever holds it; answers how many."""
        return await self._engine.execute(ops.ReleaseAll(self.name))

    async def truncate(self) -> int:
        """Remove all tasks; answers how many. Settings, ids and counts of calls go on."""
        return await self._engine.execute(ops.TruncateTube(self.name))

    async def drop(self, force: bool = False) -> None:
        """Remove the tube. TubeBusy while tasks are taken or takers wait, unless forced."""
        await self._engine.execute(ops.DropTube(self.name, force))
        self._engine.listen(self.name, None)

    async def tasks(
        self, state: State | str | None = None, limit: int = 100, after: TaskId | None = None
    ) -> list[AsyncTask]:
        """Tasks in the order they were put, a page at a time: pass the last id as `after` for the next."""
        start = None if after is None else calls.check_id(after)
        op = ops.ListTasks(self.name, calls.state(state), calls.check_count(limit, "limit"), start)
        return [AsyncTask(self, record) for record in await self._engine.execute(op)]

    async def statistics(self) -> Statistics:
        """Counters: s.tasks["ready"], s.calls["put"]. Costs the same whatever the backlog."""
        return (await self._engine.execute(ops.GetStatistics(self.name)))[self.name]

    async def on_task_change(
        self, callback: Callable[[AsyncTask, str], Any] | None = None
    ) -> Callable[[AsyncTask, str], Any] | None:
        """Call `callback(task, event)` after every change made by this process; None stops. Answers the one before."""
        if callback is not None and not callable(callback):
            raise UsageError(f"on_task_change takes a function or None, got {callback!r}")

        def announce(config: TubeConfig, record: Record, event: Event) -> None:
            assert callback is not None
            callback(AsyncTask(self, record), event.value)

        announce.callback = callback  # type: ignore[attr-defined]
        old = self._engine.listen(self.name, None if callback is None else announce)
        return getattr(old, "callback", None)

    async def pause(self) -> None:
        """Stop grants; everything else goes on."""
        self._config = await self._engine.execute(ops.PauseTube(self.name, True))

    async def resume(self) -> None:
        """Grant again."""
        self._config = await self._engine.execute(ops.PauseTube(self.name, False))

    async def alter(self, **options: Any) -> None:
        """Change options. Defaults of tasks count for later puts, the rest from now on."""
        self._config = await self._engine.execute(ops.AlterTube(self.name, options))

    # -- lanes -------------------------------------------------------------------------------------

    def lane(self, name: str) -> AsyncLane:
        """One lane, to give it limits of its own."""
        return AsyncLane(self, calls.lane_name(name))

    async def lanes(self, limit: int = 100, after: str | None = None) -> list[LaneInfo]:
        """Lanes that hold ready or taken tasks or have settings, by name, a page at a time."""
        return await self._engine.execute(ops.ListLanes(self.name, calls.check_count(limit, "limit"), after))

    # -- by hand -----------------------------------------------------------------------------------

    async def snatch(self, id: TaskId, delay: DelayArgument | None = None) -> AsyncTask:
        """Take a task away from whoever holds it; his calls get LeaseLost."""
        op = ops.Snatch(self.name, calls.check_id(id), duration.delay(delay))
        return AsyncTask(self, await self._engine.execute(op))

    async def switch(self, id: TaskId, state: State | str, delay: DelayArgument | None = None) -> AsyncTask:
        """Move a task that nobody holds to a state."""
        target = calls.state(state)
        if target is None:
            raise UsageError("switch needs the state to move to")
        op = ops.Switch(self.name, calls.check_id(id), target, duration.delay(delay))
        return AsyncTask(self, await self._engine.execute(op))

    async def restart(self, id: TaskId, delay: DelayArgument | None = None) -> AsyncTask:
        """Start a delayed, buried or kept task from the beginning."""
        op = ops.Restart(self.name, calls.check_id(id), duration.delay(delay))
        return AsyncTask(self, await self._engine.execute(op))

    async def cancel(self, id: TaskId | None = None, *, key: str | None = None) -> AsyncTask | None:
        """End a task nobody needs any more, by id or key; a running one is asked to stop."""
        if (id is None) == (key is None):
            raise UsageError("cancel needs an id or a key, one of them")
        text = None if key is None else tube.check_text(key, "key")
        if key is not None and text is None:
            return None
        op = ops.Cancel(self.name, None if id is None else calls.check_id(id), text)
        record = await self._engine.execute(op)
        return None if record is None else AsyncTask(self, record)

    async def add_retries(self, n: int) -> int:
        """Give tasks that ran out of attempts or time n attempts more; answers how many."""
        return await self._engine.execute(ops.AddRetries(self.name, calls.check_count(n, "n")))

    async def wait(self, id: TaskId, timeout: Seconds | None = None) -> AsyncTask:
        """Wait until a task is done or buried, whoever works on it. WaitTimeout if that takes too long."""
        wait = duration.timeout(timeout)
        until = calls.wait_until(self._engine.clock.now(), wait)
        watcher = Watcher(ops.Watch(self.name, calls.check_id(id), until), None if wait is None else until)
        record = await self._engine.wait(watcher, calls.seconds(wait))
        if record is None:
            raise WaitTimeout(f"task {id!r} has not ended within {timeout} seconds; it is {watcher.last.state}")
        return AsyncTask(self, record)

    async def result(self, id: TaskId, timeout: Seconds | None = None) -> Any:
        """Wait for a task and answer what ack() was given; TaskFailed if it did not end well."""
        try:
            task = await self.wait(id, timeout)
        except TaskNotFound as error:
            raise TaskFailed(f"{error}: it was removed, or had ended and was not kept", None) from error
        if task.reason != Reason.SUCCESS:
            raise TaskFailed(f"task {id!r} is {task.state}: {task.reason}; {task.error or 'no error text'}", task)
        return task.result


class AsyncLane:
    """A sub-queue of a tube, made on first use."""

    def __init__(self, tube: AsyncTube, name: str) -> None:
        self._tube = tube
        self.name = name

    async def configure(self, **options: Any) -> LaneLimits:
        """Set concurrency, rate (a second), burst or paused of this lane; None goes back to the tube's."""
        parsed = tube.parse_lane_options(options)
        return await self._tube._engine.execute(ops.ConfigureLane(self._tube.name, self.name, parsed))


class AsyncTask(TaskView):
    """A task as it was when the call answered. One that was taken can be finished, once.

    As a context manager it acks itself; an exception fails it and goes on; Ctrl-C gives it back.
    """

    __slots__ = ()
    _tube: AsyncTube

    def _lease(self) -> ops.Lease:
        return ops.Lease(self._record.id, self._held)

    def _end(self, verb: str, record: Record, transaction: object = None) -> AsyncTask:
        if self._held is not None:
            self._ended = verb
            self._undo = None if transaction is None else (transaction, self._record)
        self._renew(record)
        return self

    async def _recall(self, transaction: object = None) -> None:
        """What a transaction ended that was rolled back since is held as before."""
        assert self._undo is not None
        inside, before = self._undo
        if await self._tube._holds(before, inside if transaction is None else transaction):
            self._ended = self._undo = None
            self._renew(before)

    async def _was(self, verb: str, transaction: object = None) -> bool:
        """True if this very verb ended the lease before: it gives the same answer again."""
        if self._undo is not None:
            await self._recall(transaction)
        if self._ended is None or self._ended == verb:
            return self._ended == verb
        raise LeaseLost(f"task {self.id!r} was ended by {self._ended} already", "finished")

    async def ack(
        self,
        result: Any = None,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """The work is done. `result` is readable while the task is kept."""
        if await self._was("ack", transaction):
            return self
        record = await self._tube._ack(self._lease(), result, keep, transaction, update, self._record)
        return self._end("ack", record, transaction)

    async def release(
        self,
        delay: DelayArgument | None = None,
        pri: int | None = None,
        ttl: Seconds | None = None,
        data: Any = ...,
        refund: bool = False,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """Give it back; refund=True takes the attempt back too."""
        if await self._was("release"):
            return self
        record = await self._tube._release(self._lease(), delay, pri, ttl, data, refund, update)
        return self._end("release", record)

    async def bury(
        self, error: str | BaseException | None = None, update: Mapping[str, Any] | None = None
    ) -> AsyncTask:
        """Set it aside for a person to look at."""
        if await self._was("bury"):
            return self
        return self._end("bury", await self._tube._bury(self._lease(), error, update))

    async def fail(
        self,
        error: str | BaseException | None = None,
        delay: DelayArgument | None = None,
        abort: bool | str = False,
    ) -> AsyncTask:
        """The attempt failed; abort=True buries without another try."""
        if await self._was("fail"):
            return self
        return self._end("fail", await self._tube._fail(self._lease(), error, delay, abort, self))

    async def touch(self, seconds: Seconds) -> AsyncTask:
        """Ask for more time."""
        await self._was("touch")
        self._record = await self._tube._touch(self._lease(), seconds)
        return self

    async def __aenter__(self) -> AsyncTask:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._undo is not None:
            await self._recall()
        if self._ended is not None:
            return
        if error is None:
            await self.ack()
            return
        try:
            if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
                await self.release(refund=True)
            else:
                await self.fail(error)
        except PenstockError as lost:
            error.add_note(f"penstock: the task could not be given back: {lost}")
