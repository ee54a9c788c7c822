"""The slots of a worker: what runs, what is to run next, and what has to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.blocking import Queue, Task
from penstock.handlers import Definition, Registry
from penstock.model.duration import SECOND
from penstock.worker import settling
from penstock.worker.fetch import Fetcher
from penstock.worker.run import Run, enter, facts
from penstock.worker.runners import Runners
from penstock.worker.settling import REFUND, Ending
from penstock.worker.tally import Hooks, Tally

log = logging.getLogger("penstock.worker")
AHEAD = 0.02
"""Seconds of work that are fetched before there is a slot for it."""
LINGER = 0.002
"""Seconds that the ending of a task waits for others while there is still work to start."""
LOOK = 1.0
"""Seconds between two looks at what runs."""
LAST_WORDS = 5.0
"""Seconds, after the grace, in which handlers can clean up and tasks are given back."""
TAKEN_AWAY = ("lost", "late")
"""Why a run is to stop whose task is not ours any more."""
WORDS = {"fail": "failed", "abort": "aborted", "bury": "was buried", "unknown_handler": "was buried"}


class Slots:
    """Runs handlers in the loop that it was made in."""

    def __init__(
        self, name: str, number: int, most_ahead: int, processes: int | None, hooks: Hooks | None, tally: Tally
    ) -> None:
        self._name = name
        self._number = number
        self._most_ahead = most_ahead
        self._hooks = hooks
        self.tally = tally
        self.registry = Registry()
        self.extra: dict[str, Definition[Any, Any]] = {}
        """Handlers that are the worker's own."""
        self.buries_unknown: set[str] = set()
        """Tubes whose tasks are buried when they have no handler; others are given back."""
        self.runners = Runners(number, processes)
        self.fetcher: Fetcher
        self._loop = asyncio.get_running_loop()
        self._life = asyncio.current_task()
        self.running: dict[Run, asyncio.Task[None]] = {}
        self._buffer: deque[tuple[Task, float, float]] = deque()
        """Tasks that wait for slots, each with when it was asked for and since when it waits."""
        self._pace: float | None = None
        self._poke_planned = False
        self._stopped = False
        self._quiet = asyncio.Event()
        self._used = 0
        """Slots in use; what the worker runs for itself needs none."""
        self._look_at = 0.0
        self._sooner = asyncio.Event()

    # -- starting ----------------------------------------------------------------------------------

    def arrived(self, tasks: list[Task], began: float, first: bool = False) -> None:
        """Tasks were taken; `began` is before the call that did it, on time.monotonic(). `first`: they cannot wait."""
        add = self._buffer.appendleft if first else self._buffer.append
        now = time.monotonic()
        for task in reversed(tasks) if first else tasks:
            if task.tube in self.extra and not self._stopped:
                self._start(task, began, self.extra[task.tube])
            else:
                add((task, began, now))
        if self._stopped:
            self._give_back_buffer()
            return
        self._fill()
        if first:
            self._give_back(tasks)

    def _give_back(self, tasks: list[Task]) -> None:
        """Tasks that cannot wait and found no slot: several tubes had one for it."""
        waiting = set(map(id, tasks))
        late = [entry for entry in self._buffer if id(entry[0]) in waiting]
        for entry in late:
            self._buffer.remove(entry)
            self.fetcher.end(entry[0], REFUND)
        if late:
            self.fetcher.poke()

    def _fill(self) -> None:
        while self._buffer and self._used < self._number:
            task, began, since = self._buffer.popleft()
            handler = self.registry.get(task.tube)
            if time.monotonic() - since >= LOOK:  # everything stood still, and its lease may be gone
                self.fetcher.end(task, REFUND)
            elif handler is None:
                self._no_handler(task)
            else:
                self._start(task, began, handler)

    def _start(self, task: Task, began: float, handler: Definition[Any, Any]) -> None:
        record = task._record
        deadline = None
        if record.deadline is not None and record.taken_at is not None:
            # Counted from before the call: never later than the store thinks, whatever its clock says.
            deadline = began + (record.deadline - record.taken_at) / SECOND
            if deadline <= time.monotonic():  # it has waited here for too long, and is not ours any more
                self.tally.lost += 1
                self.fetcher.end(task, settling.NOTHING)
                return
            if deadline < self._look_at:
                self._sooner.set()
        run = Run(task, handler, deadline)
        self._used += task.tube not in self.extra
        self.running[run] = self._loop.create_task(self._perform(run))

    def _no_handler(self, task: Task) -> None:
        if task.tube in self.buries_unknown:
            text = f"no handler of this worker is for tube {task.tube!r}"
            ending = Ending("unknown_handler", text)
            self.tally.of(task.tube).add(False, None, ending.verb)
            _log_trouble(task, ending, None)
            self.fetcher.end(task, ending)
        else:  # it was there until the code was reloaded
            self.fetcher.end(task, REFUND)
        self.fetcher.poke()

    # -- running -----------------------------------------------------------------------------------

    async def _perform(self, run: Run) -> None:
        enter(run)
        run.started = time.monotonic()
        ending = settling.NOTHING
        try:
            ending = await (self._called(run) if run.task.tube in self.extra else self._measured(run))
        finally:
            self._ended(run, ending)

    async def _measured(self, run: Run) -> Ending:
        """Call the handler, and count and measure it."""
        tube = run.task.tube
        tally = self.tally.of(tube)
        tally.busy += 1
        if self._hooks is not None:
            _call(self._hooks.inc_busy, self._name, tube)
        try:
            ending = await self._called(run)
            seconds = time.monotonic() - run.started
            outcome = _outcome(run, ending)
            ok = ending.ok and outcome not in TAKEN_AWAY
            if not run.abandoned:
                tally.add(ok, seconds, outcome)
            self._pace = seconds if self._pace is None else self._pace + 0.05 * (seconds - self._pace)
            if self._hooks is not None:
                _call(self._hooks.measure, self._name, tube, ok, seconds)
            if log.isEnabledFor(logging.DEBUG):
                more = {**run.facts, "ending": outcome, "seconds": round(seconds, 6)}
                log.debug("task %r of %r has run: %s", run.task.id, tube, outcome, extra=more)
            return ending
        finally:
            tally.busy -= 1
            if self._hooks is not None:
                _call(self._hooks.dec_busy, self._name, tube)

    async def _called(self, run: Run) -> Ending:
        """Call the handler; how its task is to end."""
        ending = await self._answered(run)
        if run.why in TAKEN_AWAY and ending is not settling.NOTHING:
            # Not even if the store would still take it: a task is counted, and told, to have been one or the other.
            task = run.task
            log.warning("what became of task %r of %r came too late: %s", task.id, task.tube, run.why, extra=run.facts)
            return settling.NOTHING
        if not ending.ok:
            _log_trouble(run.task, ending, time.monotonic() - run.started)
        return ending

    async def _answered(self, run: Run) -> Ending:
        handler, task = run.handler, run.task
        try:
            value = handler.shape.decode(task._record.data)
            if self.registry.middleware and task.tube in self.registry:
                returned = await self._through_middleware(run, value)
            else:
                returned = await self.runners.call(run, value)
            return settling.returned(task, returned, handler.stores_result)
        except asyncio.CancelledError as error:
            if run.why in TAKEN_AWAY:  # as it was told to
                return settling.NOTHING
            if task._ended is None and (run.why is not None or self._was_cancelled()):
                return REFUND
            return settling.raised(task, error)
        except KeyboardInterrupt:
            # It is meant for the program, which it goes on to end, and not the fault of the task.
            self.fetcher.end(task, REFUND if task._ended is None else settling.NOTHING)
            run.abandoned = True
            raise
        except BaseException as error:
            ending = settling.raised(task, error)
            if run.why == "stopping" and ending.verb == "fail":
                return REFUND
            return ending

    def _was_cancelled(self) -> bool:
        """Whether a program ends its loop, and the worker with it. Others who cancel a run are part of its handler."""
        return self._life is not None and self._life.cancelling() > 0

    async def _through_middleware(self, run: Run, value: Any) -> Any:
        go_on: Callable[[], Any] = partial(self.runners.call, run, value)
        for layer in reversed(self.registry.middleware):
            go_on = partial(layer, run, go_on)
        return await go_on()

    def _ended(self, run: Run, ending: Ending) -> None:
        """A slot is free."""
        del self.running[run]
        self._used -= run.task.tube not in self.extra
        if not run.abandoned:
            self.tally.given_back += ending is REFUND and run.why != "cancelled"
            self.fetcher.end(run.task, ending)
        if self._stopped:
            self.fetcher.poke()
            if not self.running:
                self._quiet.set()
            return
        self._set_prefetch()
        self._fill()
        if not self._poke_planned:
            self._poke_planned = True
            if self._buffer:
                self._loop.call_later(LINGER, self._poke)
            else:
                self._loop.call_soon(self._poke)

    def _set_prefetch(self) -> None:
        pace = self._pace or 0.0
        ahead = int(self._number * AHEAD / pace) if pace > 0 else self._most_ahead
        self.fetcher.prefetch = min(self._most_ahead, ahead)

    def _poke(self) -> None:
        self._poke_planned = False
        self.fetcher.poke()

    # -- stopping ----------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Whoever waits for what runs should look again."""
        self._quiet.set()

    def stop_starting(self) -> None:
        """Give back what has not begun, and what still comes."""
        self._stopped = True
        self._give_back_buffer()

    async def finish(self, grace: float, hurried: Callable[[], bool]) -> None:
        """Let what runs end within the grace, give back the rest."""
        end = self._loop.time() + grace
        while self.running and not hurried() and self._loop.time() < end:
            self._quiet.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), end - self._loop.time())
        await self._abandon()

    def _give_back_buffer(self) -> None:
        while self._buffer:
            task, _, _ = self._buffer.popleft()
            self.tally.given_back += self._stopped
            self.fetcher.end(task, REFUND)
        self.fetcher.poke()

    async def _abandon(self) -> None:
        """Time is over for what still runs: cancel what can be, and give all of it back."""
        left = list(self.running.items())
        for run, task in left:
            run.tell("stopping")
            if run.thread:
                self._give_up(run)
            else:
                task.cancel()
        tasks = [task for run, task in left if not run.thread]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS)
        for run in list(self.running):
            self._give_up(run)

    def _give_up(self, run: Run) -> None:
        """Give a task back whose handler still runs: a thread, or one that will not be cancelled."""
        if not run.abandoned:
            run.abandoned = True
            self.tally.given_back += 1
            self.fetcher.end(run.task, REFUND)
            self.fetcher.poke()

    # -- watching ----------------------------------------------------------------------------------

    async def watch(self, queue: Queue) -> None:
        """Tell handlers that they are over their limit, cancelled, or no longer the holders of their tasks."""
        every = max(LOOK, queue._session.ttl / 3 / SECOND)
        checked = time.monotonic()
        while True:
            await self._until_look()
            now = time.monotonic()
            try:
                self._look(queue, now)
                if now - checked >= every:
                    checked = now
                    self.fetcher.check([run.task for run in self.running if now - run.started >= every])
            except Exception:
                log.exception("the worker could not look at what runs; it looks again")

    def _look(self, queue: Queue, now: float) -> None:
        cancelled = queue._engine.cancelled if self.running else set()
        for run in list(self.running):
            if run.task._ended is not None:
                continue
            if run.deadline is not None and now >= run.deadline:
                self._stop(run, "late")
            elif run.task._held in cancelled:
                self._stop(run, "cancelled")
        self._look_at_buffer(now)

    def _look_at_buffer(self, now: float) -> None:
        """Give back what was fetched for handlers that were quick until now: others may be free for it."""
        if self._buffer and now - min(since for _, _, since in self._buffer) >= LOOK:
            self._pace = max(self._pace or 0.0, LOOK)
            self._set_prefetch()
            self._give_back_buffer()

    async def _until_look(self) -> None:
        """Wait until a deadline comes, or a second is over."""
        end = time.monotonic() + LOOK
        while True:
            self._sooner.clear()
            open_ = [run for run in self.running if run.why is None and run.task._ended is None]
            self._look_at = min([end, *(run.deadline for run in open_ if run.deadline is not None)])
            try:
                await asyncio.wait_for(self._sooner.wait(), max(0.001, self._look_at - time.monotonic()))
            except TimeoutError:
                return

    def lost(self, task: Task) -> None:
        """A task is no longer held by us."""
        for run in list(self.running):
            if run.task is task and task._ended is None:
                self._stop(run, "lost")

    def _stop(self, run: Run, why: str) -> None:
        if run.why is not None:
            return
        run.tell(why)
        self.tally.lost += why != "cancelled"
        log.warning("task %r of %r is to stop: %s", run.task.id, run.task.tube, why, extra=run.facts)
        if not run.thread:
            self.running[run].cancel()


def _outcome(run: Run, ending: Ending) -> str:
    """How a run ended, as it is counted."""
    if run.why in TAKEN_AWAY and run.task._ended is None:
        return run.why
    return "by_hand" if ending is settling.NOTHING else ending.verb


def _log_trouble(task: Task, ending: Ending, seconds: float | None) -> None:
    """Tell of an ending that is not ok; all of them are told of here. The text of the error holds no frame alive."""
    how, level = WORDS[ending.verb], logging.WARNING
    if ending.verb == "fail":
        how += f" in attempt {task.attempt}" + (f" of {task.max_attempts}" if task.max_attempts is not None else "")
        if task.last_attempt:
            how, level = how + ", buried: no attempts left", logging.ERROR
    more = {**facts(task), "max_attempts": task.max_attempts, "ending": ending.verb, "exception": ending.value}
    if seconds is not None:
        more["seconds"] = round(seconds, 6)
    log.log(level, "task %r of %r %s: %s", task.id, task.tube, how, ending.headline, extra=more)


def _call(hook: Callable[..., None], *args: Any) -> None:
    try:
        hook(*args)
    except Exception:
        log.exception("the hook %s failed", getattr(hook, "__name__", hook))
