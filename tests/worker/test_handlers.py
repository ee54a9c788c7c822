"""Functions as handlers: what may be one, where it runs, how it is called."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.worker.bench import PATIENCE, Working, until, work
from tests.worker.conftest import on_both

import penstock
from penstock import Run, UsageError, current_run


def test_a_function_is_called_with_the_data_of_every_task(every_q: Any) -> None:
    seen: list[Any] = []

    @every_q.handler("jobs")
    def job(data: Any) -> None:
        seen.append(data)

    job.put({"n": 1})
    job.put_many([2, penstock.Entry(3, pri=5)])
    tally = work(every_q, concurrency=1)
    assert (seen, tally.ok, tally.trouble) == ([{"n": 1}, 2, 3], 3, 0)
    assert every_q.tube("jobs").tasks() == []


def test_an_async_function_runs_in_the_loop_and_the_others_in_threads(q: Any) -> None:
    threads: dict[str, set[str]] = {"async": set(), "sync": set()}

    @q.handler("loop")
    async def in_loop(data: Any) -> None:
        await asyncio.sleep(0)
        threads["async"].add(threading.current_thread().name)

    @q.handler("threads")
    def in_thread(data: Any) -> None:
        threads["sync"].add(threading.current_thread().name)

    in_loop.put_many(range(3))
    in_thread.put_many(range(3))
    assert work(q).ok == 6
    assert len(threads["async"]) == 1
    assert all("penstock handler" in name for name in threads["sync"])
    assert not threads["async"] & threads["sync"]


def test_the_function_stays_what_it_was() -> None:
    q = penstock.connect("memory:")

    @q.handler("squares")
    def square(n: int, times: int = 1) -> int:
        """n * n."""
        return n * n * times

    assert square(3) == 9
    assert square(n=3, times=2) == 18
    assert (square.__name__, square.__doc__, square.__module__) == ("square", "n * n.", __name__)
    assert "square" in repr(square) and "squares" in repr(square)
    assert square.tube_name == "squares"
    assert q.handlers["squares"] is square


def test_an_async_handler_stays_awaitable() -> None:
    q = penstock.connect("memory:")

    @q.handler("squares")
    async def square(n: int) -> int:
        return n * n

    assert asyncio.run(square(3)) == 9


def test_workers_run_two_handlers_at_once(memory: Any) -> None:  # case 254
    meeting = threading.Barrier(2, timeout=PATIENCE)

    @memory.handler("jobs", retry=0, max_attempts=1)
    def meet(data: Any) -> None:
        meeting.wait()

    meet.put_many([1, 2])
    assert work(memory, concurrency=2).ok == 2


def test_no_more_handlers_run_than_the_worker_has_slots(q: Any) -> None:  # case 287
    running, most = 0, 0
    lock = threading.Lock()
    meeting = threading.Barrier(2, timeout=PATIENCE)

    @q.handler("jobs", max_attempts=1)
    def job(n: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if n < 2:
            meeting.wait()
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    job.put_many(range(20))
    assert work(q, concurrency=2).ok == 20
    assert most == 2


@on_both
def test_concurrency_of_a_tube_holds_over_all_workers(bench: Any, q: Any) -> None:  # case 287
    running, most = 0, 0
    lock = threading.Lock()

    def job(data: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    other = bench.connect()
    one = q.handler("jobs", concurrency=1)(job)
    two = other.handler("jobs", concurrency=1)(job)
    one.put_many(range(6))
    two.put_many(range(6))
    with Working(q, concurrency=4), Working(other, concurrency=4):
        until(lambda: not any(q.statistics()["jobs"].tasks[state] for state in ("ready", "taken")))
    assert most == 1
    assert q.tube("jobs").options["concurrency"] == 1


# -- what may be a handler -------------------------------------------------------------------------


class Office:
    """Things of a class that can be called."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def method(self, data: int) -> None:
        self.seen.append(data)

    async def async_method(self, data: int) -> None:
        self.seen.append(data)

    @classmethod
    def of_class(cls, data: int) -> None:
        cls.shared.append(data)

    @staticmethod
    def static(data: int) -> None:
        Office.shared.append(data)

    shared: list[Any] = []


class Called:
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __call__(self, data: int) -> None:
        self.seen.append(data)


class AsyncCalled(Called):
    async def __call__(self, data: int) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.seen.append(data)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    return wrapper


def finished(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(function(*args, **kwargs))

    return wrapper


def add(seen: list[Any], data: int, by: int = 0) -> None:
    seen.append(data + by)


async def aadd(seen: list[Any], data: int, by: int = 0) -> None:
    await asyncio.sleep(0)
    seen.append(data + by)


def plain(seen: list[Any]) -> Callable[[int], None]:
    def job(data: int) -> None:
        seen.append(data)

    return job


def plain_async(seen: list[Any]) -> Callable[[int], Any]:
    async def job(data: int) -> None:
        await asyncio.sleep(0)
        seen.append(data)

    return job


def forgetful(seen: list[Any]) -> Callable[[int], Any]:
    async def job(data: int) -> Any:
        return aadd(seen, data)

    return job


FUNCTIONS: dict[str, Callable[[list[Any]], Callable[..., Any]]] = {
    "a method": lambda seen: Office(seen).method,
    "an async method": lambda seen: Office(seen).async_method,
    "an object that can be called": Called,
    "an object that is awaited": AsyncCalled,
    "a partial": lambda seen: functools.partial(add, seen),
    "a partial with a keyword": lambda seen: functools.partial(add, seen, by=0),
    "an async partial": lambda seen: functools.partial(aadd, seen),
    "a partial of an object that is awaited": lambda seen: functools.partial(AsyncCalled(seen)),
    "a lambda": lambda seen: lambda data: seen.append(data),
    "a lambda that gives a coroutine": lambda seen: lambda data: aadd(seen, data),
    "a builtin": lambda seen: seen.append,
    "any arguments": lambda seen: lambda *args, **more: seen.append(args[0]),
    "decorated": lambda seen: logged(plain(seen)),
    "async and decorated by a plain function": lambda seen: logged(plain_async(seen)),
    "async and decorated by an async function": lambda seen: awaited(plain(seen)),
    "async, and its decorator runs it": lambda seen: finished(plain_async(seen)),
    "cached": lambda seen: functools.cache(plain(seen)),
    "async, and gives a coroutine": lambda seen: forgetful(seen),
    "a staticmethod object": lambda seen: staticmethod(plain(seen)),
}


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)
def test_anything_that_takes_the_data_is_a_handler(make: Callable[[list[Any]], Callable[..., Any]]) -> None:
    q = penstock.connect("memory:")
    seen: list[Any] = []
    handler = q.handler("jobs", max_attempts=1)(make(seen))
    task = handler.put(7, keep=True)
    assert work(q).ok == 1, q.tube("jobs").peek(task.id).error
    assert seen == [7]
    assert repr(handler)


def test_methods_of_the_class_are_handlers() -> None:
    q = penstock.connect("memory:")
    Office.shared.clear()
    q.handler("a")(Office.of_class).put(1)
    q.handler("b")(Office.static).put(2)
    assert work(q).ok == 2
    assert sorted(Office.shared) == [1, 2]


def test_a_handler_in_a_class_is_a_static_method() -> None:
    q = penstock.connect("memory:")

    class Mail:
        @staticmethod
        @q.handler("mail")
        def send(address: str) -> str:
            return f"to {address}"

    assert Mail.send("ann") == Mail().send("ann") == "to ann"


def test_one_function_may_serve_two_tubes(every_q: Any) -> None:
    seen: list[Any] = []

    @every_q.handler("a", max_attempts=3)
    @every_q.handler("b", max_attempts=4)
    def job(data: Any, run: Run) -> None:
        seen.append((run.task.tube, data, run.task.max_attempts))

    assert job.tube_name == "a"
    job.put(1)
    every_q.create_tube("b", max_attempts=4).put(2)
    assert work(every_q).ok == 2
    assert sorted(seen) == [("a", 1, 3), ("b", 2, 4)]


def test_attributes_of_the_function_do_not_meet_those_of_the_handler() -> None:
    q = penstock.connect("memory:")

    def job(data: Any) -> None: ...

    job.kind = job.tube_name = job.options = job.shape = job._queue = "mine"  # type: ignore[attr-defined]
    made = q.handler("jobs")(job)
    assert (made.tube_name, made.kind, made.options) == ("jobs", None, {})
    assert made.put(1).tube == "jobs"


# -- what is refused -------------------------------------------------------------------------------


def no_parameter() -> None: ...
def keyword_only(*, data: Any) -> None: ...
def only_keywords(**data: Any) -> None: ...
def two(data: Any, other: Any) -> None: ...
def two_positional(data: Any, other: Any, /) -> None: ...
def run_by_position(data: Any, run: Any, /) -> None: ...
def extra_keyword(data: Any, *, other: Any) -> None: ...
def run_first(run: Run) -> None: ...
def run_alone(run) -> None: ...  # type: ignore[no-untyped-def]
def generator(data: Any) -> Any:
    yield data


async def async_generator(data: Any) -> Any:
    yield data


def unknown_type(data: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def odd_type(data: threading.Thread) -> None: ...
def odd_inside(data: dict[str, list[threading.Thread]]) -> None: ...


class Making:
    def __init__(self, data: Any) -> None: ...


REFUSED = [
    (no_parameter, "no_parameter"),
    (keyword_only, "keyword_only"),
    (only_keywords, "only_keywords"),
    (two, "'other'"),
    (two_positional, "'other'"),
    (run_by_position, "'run'"),
    (extra_keyword, "'other'"),
    (Office.method, "'data'"),
    (run_first, "first parameter"),
    (run_alone, "first parameter"),
    (generator, "generator"),
    (functools.partial(generator), "generator"),
    (async_generator, "generator"),
    (unknown_type, "Nowhere"),
    (odd_type, "Thread"),
    (odd_inside, "Thread"),
    (Making, "class"),
    (None, "None"),
    ("job", "'job'"),
    (5, "5"),
]


@pytest.mark.parametrize(
    ("function", "named"), REFUSED, ids=[str(named) + str(n) for n, (_, named) in enumerate(REFUSED)]
)
def test_what_cannot_be_called_with_the_data_is_refused_when_it_is_decorated(function: Any, named: str) -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match=named):
        q.handler("jobs")(function)
    assert dict(q.handlers) == {}


def test_a_function_that_gives_a_generator_fails(memory: Any) -> None:
    task = memory.handler("jobs", max_attempts=1)(logged(generator)).put(1)
    assert work(memory).trouble == 1
    assert "generator" in memory.tube("jobs").peek(task.id).error


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_attempt": 5}, "max_attempt"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"attempt_limit": -1}, "attempt_limit"),
        ({"attempt_limit": "soon"}, "attempt_limit"),
        ({"attempt_limit": 5, "ttr": 5}, "attempt_limit"),
        ({"retry": -1}, "retry"),
        ({"retry": []}, "retry"),
        ({"ttl": float("nan")}, "ttl"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"keep": "yes"}, "keep"),
        ({"kind": "fancy"}, "fancy"),
        ({"kind": "fifo", "retry": 5}, "retry"),
        ({"kind": "fifo", "attempt_limit": 5}, "attempt_limit"),
    ],
    ids=str,
)
def test_options_that_no_tube_has_are_refused_when_the_function_is_decorated(
    options: dict[str, Any], named: str
) -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match=named):
        q.handler("jobs", **options)(lambda data: None)


def test_a_decorator_without_a_tube_is_refused() -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match=r"@q.handler\(\"name\"\)"):

        @q.handler
        def job(data: Any) -> None: ...

    with pytest.raises(UsageError, match="bad name"):
        q.handler("bad name")


def test_the_tube_of_schedules_is_for_workers() -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match=r"penstock\.schedules"):
        q.handler("penstock.schedules")


def test_a_tube_has_one_handler() -> None:
    q = penstock.connect("memory:")

    @q.handler("jobs")
    def first(data: Any) -> None: ...

    with pytest.raises(UsageError, match=r"first .*second"):

        @q.handler("jobs")
        def second(data: Any) -> None: ...

    assert q.handlers["jobs"] is first


def test_a_handler_that_is_defined_again_replaces_itself() -> None:
    q = penstock.connect("memory:")

    def define(answer: int) -> Any:
        @q.handler("jobs", keep=True)
        def job(data: Any) -> int:
            return answer

        return job

    define(1)
    task = define(2).put("x")
    work(q)
    assert q.tube("jobs").result(task.id) == 2


def test_two_lambdas_are_two_handlers() -> None:
    q = penstock.connect("memory:")
    q.handler("jobs")(lambda data: 1)
    with pytest.raises(UsageError, match="lambda"):
        q.handler("jobs")(lambda data: 2)


def test_a_handler_in_a_process_is_no_async_function() -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match="async"):
        q.handler("jobs", process=True)(Office([]).async_method)


# -- the run ---------------------------------------------------------------------------------------


def test_a_parameter_called_run_gets_the_run(q: Any) -> None:
    seen: list[Any] = []

    @q.handler("jobs", max_attempts=7, attempt_limit=600)
    def job(data: Any, run: Run) -> None:
        seen.append(run)

    task = job.put({"n": 1}, lane="a", key="k")
    work(q)
    (run,) = seen
    assert isinstance(run, Run)
    assert (run.data, run.attempt, run.last_attempt, run.cancelled) == ({"n": 1}, 1, False, False)
    assert (run.task.id, run.task.lane, run.task.key, run.task.max_attempts) == (task.id, "a", "k", 7)
    assert 0 < run.time_left <= 600
    assert run.facts == {"tube": "jobs", "task_id": task.id, "attempt": 1, "lane": "a", "key": "k"}
    assert isinstance(run.task.token, int)
    assert "jobs" in repr(run)


def test_a_parameter_of_type_run_gets_the_run_whatever_its_name(memory: Any) -> None:
    seen: list[Any] = []

    @memory.handler("a")
    def one(data: Any, *, this: Run) -> None:
        seen.append(this.task.tube)

    @memory.handler("b")
    async def two(data: Any, mine: Run, more: int = 3) -> None:
        seen.append(mine.task.tube)

    one.put(1)
    two.put(1)
    assert work(memory).ok == 2
    assert sorted(seen) == ["a", "b"]


def test_a_run_that_a_partial_has_given_stays() -> None:
    q = penstock.connect("memory:")
    seen: list[Any] = []

    def job(data: Any, run: str) -> None:
        seen.append(run)

    q.handler("jobs")(functools.partial(job, run="mine")).put(1)
    assert work(q).ok == 1
    assert seen == ["mine"]


def test_the_current_run_is_known_everywhere_below_the_handler(q: Any) -> None:
    seen: list[Any] = []

    def deep() -> None:
        seen.append(current_run().task.id)

    @q.handler("sync")
    def sync(data: Any) -> None:
        deep()

    @q.handler("async")
    async def in_loop(data: Any) -> None:
        await asyncio.create_task(deeper())

    async def deeper() -> None:
        deep()
        await asyncio.to_thread(deep)

    one, two = sync.put(1), in_loop.put(2)
    assert work(q).ok == 2
    assert sorted(seen) == sorted([one.id, two.id, two.id])
    with pytest.raises(LookupError, match="no handler"):
        current_run()


def test_runs_at_the_same_time_do_not_mix(memory: Any) -> None:
    seen: list[tuple[Any, Any]] = []
    meeting = threading.Barrier(4, timeout=PATIENCE)

    @memory.handler("jobs")
    def job(data: Any) -> None:
        meeting.wait()
        seen.append((data, current_run().data))

    job.put_many(range(4))
    assert work(memory, concurrency=4).ok == 4
    assert sorted(seen) == [(n, n) for n in range(4)]


def test_a_handler_may_put_tasks(every_q: Any, request: pytest.FixtureRequest) -> None:
    seen: list[Any] = []
    q = every_q
    is_async = "async" in request.node.callspec.id

    @q.handler("second")
    def second(data: Any) -> None:
        seen.append(data)

    if is_async:
        target = second._target

        @q.handler("first")
        async def first(data: Any) -> None:
            await target.put(data + 1)
            await target.put_many([data + 2])
    else:

        @q.handler("first")
        def first(data: Any) -> None:
            second.put(data + 1)
            second.put_many([data + 2])

    first.put(1)
    assert work(q).ok == 3
    assert sorted(seen) == [2, 3]


def test_a_handler_puts_more_into_the_tube_of_its_task(every_q: Any) -> None:
    @every_q.handler("pages", keep=True)
    def fetch(depth: int, run: penstock.Run) -> None:
        if depth:
            run.tube.put(depth - 1)

    @every_q.handler("links", keep=True)
    async def follow(depth: int, run: penstock.Run) -> None:
        if depth:
            await run.atube.put(depth - 1)

    fetch.put(2)
    follow.put(2)
    assert work(every_q).ok == 6
    assert [task.data for task in every_q.tube("pages").tasks()] == [2, 1, 0]
    assert [task.data for task in every_q.tube("links").tasks()] == [2, 1, 0]
