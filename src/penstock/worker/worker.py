"""The worker: takes tasks and calls their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from penstock.aio import AsyncQueue
from penstock.blocking import Queue, Tube
from penstock.handlers import Registry
from penstock.model.duration import SECOND, Seconds, length
from penstock.model.errors import EngineUnavailable, NotWritable, PenstockError, TubeNotFound, UsageError, shown
from penstock.model.session import Session, new_session
from penstock.model.tube import check_count
from penstock.schedules import SCHEDULES
from penstock.worker.app import App
from penstock.worker.emptiness import is_empty
from penstock.worker.errand import answer, errand, soon
from penstock.worker.fetch import Fetcher
from penstock.worker.lines import Line
from penstock.worker.processes import refuse_inside
from penstock.worker.schedule import APART, Scheduler
from penstock.worker.signals import Signals, StuckLoop
from penstock.worker.slots import LAST_WORDS, Slots
from penstock.worker.tally import Hooks, Tally

R = TypeVar("R")
log = logging.getLogger("penstock.worker")
MOST_AHEAD = 8
"""Tasks a slot that are fetched ahead at most."""
EMPTY_LOOK, RARE_LOOK = 0.05, 0.5
"""Seconds between two looks whether anything is left to do, at first and in the end."""


class Worker:
    """Runs the handlers of a queue: async functions in its loop, others in threads or processes.

    concurrency: how many handlers run at once in this process
    tubes: which tubes to take from, or their weights; all that have handlers if left out
    prefetch: how many tasks to fetch ahead at most; few are while handlers take long
    grace: seconds that running handlers have when the worker is told to stop
    processes: how many processes handlers with process=True have; one a core if left out
    hooks: told about every task, see penstock.worker.Hooks
    name: how it is called in metrics

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> @q.handler("squares", keep=True)
    ... def square(n: int) -> int:
    ...     return n * n
    >>> task = square.put(4)
    >>> penstock.Worker(q).run(until_empty=True).ok
    1
    >>> q.tube("squares").result(task.id)
    16
    """

    def __init__(
        self,
        queue: Queue | AsyncQueue,
        *,
        concurrency: int = 10,
        tubes: Iterable[str] | Mapping[str, float] | None = None,
        prefetch: int | None = None,
        grace: Seconds = 30,
        processes: int | None = None,
        hooks: Hooks | None = None,
        name: str = "worker",
    ) -> None:
        self._app: Any = _checked_queue(queue)
        self.name = _checked_name(name)
        self.concurrency = check_count(concurrency, "concurrency")
        self.grace = (length(grace, "grace") or 0) / SECOND
        self.tally = Tally()
        self._weights = _weights(tubes)
        self._most_ahead = MOST_AHEAD * concurrency if prefetch is None else check_count(prefetch, "prefetch", 0)
        self._processes = None if processes is None else check_count(processes, "processes")
        self._hooks = _checked_hooks(hooks)
        self.abandoned = 0
        """How many handlers still ran when the worker had stopped; a process need not wait for them."""
        self._told_to_stop = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._slots: Slots | None = None
        self._queue: Queue | None = None
        self.session: Session | None = None
        """Whose leases its tasks are; one of its own if left out."""
        self.app: App | None = None
        """Where the handlers come from; SIGHUP loads it again."""
        self.on_start: Callable[[], None] | None = None
        """Called when it listens to signals and takes tasks."""
        self.cut_short: str | None = None
        """The signal that stopped it without waiting for what ran."""
        self._reloading: asyncio.Task[None] | None = None
        self._reload_again = False

    # -- life --------------------------------------------------------------------------------------

    def run(self, *, until_empty: bool = False, horizon: Seconds | None = None, signals: bool = True) -> Tally:
        """Work until stop() is called, SIGTERM or SIGINT comes, or, with until_empty, nothing is left to do.

        horizon: with until_empty, tasks that are delayed by more than so many seconds are not waited for
        signals: listen to SIGTERM, SIGINT (stop; the second time at once) and SIGHUP (reload)

        >>> import penstock
        >>> penstock.Worker(penstock.connect("memory:"), tubes=[]).run(until_empty=True).ok
        0
        """
        try:
            return asyncio.run(self.arun(until_empty=until_empty, horizon=horizon, signals=signals))
        except StuckLoop as stuck:
            log.error("a handler kept the loop busy and was interrupted: %s", stuck)
            self.cut_short = str(stuck).partition(":")[0]
            return self.tally

    async def arun(self, *, until_empty: bool = False, horizon: Seconds | None = None, signals: bool = False) -> Tally:
        """The same inside a running event loop. Cancelling it is stop(), and the second time stop(now=True).

        >>> import asyncio, penstock
        >>> async def main():
        ...     async with await penstock.aconnect("memory:") as q:
        ...         return await penstock.Worker(q, tubes=[]).arun(until_empty=True)
        >>> asyncio.run(main()).ok
        0
        """
        refuse_inside()
        reach = None if horizon is None else length(horizon, "horizon")
        if self._loop is not None:
            raise UsageError(f"worker {self.name!r} runs already; make another one to run two")
        self._loop = loop = asyncio.get_running_loop()
        self._stopping, self._hurried = asyncio.Event(), asyncio.Event()
        self._note_stop()
        living = loop.create_task(self._live(until_empty, reach, signals), name="penstock worker")
        cancelled = False
        try:
            while not living.done():
                try:
                    await asyncio.shield(living)
                except asyncio.CancelledError:
                    if not living.done():
                        cancelled = True
                        self.stop()
            living.result()
        finally:
            self._loop, self._told_to_stop = None, 0
        if cancelled:
            raise asyncio.CancelledError
        return self.tally

    def stop(self, now: bool = False) -> None:
        """Stop taking, finish what runs, give back the rest; now, or the second time, without waiting for what runs.

        >>> import penstock
        >>> penstock.Worker(penstock.connect("memory:"), tubes=[]).stop()
        """
        self._told_to_stop += 2 if now else 1
        if (loop := self._loop) is not None:
            soon(loop, self._note_stop)

    def _note_stop(self) -> None:
        if self._told_to_stop:
            self._stopping.set()
        if self._told_to_stop > 1:
            self._hurried.set()
            if self._slots is not None:
                self._slots.hurry()

    def _signalled(self, name: str) -> None:
        running = len(self._slots.running) if self._slots else 0
        if self._told_to_stop:
            self.cut_short = name
            log.warning("%s again: stopping at once, giving back %d running tasks", name, running)
        else:
            log.info("%s: finishing %d running tasks within %g s", name, running, self.grace)
        self.stop()

    async def _live(self, until_empty: bool, horizon: int | None, signals: bool) -> None:
        heard = Signals(self._signalled, self._hang_up) if signals else None
        with contextlib.nullcontext() if heard is None else heard.heard_by(asyncio.get_running_loop()):
            queue = self._queue = await self._unhurried(errand(_twin, self._app, self.session))
            if queue is None:
                return
            try:
                await self._work(queue, until_empty, horizon)
            finally:
                self._queue = None
                self._hurried.set()  # a store that does not answer has had its time
                await self._unhurried(errand(_close, queue))

    async def _unhurried(self, future: asyncio.Future[R]) -> R | None:
        """What comes of a call to the store; None if somebody is in a hurry and the store does not answer."""
        hurried: asyncio.Future[Any] = asyncio.ensure_future(self._hurried.wait())
        either: list[asyncio.Future[Any]] = [future, hurried]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                await asyncio.wait([future], timeout=LAST_WORDS)
        finally:
            hurried.cancel()
        if future.done():
            return future.result()
        future.cancel()
        log.error("the store does not answer; what this worker holds comes back when its session ends")
        return None

    async def _work(self, queue: Queue, until_empty: bool, horizon: int | None) -> None:
        loop = asyncio.get_running_loop()
        slots = Slots(self.name, self.concurrency, self._most_ahead, self._processes, self._hooks, self.tally)
        slots.fetcher = fetcher = Fetcher(
            queue,
            lambda tasks, began, first: soon(loop, slots.arrived, tasks, began, first),
            lambda task: soon(loop, slots.lost, task),
        )
        fetcher.slots, fetcher.processes = self.concurrency, 0
        slots.buries_unknown = set(self._weights or ()) - {SCHEDULES}
        self._slots = slots
        if not until_empty or SCHEDULES in (self._weights or ()):
            slots.extra[SCHEDULES] = Scheduler(queue).handler
        await self._unhurried(errand(self._open_lines, queue, slots))
        _prepare(slots)
        fetcher.start()
        watching = loop.create_task(slots.watch(queue), name="penstock watch")
        try:
            if self.on_start is not None:
                self.on_start()
            await self._until_stopped(queue, fetcher, until_empty, horizon)
        finally:
            await self._drain(slots, fetcher)
            watching.cancel()

    def _open_lines(self, queue: Queue, slots: Slots) -> None:
        """Make or alter the tubes of the handlers, and take from them from now on."""
        registry: Registry = self._app.handlers
        names = [name for name in (registry if self._weights is None else self._weights) if name != SCHEDULES]
        lines = [
            Line(
                _tube(queue, registry, name), self._weight(name), in_process=name in registry and registry[name].process
            )
            for name in names
        ]
        for asked in registry.schedules:
            queue._store_schedule(asked)
        lines += [Line(queue.create_tube(name, if_not_exists=True), 1.0, APART) for name in slots.extra]
        slots.registry = registry
        for line in lines:
            slots.fetcher.add_line(line)
        if not names:
            log.warning("there are no handlers: define some with @q.handler(..)")

    def _weight(self, name: str) -> float:
        return 1.0 if self._weights is None else self._weights[name]

    async def _until_stopped(self, queue: Queue, fetcher: Fetcher, until_empty: bool, horizon: int | None) -> None:
        pause = EMPTY_LOOK
        while not self._stopping.is_set():
            if not until_empty:
                await self._stopping.wait()
            elif not fetcher.pending and await self._unhurried(errand(_is_over, queue, list(fetcher.lines), horizon)):
                return
            else:
                # Many workers may wait for others, or for a lane, for long.
                pause = EMPTY_LOOK if fetcher.pending else min(RARE_LOOK, 1.5 * pause)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)

    async def _drain(self, slots: Slots, fetcher: Fetcher) -> None:
        """Take no more, finish what runs within the grace, give back the rest."""
        loop = asyncio.get_running_loop()
        slots.stop_starting()
        settled: asyncio.Future[None] = loop.create_future()
        fetcher.stop_taking(lambda: soon(loop, answer, settled, None))
        await slots.finish(self.grace, lambda: self._told_to_stop > 1)
        self.abandoned = len(slots.running)
        # A store that does not answer does not let a fetcher go.
        await asyncio.wait([settled], timeout=LAST_WORDS)
        left = await errand(fetcher.close, LAST_WORDS if settled.done() else 0.0)
        if left:
            log.error("%d tasks could not be ended: they come back when their leases end", left)
        await slots.runners.close()

    # -- reloading ---------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        """SIGHUP."""
        assert self._loop is not None
        if self.app is None:
            log.warning("SIGHUP, but this worker does not know where its code is: start it with `penstock worker`")
        elif self._reloading is None or self._reloading.done():
            self._reloading = self._loop.create_task(self._reload_all(self.app), name="penstock reload")
        else:
            # The files may have changed since they were read.
            self._reload_again = True

    async def _reload_all(self, app: App) -> None:
        self._reload_again = True
        while self._reload_again:
            self._reload_again = False
            await self._reload(app)

    async def _reload(self, app: App) -> None:
        """Take over the handlers of the new code; what runs goes on in the old one, and no lease is touched."""
        try:
            queue = await errand(app.reload)
        except (Exception, SystemExit):
            log.exception("the code could not be reloaded; the old one stays")
            return
        await self.take_over(queue)
        del queue
        # The old program is a circle of modules, functions and a queue whose session lives as long as it does.
        await errand(gc.collect)

    async def take_over(self, queue: Any) -> None:
        """Use the handlers of another queue on the same store from now on.

        >>> import asyncio, penstock
        >>> worker = penstock.Worker(penstock.connect("memory:"))
        >>> asyncio.run(worker.take_over(penstock.connect("memory:")))
        """
        old, self._app = self._app, queue
        slots, twin = self._slots, self._queue
        if slots is None or twin is None:
            return
        kinds = twin._kinds, twin._makers
        twin._kinds, twin._makers = queue._kinds, queue._makers
        try:
            await errand(self._open_lines, twin, slots)
        except Exception:
            log.exception("the new handlers could not be used; the old ones stay")
            self._app = old
            twin._kinds, twin._makers = kinds
            return
        if self._weights is None:
            for name in set(old.handlers) - set(queue.handlers):
                if name in slots.fetcher.lines:
                    slots.fetcher.lines[name].leaving = True
        for name in {asked.name for asked in old.handlers.schedules} - {s.name for s in queue.handlers.schedules}:
            # Another program may have taken it over, so it is not for this one to remove.
            log.warning(
                "schedule %r goes on although the new code does not have it: unschedule(%r) ends it", name, name
            )
        slots.runners.renew()
        _prepare(slots)
        slots.fetcher.poke()
        log.info("handlers reloaded: %s", ", ".join(sorted(queue.handlers)) or "none")


def _prepare(slots: Slots) -> None:
    """Have processes for the handlers that need them, and take tasks for as many as are ready."""
    names = [name for name, line in slots.fetcher.lines.items() if line.in_process and name in slots.registry]
    slots.runners.prepare([slots.registry[name] for name in names], slots.fetcher.have_processes)


def _tube(queue: Queue, registry: Registry, name: str) -> Tube:
    """The tube of a handler as that asks for it; one without a handler as it is."""
    definition = registry.get(name)
    if definition is not None:
        return queue._tube_of(definition, alter=True)
    try:
        tube = queue.tube(name)
    except TubeNotFound as error:
        raise UsageError(f"{error}, and no handler says what it should be") from None
    log.warning("tube %r has no handler here: its tasks will be buried", name)
    return tube


def _checked_queue(queue: Queue | AsyncQueue) -> Queue | AsyncQueue:
    if not isinstance(queue, Queue | AsyncQueue):
        raise UsageError(f"a worker needs a queue, as connect() or aconnect() give, got {shown(queue)}")
    return queue


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"name must be text, got {shown(name)}")
    return name


def _checked_hooks(hooks: Hooks | None) -> Hooks | None:
    names = ("inc_busy", "measure", "dec_busy")
    if hooks is not None and not all(callable(getattr(hooks, name, None)) for name in names):
        raise UsageError(f"hooks must have {', '.join(names)}, as penstock.worker.Hooks has, got {shown(hooks)}")
    return hooks


def _weights(tubes: Iterable[str] | Mapping[str, float] | None) -> dict[str, float] | None:
    if tubes is None:
        return None
    if isinstance(tubes, str):
        raise UsageError(f"tubes must be a list of names or a dict of weights, got {tubes!r}: pass [{tubes!r}]")
    weights = dict(tubes) if isinstance(tubes, Mapping) else dict.fromkeys(tubes, 1.0)
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e9:
            raise UsageError(f"the weight of tube {name!r} must be a number above 0, got {shown(weight)}")
    return weights


def _twin(app: Any, session: Session | None = None) -> Queue:
    """A queue on the same store with a session of its own: leases of the worker are nobody else's."""
    engine = getattr(app._engine, "engine", app._engine)
    twin = Queue(engine.twin(), session or new_session(app._session.ttl))
    twin._kinds, twin._makers = app._kinds, app._makers
    twin._start()
    return twin


def _close(queue: Queue) -> None:
    try:
        queue.close()
    except PenstockError as error:
        log.warning("the worker's session could not be ended, it ends by itself: %s", error)


def _is_over(queue: Queue, tubes: list[str], horizon: int | None) -> bool:
    """Whether nothing is left to do; a store that cannot be asked is asked again."""
    try:
        return is_empty(queue, tubes, horizon)
    except (EngineUnavailable, NotWritable) as error:
        log.warning("the worker cannot see whether anything is left to do, looking again: %s", error)
        return False
