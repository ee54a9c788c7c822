"""The tubes of handlers: made and altered for them, of every kind, and tables of the user's."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.engines import COLOURS, ENGINES, Pair, parameters
from tests.support.shop import Shop, shop_on
from tests.worker.bench import PATIENCE, Bench, Working, until, work
from tests.worker.conftest import on_both

import penstock
from penstock import Exponential, Features, Kind, Release, Run, UsageError
from penstock.testing import ManualClock


def nothing(data: Any) -> None: ...


def made(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged about tubes."""
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("tube ")]


# -- made and altered ------------------------------------------------------------------------------


@on_both
def test_a_starting_worker_makes_the_tube_and_says_so(q: Any, caplog: pytest.LogCaptureFixture) -> None:
    q.handler("jobs", max_attempts=5, retry=[1, 5], attempt_limit=30, concurrency=2, keep=60)(nothing)
    with caplog.at_level(logging.INFO, "penstock"):
        work(q)
        work(q)
    options = q.tube("jobs").options
    assert q.tube("jobs").kind == "standard"
    assert [options[name] for name in ("max_attempts", "retry", "ttr", "concurrency", "keep")] == [5, (1, 5), 30, 2, 60]
    assert [line.startswith("tube 'jobs' was made for") for line in made(caplog)] == [True]


def test_the_first_put_makes_the_tube_too(every_q: Any) -> None:
    task = every_q.handler("jobs", max_attempts=5, kind="fifottl", ttl=50)(nothing).put(1)
    assert (task.max_attempts, task.ttl) == (5, 50)
    assert every_q.tube("jobs").kind == "fifottl"


def test_a_put_does_not_alter_a_tube_and_a_worker_does(every_q: Any, caplog: pytest.LogCaptureFixture) -> None:
    every_q.create_tube("jobs", max_attempts=3, retry=7, ttr=9)
    handler = every_q.handler("jobs", max_attempts=5, keep=True)(nothing)
    assert handler.put(1).max_attempts == 3
    with caplog.at_level(logging.INFO, "penstock"):
        work(every_q)
    options = every_q.tube("jobs").options
    assert [options[name] for name in ("max_attempts", "retry", "ttr")] == [5, 7, 9]
    (line,) = made(caplog)
    assert line.startswith("tube 'jobs' was altered for") and "'max_attempts': 5" in line and "retry" not in line


def test_a_tube_that_is_as_it_should_be_is_not_altered(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    retry = Exponential(base=2, max=60)
    options = {"max_attempts": 3, "ttr": 9.5, "keep": True, "capacity": 100, "retry": retry, "ttl": 60}
    memory.create_tube("jobs", **options)
    memory.handler("jobs", **options)(nothing)
    with caplog.at_level(logging.INFO, "penstock"):
        work(memory)
    assert made(caplog) == []


@on_both
def test_what_is_fixed_is_found_as_it_is(q: Any) -> None:
    ids = itertools.count(100)
    handlers = {
        "bytes": q.handler("bytes", payload="bytes")(nothing),
        "uuid": q.handler("uuid", id="uuid")(nothing),
        "function": q.handler("function", id=lambda: next(ids))(nothing),
        "temporary": q.handler("temporary", temporary=True)(nothing),
    }
    assert handlers["function"].put(1).id == 100
    assert isinstance(handlers["uuid"].put(1).id, str)
    handlers["bytes"].put(b"x")
    handlers["temporary"].put(1)
    assert work(q).ok == 4
    assert work(q).ok == 0
    assert q.tube("temporary").options["temporary"] is True


@on_both
def test_ids_are_made_by_the_function_of_the_handler_after_a_restart_too(bench: Bench) -> None:
    first, second = bench.connect(), bench.connect()
    assert first.handler("jobs", id=lambda: "a")(nothing).put(1).id == "a"
    assert second.handler("jobs", id=lambda: "b")(nothing).put(1).id == "b"


@pytest.mark.parametrize(
    ("options", "wanted", "named"),
    [
        ({"payload": "bytes"}, {}, None),
        ({}, {"payload": "bytes"}, "payload"),
        ({}, {"id": "uuid"}, "id"),
        ({}, {"temporary": True}, "temporary"),
        ({"kind": "fifo"}, {"kind": "utube"}, "kind"),
        ({"kind": "fifo"}, {"retry": 5}, "retry"),
    ],
    ids=str,
)
def test_what_a_tube_cannot_become_is_refused_when_the_worker_starts(
    options: dict[str, Any], wanted: dict[str, Any], named: str | None
) -> None:
    q = penstock.connect("memory:")
    q.create_tube("jobs", **options)
    q.handler("jobs", **wanted)(nothing)
    if named is None:
        work(q)
        return
    with pytest.raises(UsageError, match=named):
        work(q)


@on_both
def test_a_handler_that_changes_its_mind_changes_the_tube(bench: Bench) -> None:
    first, second = bench.connect(), bench.connect()
    first.handler("jobs", max_attempts=3, retry=5, concurrency=1)(nothing)
    work(first)
    second.handler("jobs", max_attempts=None, retry=[1, 2], concurrency=None)(nothing)
    work(second)
    options = second.tube("jobs").options
    assert [options[name] for name in ("max_attempts", "retry", "concurrency")] == [None, (1, 2), None]


@on_both
def test_two_programs_that_start_at_once_make_one_tube(bench: Bench) -> None:
    queues = [bench.connect() for _ in range(3)]
    go = threading.Barrier(len(queues), timeout=PATIENCE)
    errors: list[BaseException] = []

    def start(queue: Any) -> None:
        try:
            handler = queue.handler("jobs", max_attempts=7)(nothing)
            go.wait()
            handler.put(1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert len(queues[0].tube("jobs").tasks()) == 3


def test_a_worker_may_serve_some_tubes_of_a_program(memory: Any) -> None:
    seen: list[Any] = []
    for name in ("a", "b", "c"):
        memory.handler(name)(lambda data: seen.append(data)).put(name)
    work(memory, tubes=["a", "c"])
    assert sorted(seen) == ["a", "c"]


def test_a_put_to_a_tube_nobody_made_is_refused(memory: Any) -> None:  # case 257
    memory.handler("jobs")(nothing)
    with pytest.raises(penstock.TubeNotFound):
        memory.tube("other")


# -- keys ------------------------------------------------------------------------------------------


def test_keys_are_those_of_the_tube(every_q: Any) -> None:  # cases 260, 261, 263, 264, 265
    seen: list[Any] = []

    def job(data: Any, run: Run) -> None:
        seen.append((run.task.key, data))

    one = every_q.handler("one")(job)
    two = every_q.handler("two")(job)
    first = one.put(1, key="k")
    assert first.id == every_q.tube("one").peek(first.id).id
    with pytest.raises(penstock.DuplicateKey):
        one.put(2, key="k")
    assert one.put(2, key="k", on_conflict="ignore").outcome == "existing"
    assert one.put(3, key="k", on_conflict="replace").outcome == "replaced"
    two.put(4, key="k")
    one.put(5, key="")
    one.put(6, key="")
    assert work(every_q, concurrency=1).ok == 4
    assert sorted(seen, key=str) == sorted([("k", 3), ("k", 4), (None, 5), (None, 6)], key=str)
    one.put(7, key="k")
    assert work(every_q).ok == 1


@on_both
def test_two_programs_and_a_hundred_tasks_run_each_once(bench: Bench) -> None:  # case 286
    seen: list[int] = []
    one, two = bench.connect(), bench.connect()
    for queue in (one, two):
        handler = queue.handler("jobs")(seen.append)
    with Working(one), Working(two):
        handler.put_many(range(100))
        until(lambda: len(seen) >= 100)
        until(lambda: not one.statistics()["jobs"].tasks["taken"])
    assert sorted(seen) == list(range(100))


# -- kinds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "limfifottl", "utube", "utubettl", "standard"])
def test_handlers_serve_tubes_of_every_kind(q: Any, kind: str) -> None:
    seen: list[Any] = []

    @q.handler("jobs", kind=kind, keep=True, max_attempts=2)
    def job(data: Any, run: Run) -> None:
        seen.append((data, run.attempt))
        if data == "fail" and run.attempt == 1:
            raise ValueError
        if data == "release" and run.attempt == 1:
            raise Release
        if data == "abort":
            raise penstock.Abort

    if kind in ("fifottl", "limfifottl", "utubettl", "standard"):
        q.create_tube("jobs", kind, retry=0, max_attempts=2, if_not_exists=True)
    tasks = {data: job.put(data) for data in ("ok", "fail", "release", "abort")}
    work(q, concurrency=2)
    reasons = {data: q.tube("jobs").peek(task.id).reason for data, task in tasks.items()}
    assert reasons == {"ok": "success", "fail": "success", "release": "success", "abort": "aborted"}
    assert sorted(seen) == [("abort", 1), ("fail", 1), ("fail", 2), ("ok", 1), ("release", 1), ("release", 2)]


@on_both
def test_a_lane_of_a_utube_is_worked_on_one_by_one(q: Any) -> None:
    busy: dict[str, int] = {"a": 0, "b": 0}
    most: dict[str, int] = {"a": 0, "b": 0}
    lock = threading.Lock()
    together = threading.Event()

    @q.handler("jobs", kind="utube")
    def job(lane: str, run: Run) -> None:
        with lock:
            busy[lane] += 1
            most[lane] = max(most[lane], busy[lane])
            if all(busy.values()):
                together.set()
        together.wait(PATIENCE)
        with lock:
            busy[lane] -= 1

    for n in range(8):
        job.put("ab"[n % 2], lane="ab"[n % 2])
    assert work(q, concurrency=8).ok == 8
    assert most == {"a": 1, "b": 1}
    assert together.is_set()


class Watched(Kind):
    """A kind whose hooks write down what they are told."""

    features = Features(pri=True, ttl=True, ttr=True, delay=True)
    defaults = {"max_attempts": 2}

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.delay: Any = 0

    def check_put(self, entry: Any) -> None:
        if entry.data == "refused":
            raise UsageError("refused by the kind")

    def retry_delay(self, task: Any, failure: int) -> Any:
        self.told.append(("retry", task.data, failure))
        if isinstance(self.delay, BaseException):
            raise self.delay
        return self.delay

    def on_finish(self, task: Any) -> None:
        self.told.append(("finish", task.data, str(task.reason)))
        if task.data == "loud":
            raise RuntimeError("hook")


@pytest.fixture
def watched(q: Any) -> Watched:
    kind = Watched()
    q.register_kind("watched", kind)
    return kind


def outcome(data: Any, run: Run) -> Any:
    """Does what the data say."""
    if data == "abort":
        raise penstock.Abort
    if data == "bury":
        raise penstock.Bury("why")
    if data == "fail" or (data == "twice" and run.attempt == 1):
        raise ValueError
    if data == "release" and run.attempt == 1:
        raise Release
    return data


@on_both
def test_hooks_of_a_kind_are_called_for_what_handlers_do(q: Any, watched: Watched) -> None:
    handler = q.handler("jobs", kind="watched", keep=True)(outcome)
    with pytest.raises(UsageError, match="refused by the kind"):
        handler.put("refused")
    handler.put_many(["ok", "abort", "bury", "fail", "twice", "release", "loud"])
    work(q, concurrency=1)
    finished = {data: reason for what, data, reason in watched.told if what == "finish"}
    assert finished == {
        **dict.fromkeys(("ok", "twice", "release", "loud"), "success"),
        "abort": "aborted",
        "bury": "asked",
        "fail": "no_attempts",
    }
    assert sorted(call[1:] for call in watched.told if call[0] == "retry") == [("fail", 1), ("fail", 2), ("twice", 1)]


def test_the_delay_of_a_kind_is_that_of_the_retry(q: Any, watched: Watched) -> None:
    watched.delay = 3600
    task = q.handler("jobs", kind="watched")(outcome).put("fail")
    work(q, horizon=60)
    assert q.tube("jobs").peek(task.id).state == "delayed"


@pytest.mark.parametrize("delay", ["soon", -1, KeyError("hook"), RuntimeError()], ids=repr)
def test_a_hook_that_breaks_buries_the_task_and_says_so(q: Any, watched: Watched, delay: Any) -> None:
    watched.delay = delay
    handler = q.handler("jobs", kind="watched", max_attempts=9, keep=True)(outcome)
    tasks = handler.put_many(["fail", "ok", "ok"])
    tally = work(q, concurrency=1)
    assert (tally.ok, tally.trouble) == (2, 1)
    found = [q.tube("jobs").peek(task.id) for task in tasks]
    assert [task.reason for task in found] == ["aborted", "success", "success"]
    assert "retry_delay" in found[0].error or "hook" in found[0].error


def test_a_kind_that_is_only_features_serves_too(memory: Any) -> None:
    memory.register_kind("urgent", Features(pri=True))
    seen: list[Any] = []
    handler = memory.handler("jobs", kind="urgent")(seen.append)
    handler.put(1, pri=5)
    handler.put(2, pri=-5)
    assert work(memory, concurrency=1, prefetch=0).ok == 2
    assert seen == [2, 1]
    assert memory.tube("jobs").options["retry"] is None


# -- tables of the user's --------------------------------------------------------------------------

WITH_TABLES: list[Pair] = [(engine, COLOURS[n % 2]) for n, engine in enumerate(ENGINES) if engine.durable]


@pytest.fixture(params=parameters(WITH_TABLES, in_every_run=("sqlite-async", "postgres-blocking")))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    engine, colour = request.param
    bench = Bench(engine, colour, tmp_path, ManualClock())
    shop = shop_on(bench)
    yield shop
    shop.close()
    bench.close()


@dataclass
class Order:
    item: str
    amount: int = 1


def test_a_handler_of_a_table_gets_its_rows(shop: Shop) -> None:
    shop.orders({"id": "auto_increment", "delayed": True, "buried": True, "keep": True}, max_attempts=1)
    for item in ("tea", "milk", "odd", "wait"):
        shop.sql("INSERT INTO orders (status, item, amount) VALUES ('R', ?, 2)", (item,))
    seen: list[Any] = []

    @shop.q.handler("orders")
    def job(order: dict[str, Any], run: Run) -> None:
        seen.append((order["item"], order["amount"]))
        if order["item"] == "odd":
            raise ValueError("odd")
        if order["item"] == "wait":
            raise Release(3600)

    work(shop.q, horizon=60)
    assert sorted(seen) == [("milk", 2), ("odd", 2), ("tea", 2), ("wait", 2)]
    assert dict(shop.sql("SELECT item, status FROM orders")) == {"tea": "D", "milk": "D", "odd": "B", "wait": "W"}


@pytest.mark.parametrize("shop", parameters(WITH_TABLES, in_every_run=("sqlite-async",)), indirect=True)
def test_a_row_has_a_type_too(shop: Shop) -> None:
    shop.orders({"id": "auto_increment", "buried": True, "keep": True}, fields={"status": "status"})
    seen: list[Any] = []

    @shop.q.handler("orders")
    def job(order: Order) -> None:
        seen.append(order)

    shop.sql("INSERT INTO orders (status, item) VALUES ('R', 'tea')")
    shop.sql("INSERT INTO orders (status, item) VALUES ('R', NULL)")
    work(shop.q)
    assert seen == [Order("tea")]
    assert shop.letters() == {"D": 1, "B": 1}
    bad = shop.q.tube("orders").tasks(state="buried")[0]
    assert "Order" in bad.error


def test_a_handler_changes_columns_of_its_row(shop: Shop) -> None:
    shop.orders({"id": "auto_increment", "keep": True})
    shop.sql("INSERT INTO orders (status, item) VALUES ('R', 'tea')")

    @shop.q.handler("orders")
    def job(order: dict[str, Any], run: Run) -> None:
        run.task.ack(update={"amount": 9})

    assert work(shop.q).ok == 1
    assert shop.sql("SELECT status, amount FROM orders") == [("D", 9)]


def test_a_handler_puts_rows(shop: Shop) -> None:
    shop.orders()
    seen: list[Any] = []

    @shop.q.handler("orders")
    def job(order: Order) -> None:
        seen.append(order)

    job.put(Order("tea", 3))
    assert shop.sql("SELECT item, amount FROM orders") == [("tea", 3)]
    assert work(shop.q).ok == 1
    assert seen == [Order("tea", 3)]


@pytest.mark.parametrize("shop", parameters(WITH_TABLES, in_every_run=("sqlite-async",)), indirect=True)
def test_a_table_that_says_nothing_about_failures_has_the_defaults_it_can_have(shop: Shop) -> None:
    shop.orders({"id": "auto_increment", "buried": True}, fields={"status": "status"})
    shop.q.handler("orders")(nothing)
    work(shop.q)
    options = shop.q.tube("orders").options
    assert (options["max_attempts"], options["retry"], options["ttr"]) == (25, None, None)
