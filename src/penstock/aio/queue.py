"""Made from blocking/queue.py by tools/generate.py. Do not edit."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Literal, TypeVar

from penstock import calls, finishing, handlers, schedules
from penstock.aio.handler import AsyncHandler
from penstock.aio.tube import AsyncTube
from penstock.engines.bridge import AsyncEngine, AsyncTransactor, open_async_engine
from penstock.handlers import UNSET, P
from penstock.history import HistoryEvent
from penstock.model import duration, ops, tube
from penstock.model.clock import Clock
from penstock.model.duration import Seconds
from penstock.model.errors import (
    AccessDenied,
    DuplicateKey,
    EngineUnavailable,
    NotTaken,
    PenstockError,
    TaskNotFound,
    TubeExists,
    TubeNotFound,
)
from penstock.model.retry import RetryArgument
from penstock.model.session import Session, check_ttl, new_session, parse_uuid
from penstock.model.state import State
from penstock.model.stats import Statistics
from penstock.model.task import TaskId
from penstock.model.tube import Features, Kind, TubeConfig
from penstock.schedules import SCHEDULES, Missed, Schedule

R = TypeVar("R")


async def aconnect(
    url: str | os.PathLike[str],
    durability: Literal["strict", "relaxed"] = "strict",
    session_ttl: Seconds | None = None,
    clock: Clock | None = None,
) -> AsyncQueue:
    """Open a queue by its URL: a file name, sqlite:///path, postgresql://user@host/database, memory: or memory:name."""
    session = new_session(None if session_ttl is None else check_ttl(session_ttl))
    engine = await open_async_engine(url, clock, durability)
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
        self._listening: set[str] = set()
        self._closed = False
        self.handlers = handlers.Registry()
        """The handlers defined on this queue, by tube."""

    async def _start(self) -> None:
        if self._engine.writable:
            await self._engine.execute(ops.OpenSession(self._session))
        self._engine.keep(self._session)

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except PenstockError as failure:
            if error is None:
                raise
            error.add_note(f"penstock: the queue could not be closed: {failure}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._engine.name}>"

    async def close(self) -> None:
        """Give back what this session holds and let go of the store. Closing twice does nothing."""
        if self._closed:
            return
        self._engine.check_owner()
        self._closed = True
        self._engine.lose(self._session)
        try:
            if self._engine.writable and self._engine.usable:
                await self._engine.dismiss()
                await self._engine.execute(ops.EndSession(self._session))
        finally:
            for name in self._listening:
                self._engine.listen(name, None)
            await self._engine.close()

    def _closed_meanwhile(self) -> EngineUnavailable | None:
        """Why a call that has waited got nothing, if that is because nobody serves it any more."""
        if not self._closed and self._engine.usable:
            return None
        return EngineUnavailable(
            f"{self._engine.name} was closed while this call waited; what it waited for is not done"
        )

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
        """Make a tube. An option of a feature that its kind lacks is refused.

        if_not_exists: find the tube that is there; UsageError if it differs
        temporary: not synced to disk, empty at the next run
        ttl, ttr, pri, max_attempts: of tasks put without their own
        capacity: how many tasks it holds
        retry: seconds to wait after a failure, a list of them, or Exponential(..)
        keep, keep_failed: True or seconds: how long done, and expired or cancelled, tasks stay
        concurrency: how many of its tasks may be taken at once
        lane_concurrency: how many of a lane
        lane_rate, lane_burst: how many of a lane a second, and at once after idling
        lane_order: skip or strict: whether delayed and buried tasks hold their lane
        lane_pick: turns or order: how the next of the open lanes is chosen
        payload, max_payload: json or bytes; how many bytes of data a task may have
        history, history_data: write an event for every change; with the data
        id: auto, time64, uuid, required, or a function that makes ids
        """
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
        maker = (features or {}).get("id")
        if callable(maker):
            features = {**(features or {}), "id": "function"}
        asked = tube.Adoption(tube.check_name(name), table, fields, features, options)
        found = await self._engine.execute(ops.AdoptTable(asked))
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
        rows = await self._engine.execute(calls.history(tube, after, limit))
        return [HistoryEvent.of(row) for row in rows]

    async def forget_history(self, upto: int) -> int:
        """Remove events up to and including this seq; answers how many. Nothing else ever removes them."""
        return await self._engine.execute(ops.ForgetHistory(tube.check_count(upto, "upto", 0)))

    # -- handlers and schedules --------------------------------------------------------------------

    def handler(
        self,
        tube: str,
        *,
        max_attempts: int | None = UNSET,
        attempt_limit: Seconds | None = UNSET,
        retry: RetryArgument = UNSET,
        ttl: Seconds | Literal["derived"] | None = UNSET,
        concurrency: int | None = UNSET,
        keep: bool | Seconds = UNSET,
        result: bool | None = None,
        process: bool = False,
        kind: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], AsyncHandler[P, R]]:
        """Make a function the handler of a tube: a worker calls it with the data of every task.

        Returning acks the task; raising fails it, and it is tried again; Abort, Bury and Release end it otherwise.
        Async functions run in the worker's loop, others in threads. A parameter called `run` gets the Run.

        max_attempts: how many times a task is tried; 25 if neither this nor the tube says
        attempt_limit: seconds one attempt may last, the tube's ttr; 3600 if neither says
        retry: seconds to wait after a failure, a list of them, or Exponential(..)
        ttl: seconds a task may live, or "derived"
        concurrency: how many of the tube's tasks may run at once, in all processes together
        keep, result: how long done tasks stay; whether what the function returns is stored (with keep it is)
        process: run in a process of its own, for what keeps a core busy
        kind, options: of the tube, as for create_tube
        """
        given = {
            "max_attempts": max_attempts,
            "attempt_limit": attempt_limit,
            "retry": retry,
            "ttl": ttl,
            "concurrency": concurrency,
            "keep": keep,
            **options,
        }

        handlers.check_tube(tube)

        def define(function: Callable[P, R]) -> AsyncHandler[P, R]:
            made = AsyncHandler(self, tube, function, kind=kind, options=given, process=process, result=result)
            self.handlers.add(made)
            return made

        return define

    def periodic(
        self,
        tube: str,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        tz: str = "UTC",
        missed: Missed = "coalesce",
        data: Any = None,
        put: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], AsyncHandler[P, R]]:
        """Make a function the handler of a tube, and put a task for it again and again; workers see to that.

        cron, every, tz, missed, data: as for schedule(); the schedule has the tube's name
        put: options of the tasks
        options: of the handler
        """
        asked = schedules.new_schedule(tube, tube, None, cron, every, tz, missed, put or {})
        define = self.handler(tube, **options)

        def also(function: Callable[P, R]) -> AsyncHandler[P, R]:
            whole = asked._replace(data=handlers.periodic_data(function, data))
            made = define(function)
            known = self.handlers.schedules
            known[:] = [*(one for one in known if one.name != whole.name), whole]
            return made

        return also

    def middleware(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let an async function run around every handler: it gets the run and a function to go on with."""
        self.handlers.middleware.append(calls.middleware(function))
        return function

    async def schedule(
        self,
        name: str,
        tube: str,
        data: Any = None,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        tz: str = "UTC",
        missed: Missed = "coalesce",
        **options: Any,
    ) -> Schedule:
        """Put a task into a tube again and again; a schedule of that name that differs is replaced.

        Whichever worker comes first puts the task, once a fire over all processes.

        cron: "minute hour day month weekday", in the time zone tz; a time that a clock change skips comes when it is
            over, one that it repeats comes once, unless the hour is *
        every: seconds from one fire to the next, instead of cron
        missed: what becomes of fires while no worker ran: coalesce puts one task, skip none, all every one
        options: of the tasks, as for put; key= with on_conflict="ignore" puts none while the last one lives
        """
        asked = schedules.new_schedule(name, tube, data, cron, every, tz, missed, options)
        return await self._store_schedule(asked)

    async def _store_schedule(self, asked: Schedule) -> Schedule:
        tube = await self.create_tube(SCHEDULES, if_not_exists=True)
        made = schedules.first(asked, self._engine.clock.now())
        while True:
            task = await tube.put(
                made.to_data(), delay=made.next_at, key=made.name, pri=made.next, on_conflict="ignore"
            )
            found = Schedule.from_data(task.data)
            ends = task.cancel_asked or task.state == State.BURIED
            if task.outcome != "existing" or (found.same_as(made) and not ends):
                return found
            try:
                await tube.put(made.to_data(), delay=made.next_at, key=made.name, pri=made.next, on_conflict="replace")
                return made
            except DuplicateKey:  # it is being fired: what comes of that does not count any more
                with suppress(NotTaken, TaskNotFound):
                    await tube.snatch(task.id)

    async def schedules(self) -> list[Schedule]:
        """All schedules, in the order they were made."""
        found = list[Schedule]()
        try:
            tube = await self.tube(SCHEDULES)
        except TubeNotFound:
            return found
        last: TaskId | None = None
        while page := await tube.tasks(limit=1000, after=last):
            found += [Schedule.from_data(task.data) for task in page]
            last = page[-1].id
        return found

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; answers whether there was one. Tasks that it has put stay."""
        try:
            tube = await self.tube(SCHEDULES)
        except TubeNotFound:
            return False
        task = await tube.cancel(key=name)
        if task is not None and task.state == State.TAKEN:  # it is being fired, and not any more
            with suppress(NotTaken, TaskNotFound):
                await tube.snatch(task.id)
        return task is not None

    async def _tube_of(self, definition: handlers.Definition[Any, Any], alter: bool = False) -> AsyncTube:
        """The tube of a handler, made if it does not exist, and altered to what the handler asks for."""
        name = definition.tube_name
        try:
            return await self._fitted(await self._engine.execute(ops.GetTube(name)), definition, alter)
        except TubeNotFound:
            kind = calls.kind_named(self._kinds, definition.kind or "standard")
        try:
            made = await self.create_tube(name, kind.name, **definition.first_options(kind))
        except TubeExists:  # another process was faster
            return await self._fitted(await self._engine.execute(ops.GetTube(name)), definition, alter)
        handlers.log.info("tube %r was made for %r", name, definition)
        return made

    async def _fitted(self, config: TubeConfig, definition: handlers.Definition[Any, Any], alter: bool) -> AsyncTube:
        maker = definition.options.get("id")
        if callable(maker):
            self._makers[config.name] = maker
        changes = definition.changes(config) if alter else {}
        if changes:
            try:
                config = await self._engine.execute(ops.AlterTube(config.name, changes))
            except AccessDenied as error:
                raise handlers.denied(error, changes) from None
            handlers.log.info("tube %r was altered for %r: %s", config.name, definition, changes)
        return AsyncTube(self, config)

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
        session = self._session._replace(ttl=check_ttl(session_ttl))
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
        finishing.committed(transactor)

    async def _run(self, op: ops.Op[R], transaction: object) -> R:
        if transaction is None:
            return await self._engine.execute(op)
        return await self._engine.join(transaction).execute(op)
