"""drain() does what a worker does, in the calling thread."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support.blocking import unwrap
from tests.support.watching import elapse
from tests.testing.bench import drained

import penstock
from penstock import Abort, Bury, Release, State, UsageError, Worker, current_run
from penstock.testing import ManualClock, adrain, drain, lose


@pytest.fixture
def memory():
    with penstock.connect("memory:", clock=ManualClock()) as q:
        yield q


@dataclass
class Order:
    item: str
    number: int = 1


def states(tube):
    return [str(task.state) for task in tube.tasks()]


# -- what is run ---------------------------------------------------------------------------------------


def test_what_is_ready_is_run_and_what_handlers_put_meanwhile_too(every_q):
    seen = []
    tube = every_q.create_tube("numbers")

    @every_q.handler("counts")
    def count(n: int) -> None:
        seen.append(("counts", n))

    @every_q.handler("numbers")
    def number(n: int) -> None:
        seen.append(("numbers", n))

    count.put_many([1, 2])
    number.put(10)
    assert drained(every_q).ok == 3
    assert seen == [("counts", 1), ("numbers", 10), ("counts", 2)], "tubes take turns"
    assert (drained(every_q), tube.tasks()) == ([], [])


def test_handlers_may_put_tasks(memory):
    @memory.handler("down")
    def down(n: int) -> None:
        if n:
            down.put(n - 1)

    down.put(5)
    assert [run.task.data for run in drain(memory)] == [5, 4, 3, 2, 1, 0]


def thread_of_first_attempt(data: None, run: penstock.Run) -> int:
    assert run.attempt == 1
    return threading.get_ident()


def test_everything_happens_in_the_calling_thread(memory):
    where = []

    @memory.middleware
    async def note(run, go_on):
        where.append(threading.current_thread())
        return await go_on()

    @memory.handler("sync")
    def sync(data: None) -> None:
        where.append(threading.current_thread())

    @memory.handler("async")
    async def awaited(data: None) -> None:
        await asyncio.sleep(0)
        where.append(threading.current_thread())

    cpu = memory.handler("cpu", process=True, keep=True)(thread_of_first_attempt)
    for handler in (sync, awaited, cpu):
        handler.put(None)
    before = threading.enumerate()
    ran = drain(memory)
    assert (ran.ok, ran[2].value) == (3, threading.get_ident())
    assert where == [threading.current_thread()] * 5
    assert set(threading.enumerate()) <= set(before)


def test_data_are_what_the_handler_wants_and_results_are_kept(every_q):
    @every_q.handler("orders", keep=True)
    def order(data: Order) -> dict[str, Any]:
        return {"bill": f"{data.number} {data.item}"}

    task = order.put(Order("tea", 2))
    (run,) = drained(every_q, order)
    assert (run.ended, run.value, run.error) == ("ack", {"bill": "2 tea"}, None)
    assert (run.task.id, run.task.state, run.task.result) == (task.id, State.DONE, run.value)
    assert every_q.tube("orders").peek(task.id).result == {"bill": "2 tea"}


def test_only_tubes_that_are_named_are_drained(memory):
    one, two = memory.handler("one")(lambda n: n), memory.handler("two")(lambda n: n)
    one.put(1)
    two.put(2)
    assert [run.value for run in drain(memory, "two")] == [2]
    assert [run.value for run in drain(memory, memory.tube("one"), two)] == [1]


def test_tubes_are_made_and_altered_as_by_a_worker(q):
    q.create_tube("jobs", max_attempts=1)
    q.handler("jobs", max_attempts=7)(lambda n: n)
    q.handler("others")(lambda n: n)
    drained(q)
    assert q.tube("jobs").options["max_attempts"] == 7
    assert q.tube("others").options["max_attempts"] == 25


# -- how tasks end -------------------------------------------------------------------------------------


def fine(data):
    return {"n": 1}


def odd(data):
    raise ValueError("odd")


def aborts(data):
    raise RuntimeError("no use") from Abort("there is no such user")


def buries(data):
    raise Bury("look at this")


def releases(data):
    raise Release(60)


def releases_wrongly(data):
    raise Release("soon")  # type: ignore[arg-type]


def leaves(data):
    raise SystemExit(3)


def runs_out(data):
    return next(iter(()))


def returns_a_set(data):
    return {1, 2}


def takes_numbers(data: int):
    raise AssertionError("not called")


def cancels(data):
    raise asyncio.CancelledError("from inside")


def acks_itself(data, run):
    run.task.ack({"by": "hand"}, keep=True)
    raise ValueError("too late to matter")


ENDINGS = {
    fine: "ack",
    odd: "fail",
    aborts: "abort",
    buries: "bury",
    releases: "release",
    releases_wrongly: "fail",
    leaves: "fail",
    runs_out: "fail",
    returns_a_set: "abort",
    takes_numbers: "abort",
    cancels: "fail",
    acks_itself: "by_hand",
}


def awaiting(function):
    """The same as an async function."""
    if "run" in function.__code__.co_varnames:

        async def called(data, run):
            return function(data, run)
    else:

        async def called(data):
            return function(data)

        called.__annotations__ = function.__annotations__
    return called


@pytest.mark.parametrize("function", ENDINGS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("style", ["sync", "async", "behind middleware"])
def test_tasks_end_as_they_do_under_a_worker(function, style, tmp_path):
    if style == "async":
        name, function = function.__name__, awaiting(function)
        function.__name__ = name
    endings = {one.__name__: ending for one, ending in ENDINGS.items()}
    found, errors = [], []
    for way in ("worker", "drain"):
        with penstock.connect("memory:", clock=ManualClock()) as q:
            tube = q.create_tube(function.__name__, keep=True, retry=30, max_attempts=3)
            q.handler(function.__name__, keep=True)(function)
            if style == "behind middleware":
                q.middleware(passing)
            task = tube.put("x")
            if way == "worker":
                Worker(q).run(until_empty=True, horizon=0, signals=False)
            else:
                (ran,) = drain(q)
                assert ran.ended == endings[function.__name__]
                assert ran.ok == (ran.ended in ("ack", "release", "by_hand"))
                assert (ran.task.state, ran.task.reason) == (tube.peek(task.id).state, tube.peek(task.id).reason)
            ended = tube.peek(task.id)
            errors.append(ended.error)
            found.append((ended.state, ended.reason, ended.attempt, ended.result, ended.ready_at))
    assert found[0] == found[1]
    if function.__name__ not in ("runs_out", "releases_wrongly"):  # these have a word of the worker's own
        assert shortened(errors[0]) == shortened(errors[1])


def shortened(error):
    """An error without the lines about ourselves, which are between middleware and handler."""
    return error and re.sub(r'  File "[^"]*/src/penstock/.*\n.*\n(?: +[\^~]+\n)?', "", error)


async def passing(run, go_on):
    return await go_on()


def test_every_engine_ends_tasks_alike(q):
    for function in (fine, odd, aborts, buries, releases, takes_numbers, acks_itself):
        q.create_tube(function.__name__, keep=True, retry=30, max_attempts=3).put("x")
        q.handler(function.__name__, keep=True)(function)
    ran = drained(q)
    assert {run.task.tube: (run.ended, str(run.task.state), str(run.task.reason)) for run in ran} == {
        "fine": ("ack", "done", "success"),
        "odd": ("fail", "delayed", "None"),
        "aborts": ("abort", "buried", "aborted"),
        "buries": ("bury", "buried", "asked"),
        "releases": ("release", "delayed", "None"),
        "takes_numbers": ("abort", "buried", "aborted"),
        "acks_itself": ("by_hand", "done", "success"),
    }
    assert (ran.ok, ran.trouble) == (3, 4)
    assert [type(error).__name__ for error in ran.errors] == ["ValueError", "RuntimeError", "Bury", "BadPayload"]
    assert "ok 3, trouble 4; first: ValueError: odd" in repr(ran)


def test_the_error_text_of_a_task_begins_at_its_handler(memory):
    memory.handler("odd", max_attempts=1)(odd).put(1)
    (ran,) = drain(memory)
    assert "in odd" in ran.task.error and "draining" not in ran.task.error


def test_kinds_with_hooks_are_told(q):
    told = []

    class Watched(penstock.Kind):
        features = penstock.Features(delay=True)

        def on_finish(self, task):
            told.append(task.data)

        def retry_delay(self, task, failures):
            return 7

    q.register_kind("watched", Watched)
    q.create_tube("fine", "watched", max_attempts=3).put("well")
    q.create_tube("odd", "watched", max_attempts=3).put("badly")
    q.handler("fine")(fine)
    q.handler("odd")(odd)
    drained(q)
    assert told == ["well"]
    (task,) = q.tube("odd").tasks()
    assert (task.ready_at - task.created_at).total_seconds() == 7


def test_a_tube_without_a_handler_has_its_tasks_buried(q):
    tube = q.create_tube("strays")
    tube.put(1)
    (ran,) = drained(q, "strays")
    assert (ran.ended, ran.ok, str(ran.error)) == (
        "unknown_handler",
        False,
        "no handler of this queue is for tube 'strays'",
    )
    assert (tube.peek(1).state, tube.peek(1).reason) == ("buried", "unknown_handler")


def test_a_lease_that_ended_meanwhile_is_told(q, clock):
    @q.handler("slow", attempt_limit=10, max_attempts=1)
    def slow(data: None) -> None:
        elapse(clock, 11)

    slow.put(None)
    (ran,) = drained(q)
    assert (ran.ended, ran.ok, type(ran.error)) == ("lost", False, penstock.LeaseLost)
    assert str(q.tube("slow").tasks()[0].reason) == "lost"


def test_the_first_error_is_raised_when_asked_for(q):
    @q.handler("halves", max_attempts=1)
    def halve(n: int) -> float:
        return 1 / n

    halve.put_many([1, 0, 2])
    with pytest.raises(ZeroDivisionError):
        drained(q, raise_errors=True)
    assert states(q.tube("halves")) == ["buried", "ready"]
    assert drained(q, raise_errors=True).ok == 1


def test_a_release_is_no_error(memory):
    memory.handler("releases")(releases).put(1)
    assert [run.ended for run in drain(memory, raise_errors=True)] == ["release"]


def test_what_has_no_handler_or_bad_data_is_an_error_too(memory):
    memory.create_tube("strays").put(1)
    with pytest.raises(UsageError, match="no handler"):
        drain(memory, "strays", raise_errors=True)
    memory.create_tube("takes_numbers").put("x")
    memory.handler("takes_numbers")(takes_numbers)
    with pytest.raises(Exception, match="the data are no int"):
        drain(memory, raise_errors=True)


@pytest.mark.parametrize("style", ["sync", "async", "behind middleware"])
def test_an_interrupted_handler_gives_its_task_back(memory, style):
    def interrupted(data):
        pytest.fail("from the middle of a handler")

    if style == "behind middleware":
        memory.middleware(passing)
    memory.handler("jobs")(awaiting(interrupted) if style == "async" else interrupted).put(1)
    with pytest.raises(pytest.fail.Exception, match="from the middle"):
        drain(memory)
    (task,) = memory.tube("jobs").tasks()
    assert (task.state, task.attempt) == ("ready", 0)


INTERRUPTED = """
import asyncio, signal, penstock
from penstock.testing import drain

q = penstock.connect("memory:")

async def passing(run, go_on):
    return await go_on()

@q.handler("async")
async def awaited(data: None) -> None:
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(0)

@q.handler("sync")
def sync(data: None) -> None:
    signal.raise_signal(signal.SIGINT)

for layers in ([], [passing]):
    q.handlers.middleware[:] = layers
    for handler in (awaited, sync):
        task = handler.put(None)
        try:
            drain(q, handler)
        except KeyboardInterrupt:
            print(q.tube(task.tube).peek(task.id).state, q.tube(task.tube).peek(task.id).attempt)
            q.tube(task.tube).truncate()
"""


def test_ctrl_c_ends_a_drain_and_the_task_is_ready_again():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("ready 0\n" * 4, "")


def test_a_real_clock_will_do(bench):
    q = bench.connect(clock=None)
    job = q.handler("jobs", retry=600, max_attempts=2)(odd)
    job.put(1)
    assert [run.task.state for run in drained(q)] == ["delayed"]
    assert drained(q) == []


def test_handlers_that_never_end_are_noticed(q):
    @q.handler("rounds")
    def again(data: None) -> None:
        raise Release

    again.put(None)
    with pytest.raises(UsageError, match="25 tasks were run and there are more"):
        drained(q, limit=25)
    (task,) = q.tube("rounds").tasks()
    assert (task.state, task.attempt) == ("ready", 25)


# -- time ----------------------------------------------------------------------------------------------


def test_without_a_horizon_the_clock_stands_still(q, clock):
    q.handler("odd", retry=5, max_attempts=3)(odd).put(1)
    start = clock.now()
    assert [run.task.state for run in drained(q)] == ["delayed"]
    assert clock.now() == start


def test_the_clock_is_moved_to_retries_and_no_further(every_q, clock):
    attempts = []

    @every_q.handler("odd", retry=[5, 30], max_attempts=3)
    def fails(data: None, run: penstock.Run) -> None:
        attempts.append((run.attempt, clock.now() - start, run.last_attempt))
        raise ValueError("odd")

    fails.put(None)
    start = clock.now()
    assert drained(every_q, clock=clock, horizon=34.999999).trouble == 2
    assert drained(every_q, horizon=timedelta(hours=1)).trouble == 1
    assert attempts == [(1, 0, False), (2, 5_000_000, False), (3, 35_000_000, True)]
    assert clock.now() - start == 35_000_000
    assert states(every_q.tube("odd")) == ["buried"]


def test_rates_are_waited_for(q, clock):
    when = []

    @q.handler("pages", lane_rate=0.5)
    def fetch(page: int) -> None:
        when.append((page, (clock.now() - start) / 1_000_000))

    fetch.put_many([1, 2, 3], lane="a")
    fetch.put(9, lane="b")
    start = clock.now()
    assert drained(q).ok == 2
    assert drained(q, horizon=60).ok == 2
    assert sorted(when) == [(1, 0), (2, 2), (3, 4), (9, 0)]


def test_leases_of_others_are_waited_for(q, clock, bench):
    done = []
    tube = q.create_tube("jobs", ttr=120, max_attempts=3)
    q.handler("jobs")(done.append)
    tube.put("x")
    other = bench.connect()
    assert other.tube("jobs").take() is not None
    lose(unwrap(other))
    assert drained(q, horizon=119) == []
    assert drained(q, horizon=120).ok == 1
    assert done == ["x"]


def test_periodic_tasks_come_when_they_are_due(q, clock):
    beats = []

    @q.periodic("beats", every=600, data="tick")
    def beat(data: str) -> None:
        beats.append((data, (clock.now() - start) // 1_000_000))

    start = clock.now()
    assert drained(q) == []
    assert drained(q, horizon=1800).ok == 3
    clock.advance(600)
    assert drained(q).ok == 1
    clock.advance(600)
    assert drained(q, "beats") == [], "a tube that is named is drained, no schedule with it"
    assert beats == [("tick", 600), ("tick", 1200), ("tick", 1800), ("tick", 2400)]


def test_schedules_made_by_hand_are_kept_too(q):
    lines = []
    q.handler("reports")(lines.append)
    drained(q)
    q.schedule("nightly", "reports", {"of": "sales"}, every=3600)
    assert drained(q, horizon=7200).ok == 2
    assert lines == [{"of": "sales"}] * 2


# -- middleware and contexts ---------------------------------------------------------------------------


def test_middleware_is_around_every_handler(every_q):
    steps = []

    @every_q.middleware
    async def outer(run, go_on):
        steps.append(("outer", run.attempt))
        try:
            return await go_on() + 1
        finally:
            await asyncio.sleep(0)
            steps.append("over")

    @every_q.middleware
    async def inner(run, go_on):
        assert current_run() is run
        steps.append("inner")
        return await go_on() * 10

    @every_q.handler("sync", keep=True)
    def sync(n: int) -> int:
        steps.append(current_run().task.data)
        return n

    @every_q.handler("async", keep=True)
    async def awaited(n: int) -> int:
        await asyncio.sleep(0)
        steps.append(current_run().task.data)
        return n

    sync.put(1)
    awaited.put(2)
    assert [run.value for run in drained(every_q)] == [11, 21]
    assert steps == [("outer", 1), "inner", 1, "over", ("outer", 1), "inner", 2, "over"]
    with pytest.raises(LookupError):
        current_run()


def test_middleware_may_call_a_handler_again(memory):
    @memory.middleware
    async def twice(run, go_on):
        try:
            return await go_on()
        except ValueError:
            return await go_on()

    calls = []

    @memory.handler("flaky", keep=True)
    def flaky(data: None) -> int:
        calls.append(data)
        if len(calls) == 1:
            raise ValueError("odd")
        return 5

    flaky.put(None)
    assert [run.value for run in drain(memory)] == [5]


def test_middleware_that_gives_up_is_not_held_up(memory):
    @memory.middleware
    async def impatient(run, go_on):
        calling = asyncio.ensure_future(go_on())
        await asyncio.sleep(0)
        calling.cancel()
        return "no"

    memory.handler("jobs", keep=True)(fine).put(1)
    assert [run.value for run in drain(memory)] == ["no"]


@pytest.mark.parametrize("around", [False, True], ids=["alone", "behind middleware"])
def test_a_sync_handler_may_run_a_loop_of_its_own(memory, around):
    if around:
        memory.middleware(passing)

    async def turn() -> str:
        await asyncio.sleep(0)
        return "turned"

    memory.handler("loops")(lambda data: asyncio.run(turn())).put(None)
    assert [run.value for run in drain(memory)] == ["turned"]


def test_a_sync_function_may_answer_something_to_await(every_q):
    async def later(n):
        await asyncio.sleep(0)
        return 2 * n

    every_q.handler("jobs", keep=True)(lambda n: later(n)).put(4)
    assert [run.value for run in drained(every_q)] == [8]


def test_a_handler_that_is_a_generator_does_nothing_and_is_told_so(memory):
    memory.handler("jobs", max_attempts=1)(lambda n: (i for i in range(n))).put(4)
    assert "does nothing" in str(drain(memory).errors[0])


def test_async_handlers_share_one_loop(memory):
    loops = []

    @memory.handler("loops")
    async def note(data: None) -> None:
        loops.append(asyncio.get_running_loop())

    note.put_many([None, None])
    drain(memory)
    assert loops[0] is loops[1] and loops[0].is_closed()


# -- what is refused -----------------------------------------------------------------------------------


def test_what_cannot_work_is_refused(memory):
    for call, words in [
        (lambda: drain(memory), "this queue has no handlers"),
        (lambda: drain(memory, "nowhere"), "no handler says what it should be"),
        (lambda: drain(memory, 7), "a tube is given by its name, or as a tube or a handler, got 7"),
        (lambda: drain(memory, "x", clock=ManualClock()), "clock must be the one that the queue was opened with"),
        (lambda: drain(memory, "x", horizon=-1), "horizon must not be negative"),
        (lambda: drain(memory, "x", limit=0), "limit"),
    ]:
        with pytest.raises(UsageError, match=words):
            call()


def test_a_real_clock_is_not_moved():
    with penstock.connect("memory:") as q:
        q.handler("jobs")(fine)
        with pytest.raises(UsageError, match="horizon moves the clock on"):
            drain(q, horizon=1)


def test_a_drain_inside_a_transaction_is_refused(q):
    q.handler("jobs")(fine).put(1)
    with q.transaction(), pytest.raises(UsageError, match=r"inside q.transaction\(\)"):
        drained(q)
    assert drained(q).ok == 1


def test_drain_says_where_to_use_adrain(memory):
    async def main():
        memory.handler("sync")(fine).put(1)
        assert drain(memory).ok == 1
        memory.handler("async")(awaiting(odd)).put(1)
        with pytest.raises(UsageError, match=r"use `await adrain\(q\)`"):
            drain(memory)
        assert drain(memory, "sync") == []
        assert (await adrain(memory)).trouble == 1
        async with await penstock.aconnect("memory:") as q:
            with pytest.raises(UsageError, match=r"use `await adrain\(q\)`"):
                drain(q)  # type: ignore[arg-type]

    asyncio.run(main())


def test_a_cancelled_adrain_gives_the_task_back():
    async def main():
        async with await penstock.aconnect("memory:") as q:
            started, told = asyncio.Event(), []

            @q.handler("endless")
            async def endless(data: None) -> None:
                started.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    told.append(current_run().why)

            await endless.put(None)
            draining = asyncio.create_task(adrain(q))
            await started.wait()
            draining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await draining
            (task,) = await (await q.tube("endless")).tasks()
            assert (task.state, task.attempt, told) == ("ready", 0, ["stopping"])

    asyncio.run(main())


def test_adrain_waits_for_transactions_of_others_without_stopping_the_loop():
    async def main():
        async with await penstock.aconnect("memory:") as q:
            jobs = await q.create_tube("jobs")
            q.handler("jobs")(fine)
            begun, end = asyncio.Event(), asyncio.Event()

            async def other():
                async with q.transaction() as tx:
                    await jobs.put(1, transaction=tx)
                    begun.set()
                    await end.wait()

            writing = asyncio.create_task(other())
            await begun.wait()
            draining = asyncio.create_task(adrain(q))
            await asyncio.sleep(0)
            end.set()
            await writing
            await draining
            return await adrain(q)

    asyncio.run(main())
