"""Made from blocking/tube.py by tools/generate.py. Do not edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock import calls, finishing, payload
from penstock.aio.task import AsyncTask
from penstock.calls import DelayArgument
from penstock.engines.bridge import AsyncTransactor
from penstock.engines.line import Producer, Taker, Watcher
from penstock.engines.store import Callback
from penstock.model import duration, ops, rules, tube
from penstock.model.duration import Seconds
from penstock.model.errors import (
    BatchError,
    PenstockError,
    TaskFailed,
    TaskNotFound,
    TubeFull,
    TubeNotFound,
    UsageError,
    WaitTimeout,
)
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.session import Session
from penstock.model.state import Event, Reason, State
from penstock.model.stats import Statistics
from penstock.model.task import Gone, OnConflict, Placed, Record, TaskId
from penstock.model.tube import Kind, TubeConfig, check_count
from penstock.view import TaskView

if TYPE_CHECKING:
    from penstock.aio.queue import AsyncQueue

Errors = Literal["raise", "return"]


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
        """Store a task. In a full tube it waits up to `timeout` seconds for room, then raises TubeFull.

        pri: lower comes first
        ttl: seconds it may live, from when it is first ready
        ttr: seconds one run may last
        delay: seconds, or a date, before which it is not ready
        lane: the sub-queue it stands in
        key: text that one live task of the tube may have
        on_conflict: when a live task has the key: error, ignore, replace or restart
        put_id: a put repeated with it answers the task that is stored
        id: the task's, where the tube's ids are the caller's
        max_attempts: how many times it is taken before a failure buries it
        keep: True or seconds: how long it stays when it is done
        repeat: seconds after an ack until it is ready again
        timeout: seconds to wait for room; None is for ever
        transaction: what q.transaction() gave
        """
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

    @overload
    async def put_many(
        self,
        items: Iterable[Any],
        *,
        timeout: Seconds | None = 0,
        transaction: object = None,
        errors: Literal["raise"] = "raise",
        **options: Any,
    ) -> list[AsyncTask]: ...

    @overload
    async def put_many(
        self,
        items: Iterable[Any],
        *,
        timeout: Seconds | None = 0,
        transaction: object = None,
        errors: Literal["return"],
        **options: Any,
    ) -> list[AsyncTask | PenstockError]: ...

    async def put_many(
        self,
        items: Iterable[Any],
        *,
        timeout: Seconds | None = 0,
        transaction: object = None,
        errors: Errors = "raise",
        **options: Any,
    ) -> list[AsyncTask] | list[AsyncTask | PenstockError]:
        """Store many tasks in one transaction, in order. Items are data, or Entry(data, pri=.., lane=..).

        Good items are stored even when others are refused; BatchError then has a task or an error for each.
        """
        calls.check_errors(errors)
        unknown = set(options) - set(calls.ENTRY_OPTIONS)
        if unknown:
            known = ", ".join(calls.ENTRY_OPTIONS)
            raise UsageError(f"unknown options of put_many: {', '.join(sorted(unknown))}; there are {known}")
        if self._config.id == "function":
            items = [calls.with_id(item, self._make_id) for item in items]
        drafts = calls.drafts(self._config, self._kind, items, options)
        good = tuple(draft for draft in drafts if not isinstance(draft, PenstockError))
        placed = calls.merged(drafts, await self._put(good, timeout, transaction))
        tasks = [p if isinstance(p, PenstockError) else AsyncTask(self, p.record, p.outcome) for p in placed]
        return calls.batch(tasks, errors, "put_many")

    async def load(
        self,
        items: Iterable[Any],
        *,
        chunk: int = 10_000,
        progress: Callable[[int], object] | None = None,
        **options: Any,
    ) -> int:
        """Store very many tasks, each chunk in a transaction of its own; answers how many, not the tasks.

        Items and options are those of put_many. `progress` is told after each chunk how many are stored. Items that
        are refused do not hold up the others; BatchError at the end has their errors.
        """
        check_count(chunk, "chunk")
        rest = iter(items)
        stored, refused = 0, list[PenstockError]()
        while part := list(islice(rest, min(chunk, calls.MAX_BATCH))):
            if self._config.id == "function":
                part = [calls.with_id(item, self._make_id) for item in part]
            op = calls.load(self._config, part, options)
            if op is not None:
                errors = await self._engine.execute(op)
            else:
                drafts = calls.drafts(self._config, self._kind, part, options)
                good = tuple(draft for draft in drafts if not isinstance(draft, PenstockError))
                placed = calls.merged(drafts, await self._put(good, 0, None))
                errors = [answer for answer in placed if isinstance(answer, PenstockError)]
            stored += len(part) - len(errors)
            refused.extend(errors)
            if progress is not None:
                progress(stored)
        if refused:
            raise BatchError(f"{len(refused)} items of load were refused, first: {refused[0]}", refused)
        return stored

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
        answers: list[Placed | PenstockError] = await self._engine.wait(producer, calls.seconds(wait))
        closed = self._queue._closed_meanwhile()
        return [closed if closed and isinstance(answer, TubeFull) else answer for answer in answers]

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
        records: list[Record] | None = await self._engine.wait(taker, calls.seconds(wait))
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
        record = await self._ack(ops.Lease(calls.check_id(id)), result, keep, transaction, update, None)
        return self._ended(record, transaction)

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
        return answer

    @overload
    async def ack_many(
        self,
        tasks: Sequence[AsyncTask | TaskId],
        *,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        errors: Literal["raise"] = "raise",
    ) -> list[AsyncTask]: ...

    @overload
    async def ack_many(
        self,
        tasks: Sequence[AsyncTask | TaskId],
        *,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        errors: Literal["return"],
    ) -> list[AsyncTask | PenstockError]: ...

    async def ack_many(
        self,
        tasks: Sequence[AsyncTask | TaskId],
        *,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        errors: Errors = "raise",
    ) -> list[AsyncTask] | list[AsyncTask | PenstockError]:
        """Finish many tasks in one transaction: AsyncTask objects, or ids this session holds."""
        calls.check_errors(errors)
        views = [task if isinstance(task, AsyncTask) else None for task in tasks]
        for view in views:
            if view is not None and view._undo is not None:
                await view._recall(transaction)
        leases = [task._lease() if isinstance(task, AsyncTask) else ops.Lease(calls.check_id(task)) for task in tasks]
        alike = calls.finish(ops.Lease(0), None, keep, None)[1:]
        items = tuple(ops.Finish(lease, *alike) for lease in leases)
        answers = await self._queue._run(ops.Ack(self.name, items, self._session), transaction)
        results: list[Any] = []
        for view, answer in zip(views, answers, strict=True):
            if isinstance(answer, PenstockError):
                results.append(view if view is not None and view._ended == "ack" else answer)
            elif view is None:
                assert not isinstance(answer, Gone)
                results.append(self._ended(answer, transaction))
            else:
                record = rules.acked(view._record, answer.at, None) if isinstance(answer, Gone) else answer
                results.append(view._end("ack", record, transaction))
        return calls.batch(results, errors, "ack_many")

    async def _holds(self, record: Record, transaction: object) -> bool:
        """True if the lease of a record is there, as seen from a transaction while that is open."""
        try:
            if not self._engine.join(transaction).begun:
                transaction = None
        except UsageError:
            transaction = None
        try:
            found = await self._queue._run(ops.Peek(self.name, record.id), transaction)
        except (TaskNotFound, TubeNotFound):
            return False
        return found.token == record.token

    def _ended(self, record: Record, transaction: object = None) -> AsyncTask:
        self._finished(record, transaction)
        return AsyncTask(self, record)

    def _finished(self, record: Record, transaction: object) -> None:
        """Tell the hook of the kind. When a connection of the caller's own commits, nobody knows."""
        if not self._config.hooks or record.state not in (State.DONE, State.BURIED):
            return
        if transaction is None:
            finishing.tell(self._kind, AsyncTask(self, record))
        elif isinstance(transaction, AsyncTransactor):
            finishing.tell_later(transaction, self._kind, AsyncTask(self, record))

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
        return self._ended(await self._release(ops.Lease(calls.check_id(id)), delay, pri, ttl, data, refund, update))

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
        return await self._engine.execute(op)

    async def bury(
        self, id: TaskId, error: str | BaseException | None = None, update: Mapping[str, Any] | None = None
    ) -> AsyncTask:
        """Set a task aside until kick, dig or plow: one that waits, or one this session holds."""
        return self._ended(await self._bury(ops.Lease(calls.check_id(id)), error, update))

    async def _bury(
        self, lease: ops.Lease, error: str | BaseException | None, update: Mapping[str, Any] | None
    ) -> Record:
        return await self._engine.execute(ops.Bury(self.name, lease, self._session, payload.error_text(error), update))

    async def fail(
        self,
        id: TaskId,
        error: str | BaseException | None = None,
        delay: DelayArgument | None = None,
        abort: bool | str = False,
    ) -> AsyncTask:
        """An attempt of a task this session holds failed: it is tried again, or buried."""
        return self._ended(await self._fail(ops.Lease(calls.check_id(id)), error, delay, abort, None))

    async def _fail(
        self,
        lease: ops.Lease,
        error: str | BaseException | None,
        delay: DelayArgument | None,
        abort: bool | str,
        view: TaskView | None,
    ) -> Record:
        wait = duration.delay(delay)
        if wait is None and self._config.hooks and not abort:
            task = view or AsyncTask(self, await self._engine.execute(ops.Peek(self.name, lease.id)))
            wait = calls.hook_delay(self.kind, self._kind.retry_delay(task, task._record.failures + 1))
        text, reason = payload.error_text(error), calls.abort_reason(abort)
        return await self._engine.execute(ops.Fail(self.name, lease, self._session, text, wait, reason))

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
        return await self._engine.execute(ops.Kick(self.name, tube.check_count(n, "n", 0)))

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
        self._listen(None)

    async def tasks(
        self, state: State | str | None = None, limit: int = 100, after: TaskId | None = None
    ) -> list[AsyncTask]:
        """Tasks in the order they were put, a page at a time: pass the last id as `after` for the next."""
        start = None if after is None else calls.check_id(after)
        op = ops.ListTasks(self.name, calls.state(state), tube.check_count(limit, "limit"), start)
        return [AsyncTask(self, record) for record in await self._engine.execute(op)]

    async def statistics(self) -> Statistics:
        """Counters: s.tasks["ready"], s.calls["put"]. Costs the same whatever the backlog."""
        return (await self._engine.execute(ops.GetStatistics(self.name)))[self.name]

    async def on_task_change(
        self, callback: Callable[[AsyncTask, str], Any] | None = None
    ) -> Callable[[AsyncTask, str], Any] | None:
        """Call `callback(task, event)` after every change made by this process; None stops. Answers the one before.

        The awaiting twin calls it in its event loop, where it must not block but may be an `async def`.
        """
        if callback is not None and not callable(callback):
            raise UsageError(f"on_task_change takes a function or None, got {callback!r}")

        def announce(config: TubeConfig, record: Record, event: Event) -> Any:
            assert callback is not None
            return callback(AsyncTask(self, record), event.value)

        announce.callback, announce.queue = callback, self._queue  # type: ignore[attr-defined]
        return getattr(self._listen(None if callback is None else announce), "callback", None)

    def _listen(self, announce: Callback | None) -> Callback | None:
        """Set the listener of the tube; each queue knows where the listener is its own."""
        old = self._engine.listen(self.name, announce)
        if old is not None:
            old.queue._listening.discard(self.name)  # type: ignore[attr-defined]
        if announce is not None:
            self._queue._listening.add(self.name)
        return old

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
        start = None if after is None else calls.lane_name(after, "after")
        return await self._engine.execute(ops.ListLanes(self.name, tube.check_count(limit, "limit"), start))

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
        return await self._engine.execute(ops.AddRetries(self.name, tube.check_count(n, "n")))

    async def wait(self, id: TaskId, timeout: Seconds | None = None) -> AsyncTask:
        """Wait until a task is done or buried, whoever works on it. WaitTimeout if that takes too long."""
        wait = duration.timeout(timeout)
        until = calls.wait_until(self._engine.clock.now(), wait)
        watcher = Watcher(ops.Watch(self.name, calls.check_id(id), until), None if wait is None else until)
        record = await self._engine.wait(watcher, calls.seconds(wait))
        if record is None:
            if closed := self._queue._closed_meanwhile():
                raise closed
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._tube.name!r}>"

    async def configure(self, **options: Any) -> LaneLimits:
        """Set concurrency, rate (a second), burst or paused of this lane; None goes back to the tube's."""
        parsed = tube.parse_lane_options(options)
        return await self._tube._engine.execute(ops.ConfigureLane(self._tube.name, self.name, parsed))
