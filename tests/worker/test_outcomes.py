"""How handlers end their tasks: by returning, raising, saying so, or with their own hands."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any, NoReturn

import pytest
from tests.worker.bench import PATIENCE, Bench, Later, Still, Working, until, until_state, work
from tests.worker.conftest import on_both, on_each

import penstock
from penstock import Abort, Bury, Release, Run, current_run


class Odd(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Rude(BaseException):
    """What no `except Exception` catches."""


def raising(error: Callable[[], BaseException] | BaseException) -> Callable[[Any], NoReturn]:
    def job(data: Any) -> NoReturn:
        raise error() if callable(error) else error

    return job


def ended(q: Any, function: Any, **options: Any) -> Any:
    """What becomes of a task of a function that fails once."""
    task = q.handler("jobs", **{"max_attempts": 1, **options})(function).put("x")
    work(q)
    return q.tube("jobs").peek(task.id)


def all_ended(q: Any, cases: Mapping[str, Callable[[], Any]], **options: Any) -> dict[str, Any]:
    """What becomes of a task for each case, in one run: the handler calls the case."""

    def job(name: str, run: Run) -> Any:
        return cases[name]()

    handler = q.handler("jobs", **{"max_attempts": 1, "keep": True, **options})(job)
    ids = {name: handler.put(name).id for name in cases}
    work(q, horizon=60)
    tube = q.tube("jobs")
    return {name: tube.peek(id) for name, id in ids.items()}


def throw(error: BaseException) -> NoReturn:
    raise error


# -- returning -------------------------------------------------------------------------------------


@on_each
def test_returning_acks(q: Any) -> None:  # case 252
    task = ended(q, lambda data: None, keep=True)
    assert (task.state, task.reason, task.result, task.attempt) == ("done", "success", None, 1)


def test_a_task_that_nobody_keeps_is_gone_once_it_is_done(q: Any) -> None:
    q.handler("jobs")(lambda data: "unseen").put(1)
    assert work(q).ok == 1
    assert q.tube("jobs").tasks() == []


@pytest.mark.parametrize("options", [{"keep": True}, {"keep": 60}, {"keep": True, "result": True}], ids=str)
def test_what_is_kept_has_its_result(options: dict[str, Any]) -> None:
    q = penstock.connect("memory:")

    async def job(data: Any) -> Any:
        return {"of": data, "list": [1, None, "ä"]}

    assert ended(q, job, **options).result == {"of": "x", "list": [1, None, "ä"]}


def test_a_result_that_nobody_asked_for_is_not_stored(memory: Any) -> None:
    task = memory.handler("jobs", result=False, keep=True)(lambda data: object()).put(1)
    assert work(memory).ok == 1
    assert memory.tube("jobs").peek(task.id).result is None


@on_both
def test_a_waiter_gets_the_result(q: Any) -> None:
    task = q.handler("jobs", keep=60)(lambda n: n * 2).put(4)
    with Working(q):
        assert q.tube("jobs").result(task.id, timeout=PATIENCE) == 8


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        ((1, 2), "tuple"),
        ({1: 2}, "text"),
        (float("nan"), "finite"),
        ("\ud800", "surrogates"),
        ("a\0b", "NUL"),
        (2**64, "integers"),
        (datetime(2024, 1, 1, tzinfo=UTC), "datetime"),
    ],
)
def test_a_result_that_cannot_be_stored_buries_and_says_so(value: Any, named: str) -> None:
    q = penstock.connect("memory:")
    task = ended(q, lambda data: value, keep=True, max_attempts=5)
    assert (task.state, task.reason, task.attempt) == ("buried", "aborted", 1)
    assert "the work was done" in task.error and named in task.error


@on_both
def test_a_huge_result_that_cannot_be_stored_has_a_short_text(q: Any) -> None:
    task = ended(q, lambda data: "\ud800" * 100_000, keep=True)
    assert (task.reason, len(task.error) < 10_000) == ("aborted", True)


def test_the_result_is_the_one_that_was_returned(q: Any) -> None:
    value = {"n": 1}
    changed = threading.Event()

    @q.handler("jobs", keep=True)
    async def job(data: Any) -> Any:
        asyncio.get_running_loop().call_soon(change)
        return value

    def change() -> None:
        value["n"] = object()  # type: ignore[assignment]
        changed.set()

    tasks = [job.put(1), job.put(2)]
    value["n"] = 1
    work(q, concurrency=1)
    assert changed.is_set()
    first = q.tube("jobs").peek(tasks[0].id)
    assert (first.state, first.result) == ("done", {"n": 1})


# -- raising ---------------------------------------------------------------------------------------


def test_an_error_has_type_message_and_a_trace_that_begins_at_the_handler(q: Any) -> None:  # case 278
    def deep() -> NoReturn:
        raise ValueError("odd number")

    def job(data: Any) -> None:
        deep()

    async def ajob(data: Any) -> None:
        deep()

    for name, function in (("sync", job), ("async", ajob)):
        task = q.handler(name, max_attempts=1)(function).put(1)
        assert work(q).trouble == 1
        text = q.tube(name).peek(task.id).error
        lines = text.splitlines()
        assert lines[0] == "ValueError: odd number"
        assert function.__name__ in lines[1] and __file__ in lines[1]
        frames = [line for line in lines if line.lstrip().startswith("File ")]
        assert len(frames) == 2 and frames[1].endswith("in deep")
        assert "penstock/worker" not in text


RAISED: dict[str, tuple[Any, str]] = {
    "an exception": (ValueError("x"), "ValueError: x"),
    "a class": (KeyError, "KeyError"),
    "SystemExit": (SystemExit(3), "SystemExit: 3"),
    "a BaseException": (Rude("x"), "Rude: x"),
    "GeneratorExit": (GeneratorExit(), "GeneratorExit"),
    "StopIteration": (StopIteration("x"), "StopIteration: x"),
    "StopAsyncIteration": (StopAsyncIteration("x"), "StopAsyncIteration: x"),
    "CancelledError": (asyncio.CancelledError("x"), "CancelledError: x"),
    "TimeoutError": (TimeoutError(), "TimeoutError"),
    "no text": (Odd(), "Odd: "),
    "surrogates and NUL": (ValueError("a\0b \ud800"), "ValueError: a\ufffdb ?"),
    "a group": (ExceptionGroup("both", [ValueError("one"), KeyError("two")]), "with ValueError: one"),
    "an outcome's root": (penstock.Cancelled("enough"), "Cancelled: enough"),
}


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(("error", "text"), RAISED.values(), ids=RAISED)
def test_whatever_is_raised_fails_the_task_and_the_worker_goes_on(  # case 278
    colour: str, error: Any, text: str
) -> None:
    q = penstock.connect("memory:")
    seen: list[Any] = []

    def job(data: Any) -> None:
        seen.append(data)
        if data == 1:
            raise error

    async def ajob(data: Any) -> None:
        await asyncio.sleep(0)
        job(data)

    handler = q.handler("jobs", max_attempts=1)(job if colour == "sync" else ajob)
    tasks = [handler.put(1), handler.put(2)]
    tally = work(q, concurrency=1)
    assert (seen, tally.ok, tally.trouble, tally.lost) == ([1, 2], 1, 1, 0)
    failed = q.tube("jobs").peek(tasks[0].id)
    assert (failed.state, failed.reason) == ("buried", "no_attempts")
    assert text in failed.error


@on_each
def test_odd_errors_are_stored_by_every_engine(q: Any) -> None:
    odd = {
        "no text": Odd(),
        "odd letters": ValueError("a\0b \ud800\udfff"),
        "huge": ValueError("x" * 10_000_000),
        "long": Rude("ä" * 10_000),
        "nothing": StopIteration(),
    }
    for name, task in all_ended(q, {name: partial(throw, error) for name, error in odd.items()}).items():
        assert (task.state, task.reason) == ("buried", "no_attempts"), name
        assert task.error.encode() and len(task.error) < 10_000, name


def test_a_deep_trace_is_cut_at_its_beginning(memory: Any) -> None:
    def dig(depth: int) -> None:
        if not depth:
            raise ValueError("bottom")
        dig(depth - 1) if depth % 2 else other(depth - 1)

    def other(depth: int) -> None:
        dig(depth)

    task = ended(memory, lambda data: dig(200))
    assert len(task.error) < 10_000
    assert task.error.startswith("ValueError: bottom\n")
    assert 'raise ValueError("bottom")' in task.error.splitlines()[-1]


class Heavy(Exception):
    """One that can be watched."""


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_what_was_raised_is_forgotten_at_once(colour: str) -> None:
    q = penstock.connect("memory:")
    alive: list[weakref.ref[Heavy]] = []

    def job(data: Any) -> None:
        error = Heavy()
        alive.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async def ajob(data: Any) -> None:
        job(data)

    handler = q.handler("jobs", max_attempts=1)(job if colour == "sync" else ajob)
    gc.collect()
    gc.disable()
    try:
        handler.put_many(range(5))
        assert work(q).trouble == 5
        # A thread that has told the worker of its last task may still be on its way.
        until(lambda: len(alive) == 5 and not any(error() for error in alive))
    finally:
        gc.enable()


def test_the_text_names_causes_and_notes(memory: Any) -> None:
    def job(data: Any) -> None:
        try:
            {}["key"]
        except KeyError as error:
            wrong = RuntimeError("no page")
            wrong.add_note("while reading the index")
            raise wrong from error

    text = ended(memory, job).error
    assert text.startswith("RuntimeError: no page\n")
    assert "while reading the index" in text and "caused by KeyError: 'key'" in text


def test_errors_that_cause_each_other_have_a_text(memory: Any) -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert "caused by ValueError: two" in ended(memory, raising(one)).error


def test_a_failure_is_logged_with_its_facts(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        task = ended(memory, raising(ValueError("odd number")))
    (record,) = [record for record in caplog.records if "odd number" in record.getMessage()]
    assert record.levelname == "ERROR"
    facts = vars(record)
    assert (facts["tube"], facts["task_id"], facts["attempt"], facts["ending"]) == ("jobs", task.id, 1, "fail")


# -- outcomes --------------------------------------------------------------------------------------


def wrapped(times: int) -> BaseException:
    error: BaseException = Abort("no such page")
    for n in range(times):
        outer = RuntimeError(f"layer {n}")
        outer.__cause__ = error
        error = outer
    return error


def test_abort_buries_at_once_however_it_is_wrapped(q: Any) -> None:  # cases 271, 272
    aborts = {
        "itself": Abort("no such page"),
        "once": wrapped(1),
        "five times": wrapped(5),
        "in a group": ExceptionGroup("both", [ValueError("x"), Abort("no such page")]),
        "in groups, wrapped": ExceptionGroup("outer", [ExceptionGroup("inner", [wrapped(2)])]),
    }
    cases = {name: partial(throw, error) for name, error in aborts.items()}
    for name, task in all_ended(q, cases, max_attempts=5, retry=0).items():
        assert (task.state, task.reason, task.attempt) == ("buried", "aborted", 1), name
        assert "no such page" in task.error, name


def test_abort_from_a_task_group_is_an_abort(memory: Any) -> None:  # case 272
    async def step() -> None:
        raise Abort("no such page")

    async def job(data: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(step())

    assert ended(memory, job, max_attempts=5).reason == "aborted"


def test_an_abort_that_was_handled_is_none(memory: Any) -> None:
    def job(data: Any) -> None:
        try:
            raise Abort("no such page")
        except Abort:
            raise ValueError("something else") from None

    assert ended(memory, job).reason == "no_attempts"


BURIES: dict[str, tuple[BaseException, str | None]] = {
    "a reason": (Bury("needs a look"), "needs a look"),
    "none": (Bury(), None),
    "empty": (Bury(""), None),
    "an error": (Bury(ValueError("x")), "ValueError: x"),
    "a number": (Bury(404), "404"),  # type: ignore[arg-type]
    "odd letters": (Bury("a\0b \ud800"), "a\ufffdb ?"),
    "huge": (Bury("x" * 1_000_000), "x" * 4096),
    "from a task group": (ExceptionGroup("one", [Bury("needs a look")]), "needs a look"),
}


def test_bury_sets_the_task_aside_with_the_reason(q: Any) -> None:
    cases = {name: partial(throw, error) for name, (error, _) in BURIES.items()}
    for name, task in all_ended(q, cases, max_attempts=5).items():
        assert (task.state, task.reason, task.error or None) == ("buried", "asked", BURIES[name][1]), name


@on_both
def test_release_gives_the_task_back_after_a_delay(q: Any) -> None:
    before = datetime.now(UTC)
    delays = {
        "int": 3600,
        "float": 3600.0,
        "timedelta": timedelta(hours=1),
        "datetime": before + timedelta(hours=1),
        "elsewhere": before.astimezone(timezone(timedelta(hours=5))) + timedelta(hours=1),
    }
    for name, task in all_ended(q, {name: partial(throw, Release(delay)) for name, delay in delays.items()}).items():
        assert (task.state, task.attempt, task.errors) == ("delayed", 1, []), name
        assert timedelta(minutes=59) < task.ready_at - before, name
        assert task.ready_at - datetime.now(UTC) < timedelta(minutes=61), name


@pytest.mark.parametrize("delay", [None, 0, -5, timedelta(0), datetime(2020, 1, 1, tzinfo=UTC)], ids=str)
def test_a_task_released_without_delay_comes_again(delay: Any) -> None:
    q = penstock.connect("memory:")
    seen: list[int] = []

    @q.handler("jobs", keep=True, max_attempts=1)
    def job(data: Any, run: Run) -> None:
        seen.append(run.attempt)
        if run.attempt < 3:
            raise Release(delay)

    task = job.put(1)
    work(q)
    found = q.tube("jobs").peek(task.id)
    assert (seen, found.reason, found.errors) == ([1, 2, 3], "success", [])


def test_a_delay_that_is_none_fails_the_task(q: Any) -> None:
    delays: dict[str, Any] = {
        "text": "soon",
        "nan": float("nan"),
        "bool": True,
        "naive": datetime(2024, 1, 1),
        "object": object(),
    }
    for name, task in all_ended(q, {name: partial(throw, Release(delay)) for name, delay in delays.items()}).items():
        assert (task.state, task.reason) == ("buried", "no_attempts"), name
        assert "UsageError" in task.error and "delay" in task.error, name


def test_a_delay_on_a_kind_without_delays_buries_and_says_so(q: Any) -> None:
    task = ended(q, raising(lambda: Release(5)), kind="fifo", max_attempts=5)
    assert (task.state, task.reason, task.attempt) == ("buried", "aborted", 1)
    assert "delay" in task.error


@on_both
def test_release_for_ever_is_for_ever(q: Any) -> None:
    handler = q.handler("jobs")(raising(lambda: Release(float("inf"))))
    id = handler.put("x").id
    work(q, horizon=60)
    task = q.tube("jobs").peek(id)
    assert (task.state, task.ready_at) == ("delayed", None)


def test_a_ttl_that_has_passed_meanwhile_ends_what_is_given_back(still: Still) -> None:
    q = still.connect()
    ran: list[int] = []

    def job(data: Any, run: Run) -> None:
        ran.append(data)
        still.clock.advance(60)
        raise Release

    task = q.handler("jobs", ttl=50, keep=True, keep_failed=True)(job).put(1)
    work(q)
    found = q.tube("jobs").peek(task.id)
    assert (ran, found.state, found.reason) == ([1], "done", "expired")


@on_both
def test_a_cancelled_task_ends_cancelled_however_its_handler_ends(still: Still, later: Later) -> None:
    q = still.connect()
    started = threading.Event()

    @q.handler("jobs", keep=True, keep_failed=True, max_attempts=9)
    def job(data: Any, run: Run) -> None:
        started.set()
        run.wait(PATIENCE)
        run.check()

    task = job.put(1)
    with Working(q):
        assert started.wait(PATIENCE)
        q.tube("jobs").cancel(task.id)
        still.clock.advance(1)  # what was cancelled is learnt when the session is kept alive
        found = until_state(q.tube("jobs"), task.id, "done")
    assert (found.reason, found.attempt) == ("cancelled", 1)


# -- with their own hands --------------------------------------------------------------------------


BY_HAND: dict[str, tuple[Callable[[Any], Any], tuple[str, str | None]]] = {
    "ack": (lambda task: task.ack("by hand"), ("done", "success")),
    "release": (lambda task: task.release(3600), ("delayed", None)),
    "bury": (lambda task: task.bury("by hand"), ("buried", "asked")),
    "fail": (lambda task: task.fail("by hand"), ("buried", "no_attempts")),
    "abort": (lambda task: task.fail("by hand", abort=True), ("buried", "aborted")),
}
THEN: dict[str, Callable[[], Any]] = {
    "return": lambda: "too late",
    "raise": lambda: throw(ValueError("too late")),
    "abort": lambda: throw(Abort("too late")),
    "release": lambda: throw(Release()),
}


def test_a_task_that_its_handler_has_ended_stays_as_it_is(q: Any) -> None:  # case 252
    def end(verb: Callable[[Any], Any], then: Callable[[], Any]) -> Any:
        verb(current_run().task)
        return then()

    cases = {f"{verb}, then {then}": partial(end, BY_HAND[verb][0], THEN[then]) for verb in BY_HAND for then in THEN}
    for name, task in all_ended(q, cases).items():
        assert (task.state, task.reason) == BY_HAND[name.partition(",")[0]][1], name
        assert (task.attempt, "too late" in f"{task.error} {task.result}") == (1, False), name


def test_an_async_handler_may_end_its_task_by_hand_too(q: Any) -> None:
    async def job(data: Any, run: Run) -> None:
        run.task.ack({"n": 1})

    assert ended(q, job, keep=True).result == {"n": 1}


def test_an_async_handler_awaits_the_verbs_of_its_task(every_q: Any) -> None:
    verbs = {
        "ack": lambda task: task.ack("by hand"),
        "bury": lambda task: task.bury("x"),
        "release": lambda task: task.release(3600),
    }
    seen: list[Any] = []

    @every_q.handler("jobs", keep=True, attempt_limit=600, max_attempts=1)
    async def job(data: str, run: Run) -> str:
        task = run.atask
        await task.touch(6000)
        seen.append((task.id == run.task.id, task.data, run.time_left > 3000, task.token == run.task.token))
        await verbs[data](task)
        assert run.task.state == task.state != "taken"
        return "too late"

    ids = {verb: job.put(verb).id for verb in verbs}
    work(every_q, horizon=60)
    assert seen == [(True, verb, True, True) for verb in verbs]
    found = {verb: every_q.tube("jobs").peek(id) for verb, id in ids.items()}
    assert {verb: str(task.state) for verb, task in found.items()} == {
        "ack": "done",
        "bury": "buried",
        "release": "delayed",
    }
    assert found["ack"].result == "by hand"


@on_both
@pytest.mark.parametrize("then", ["commit", "roll back"])
def test_an_async_handler_ends_its_task_together_with_what_it_puts(bench: Bench, then: str) -> None:
    async def main() -> Any:
        async with await penstock.aconnect(bench.url, durability="relaxed") as q:
            more = await q.create_tube("more")

            @q.handler("jobs", keep=True, max_attempts=1)
            async def job(data: str, run: Run) -> str:
                with contextlib.suppress(Undo):
                    async with q.transaction() as tx:
                        await more.put(data, transaction=tx)
                        await run.atask.ack("together", transaction=tx)
                        if then != "commit":
                            raise Undo
                return "alone"

            task = await job.put("x")
            await penstock.Worker(q).arun(until_empty=True)
            found = await (await q.tube("jobs")).peek(task.id)
            return found.result, len(await more.tasks())

    assert asyncio.run(main()) == (("together", 1) if then == "commit" else ("alone", 0))


def test_only_async_handlers_have_a_task_to_await(memory: Any) -> None:
    task = ended(memory, lambda data: current_run().atask)
    assert "run.atask is for async handlers" in task.error


class Undo(Exception):
    """Rolls a transaction back."""


@pytest.fixture
def other(bench: Bench) -> Any:
    """A blocking queue of the program, for transactions of its own."""
    with penstock.connect(bench.url, durability="relaxed") as queue:
        yield queue


@on_both
@pytest.mark.parametrize("then", ["returns", "raises"])
def test_an_end_that_was_rolled_back_does_not_count(q: Any, other: penstock.Queue, then: str) -> None:
    def job(data: Any, run: Run) -> str:
        with contextlib.suppress(Undo), other.transaction() as tx:
            run.task.ack("rolled back", transaction=tx)
            raise Undo
        if then == "raises":
            raise ValueError("x")
        return "second thoughts"

    task = ended(q, job, keep=True)
    if then == "returns":
        assert (task.state, task.reason, task.result) == ("done", "success", "second thoughts")
    else:
        assert (task.state, task.reason) == ("buried", "no_attempts")


@on_both
@pytest.mark.parametrize("then", ["returns", "raises"])
def test_a_handler_ends_its_task_together_with_what_it_puts(q: Any, other: penstock.Queue, then: str) -> None:
    more = other.create_tube("more")

    def job(data: Any, run: Run) -> str:
        with other.transaction() as tx:
            more.put(data, transaction=tx)
            run.task.ack("together", transaction=tx)
        if then == "raises":
            raise ValueError("x")
        return "too late"

    assert ended(q, job, keep=True).result == "together"
    assert [task.data for task in more.tasks()] == ["x"]


@on_both
def test_a_task_deleted_under_its_handler_troubles_nobody(q: Any) -> None:
    @q.handler("jobs")
    def job(data: Any, run: Run) -> None:
        if data == 1:
            run.task._tube.delete(run.task.id)

    job.put_many([1, 2])
    work(q)
    assert q.tube("jobs").tasks() == []


def test_outcomes_say_what_they_are() -> None:
    assert str(Release()) == "to be taken again"
    assert "30" in str(Release(30))
    assert str(Bury()) == "buried by its handler"
    assert (Bury("x").reason, str(Bury("x"))) == ("x", "x")


@on_both
def test_a_handlers_task_is_nobody_elses(q: Any, other: penstock.Queue) -> None:
    def job(data: Any, run: Run) -> str:
        with pytest.raises(penstock.NotOwner):
            other.tube("jobs").ack(run.task.id)
        return "still mine"

    assert ended(q, job, keep=True).result == "still mine"
