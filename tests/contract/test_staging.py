"""Staged rows become tasks like those of put_many, all at once or not at all."""

from __future__ import annotations

import itertools
import tracemalloc
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.support import postgres
from tests.support.engines import Bench, engine_parameters
from tests.support.staging import rows, stream

from penstock import (
    DuplicateKey,
    EngineUnavailable,
    Entry,
    PayloadTooLarge,
    TubeFull,
    TubeNotFound,
    UsageError,
    connect,
)
from penstock.model import ops
from penstock.model.duration import EPOCH, SECOND
from penstock.model.staging import Promoted
from penstock.testing import ManualClock

ODD = ['a\\b\t"x"\n', "\\N", "\\.", "\x7f\u2028é", "", {"n": [1, 2.5, None, True]}, "\\x41", "%s", "\r\n", "it's"]
NAMES = ["l'\\ane\t", "plain", None, "", "ü\nü", "%"]


@pytest.fixture(params=engine_parameters())
def bench(request, tmp_path, clock):
    with postgres.warmth():
        bench = Bench(request.param, "blocking", tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def do(q) -> Any:
    return q._engine.execute


def promote(do, tube: str, *parts: list[Entry], job: str = "job", on_conflict: Any = "ignore") -> Promoted:
    named = []
    for number, part in enumerate(parts):
        assert do(ops.Stage(tube, job, f"part {number}", rows(part))) == len(part)
        named.append((f"part {number}", len(part)))
    return do(ops.Promote(tube, job, tuple(named), on_conflict))


def seen(q, tube: str) -> dict[str, Any]:
    """All that can be told of a tube, but its name."""
    stored = q._engine.execute(ops.ListTasks(tube))
    return {
        "tasks": stored,
        "statistics": q.tube(tube).statistics(),
        "history": [row._replace(seq=0, tube="") for row in q._engine.execute(ops.ReadHistory(tube))],
    }


def cases(clock) -> dict[str, list[Entry]]:
    moment = EPOCH + timedelta(microseconds=clock.now())
    soon, past = moment + timedelta(seconds=30), moment - timedelta(seconds=30)
    return {
        "data": [Entry(data) for data in ODD],
        "pri": [Entry(n, pri=pri) for n, pri in enumerate([None, 3, -2, 0, None, 7])],
        "lane": [Entry(n, lane=lane) for n, lane in enumerate(NAMES * 2)],
        "times": [
            Entry(n, delay=delay, ttl=ttl, ttr=ttr)
            for n, (delay, ttl, ttr) in enumerate(itertools.product([None, 0, 2.5], [None, 60, 10**12], [None, 5]))
        ],
        "moments": [Entry(1, delay=soon), Entry(2, delay=past), Entry(3)],
        "forever": [Entry(1, delay=10**12), Entry(2, delay=1, ttl=2)],
        "ends": [Entry(1, max_attempts=2, keep=60), Entry(2, keep=0), Entry(3)],
        "repeat": [Entry(1, repeat=5), Entry(2, repeat=5, ttl=60, delay=1), Entry(3)],
        "all": [
            Entry({"n": n}, pri=n % 3, lane=NAMES[n % 6], delay=n % 2, ttl=60, ttr=5, max_attempts=3, keep=9)
            for n in range(12)
        ],
        "key": [Entry(n, key=key, lane="a") for n, key in enumerate(["k", None, "k'\\", "", "k", "m"])],
    }


KINDS = {
    "plain": {"kind": "standard"},
    "history": {"kind": "standard", "history": True, "history_data": True, "pri": 2},
    "turns": {"kind": "utubettl", "history": True, "ttl": 600, "ttr": 30},
    "one": {"kind": "standard", "lane_concurrency": 1, "lane_rate": 1, "lane_burst": 1},
    "strict": {"kind": "standard", "lane_order": "strict", "lane_concurrency": 1},
    "time64": {"kind": "standard", "id": "time64"},
    "derived": {"kind": "standard", "ttl": "derived", "ttr": 5, "max_attempts": 3},
    "temporary": {"kind": "standard", "temporary": True, "history": True},
    "room": {"kind": "standard", "capacity": 100, "max_payload": 100},
}


# In every run each kind has the case that sets all options, and one kind has each case; other pairs are exhaustive.
PAIRS = [
    pytest.param(kind, case, marks=() if kind == "history" or case == "all" else pytest.mark.exhaustive)
    for kind in KINDS
    for case in cases(ManualClock())
]


@pytest.mark.parametrize(("kind", "case"), PAIRS)
def test_promoted_rows_are_what_put_many_makes(q, do, clock, kind, case):
    entries = cases(clock)[case]
    for name in ("put", "staged"):
        q.create_tube(name, **KINDS[kind])
        q.tube(name).put_many([Entry("old", lane="plain", pri=5), "older"])
    q.tube("put").put_many([*entries, *entries[:2]] if case != "key" else entries, on_conflict="ignore")
    parts = [entries, entries[:2]] if case != "key" else [entries]
    keyed = [entry for entry in entries if entry.key]
    promoted = promote(do, "staged", *parts)
    assert promoted.new + promoted.existing == sum(map(len, parts))
    assert promoted.existing == len(keyed) - len({entry.key for entry in keyed})
    assert without_numbers(seen(q, "staged")) == without_numbers(seen(q, "put"))
    for _ in range(3):
        assert taken(q, "staged") == taken(q, "put")
        clock.advance(2)
    assert seen(q, "staged")["statistics"] == seen(q, "put")["statistics"]


def without_numbers(told: dict[str, Any]) -> dict[str, Any]:
    """Numbers are not given without gaps on every engine, and never twice; their order is what counts."""
    order = {task.id: place for place, task in enumerate(told["tasks"])}
    return {
        **told,
        "tasks": [task._replace(seq=0, id=0) for task in told["tasks"]],
        "history": [row._replace(task_id=order.get(row.task_id, -1)) for row in told["history"]],
    }


def taken(q, tube: str) -> list[Any]:
    tasks = q.tube(tube).take_many(7)
    q.tube(tube).ack_many(tasks)
    return [(task.data, task.lane, task.pri) for task in tasks]


def test_bytes_come_back_equal(q, do):
    q.create_tube("jobs", payload="bytes")
    data = [bytes(range(256)), b"", b"\\x41", b"\0"]
    promote(do, "jobs", [Entry(one) for one in data])
    assert [task.data for task in q.tube("jobs").tasks()] == data


def test_parts_stand_in_the_order_that_is_asked_for_and_portions_in_the_order_they_came(q, do):
    q.create_tube("jobs")
    for part, number in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        do(ops.Stage("jobs", "job", part, rows([Entry(number), Entry(number * 10)])))
    assert do(ops.Promote("jobs", "job", (("b", 2), ("a", 4)))) == Promoted(6)
    assert [task.data for task in q.tube("jobs").tasks()] == [2, 20, 1, 10, 3, 30]


def test_nothing_is_seen_of_staged_rows_and_a_discarded_job_is_forgotten(q, do, clock):
    q.create_tube("jobs")
    do(ops.Stage("jobs", "job", "a", rows([Entry(1)])))
    do(ops.Stage("jobs", "../job'2", "a/b", rows([Entry(2)])))
    clock.advance(5)
    do(ops.Stage("jobs", "job", "b", rows([Entry(3)])))
    assert q.tube("jobs").statistics().tasks["total"] == 0
    jobs = do(ops.ListStaged())
    assert [(job.job, job.tube, job.parts) for job in jobs] == [("../job'2", "jobs", 1), ("job", "jobs", 2)]
    assert jobs[1].at - jobs[0].at == 5 * SECOND
    assert do(ops.Discard("job")) == 2
    assert do(ops.Discard("job")) == 0
    assert [job.job for job in do(ops.ListStaged())] == ["../job'2"]
    with pytest.raises(EngineUnavailable, match="part 'a' of job 'job' has 0 staged rows, and 1 were staged"):
        do(ops.Promote("jobs", "job", (("a", 1),)))
    assert do(ops.Discard("../job'2")) == 1
    assert do(ops.ListStaged()) == []


def test_a_job_is_of_the_tube_that_it_staged_for(q, do):
    q.create_tube("jobs")
    q.create_tube("other")
    do(ops.Stage("jobs", "job", "a", rows([Entry(1)])))
    with pytest.raises(UsageError, match="job 'job' has staged rows for another tube than 'other'"):
        do(ops.Promote("other", "job", (("a", 1),)))
    for part in ("a", "b"):
        with pytest.raises(UsageError, match="job 'job' has staged rows for another tube than 'other'"):
            do(ops.Stage("other", "job", part, rows([Entry(2)])))
    assert do(ops.Promote("jobs", "job", (("a", 1),))).new == 1
    assert q.tube("other").statistics().tasks["total"] == 0
    do(ops.Discard("job"))
    assert do(ops.Stage("other", "job", "a", rows([Entry(2)]))) == 1


def test_a_promotion_is_undone_with_its_transaction_and_can_be_repeated(q, do):
    q.create_tube("jobs", history=True)
    do(ops.Stage("jobs", "job", "a", rows([Entry(1), Entry(2)])))
    done = ops.WriteLedger("job", 1, ("done",)), ops.Promote("jobs", "job", (("a", 2),))
    with suppress(RuntimeError), q._engine.transaction() as tx:
        for op in done:
            tx.execute(op)
        raise RuntimeError
    assert q.tube("jobs").statistics().tasks["total"] == 0
    assert do(ops.ReadHistory("jobs")) == []
    with q._engine.transaction() as tx:
        for op in done:
            tx.execute(op)
    assert [task.data for task in q.tube("jobs").tasks()] == [1, 2]


@pytest.mark.parametrize("capacity", [None, 100])
def test_keys_of_live_tasks_decide(q, do, clock, capacity):
    jobs = q.create_tube("jobs", "standard", capacity=capacity)
    jobs.put("ready", key="ready")
    jobs.put("delayed", key="delayed", delay=60)
    jobs.put("over", key="over", ttl=1)
    jobs.put("taken", key="taken", pri=-1)
    assert jobs.take().key == "taken"
    clock.advance(1)
    names = ("ready", "delayed", "over", "taken", "new")
    entries = [Entry(f"{name} 2", key=name) for name in names]
    assert promote(do, "jobs", entries, job="1") == Promoted(2, 3)
    assert [task.data for task in jobs.tasks()] == ["ready", "delayed", "taken", "over 2", "new 2"]
    assert promote(do, "jobs", [entries[1], entries[3]], job="2", on_conflict="restart") == Promoted(0, 1, 0, 1)
    assert jobs.statistics().tasks["delayed"] == 0
    with pytest.raises(DuplicateKey, match="'taken'"):
        promote(do, "jobs", [Entry(0, key="ready"), Entry(0, key="taken")], job="3", on_conflict="replace")
    assert [task.data for task in jobs.tasks()] == ["ready", "delayed", "taken", "over 2", "new 2"]
    assert promote(do, "jobs", [Entry(0, key="ready")], job="4", on_conflict="replace") == Promoted(0, 0, 1)
    assert [task.data for task in jobs.tasks()] == [0, "delayed", "taken", "over 2", "new 2"]


@pytest.mark.parametrize("capacity", [None, 100])
def test_a_key_that_is_taken_refuses_all(q, do, capacity):
    jobs = q.create_tube("jobs", capacity=capacity)
    jobs.put("old", key="k")
    with pytest.raises(DuplicateKey, match="a ready task of tube 'jobs' has the key 'k'"):
        promote(do, "jobs", [Entry(1), Entry(2, key="j"), Entry(3, key="k")], on_conflict="error")
    with pytest.raises(DuplicateKey, match="the key 'twice'"):
        promote(do, "jobs", [Entry(1, key="twice")], [Entry(2, key="twice")], job="2", on_conflict="error")
    assert [task.data for task in jobs.tasks()] == ["old"]
    assert jobs.statistics().calls["put"] == 1
    assert promote(do, "jobs", [Entry(1, key="a"), Entry(2, key="b")], job="3", on_conflict="error") == Promoted(2)


def test_what_does_not_fit_the_tube_is_refused_whole(q, do):
    q.create_tube("jobs", "limfifottl", max_payload=20, capacity=3)
    with pytest.raises(PayloadTooLarge, match="32 bytes, tube 'jobs' takes at most 20"):
        promote(do, "jobs", [Entry(1)], [Entry("x" * 30)], job="1")
    with pytest.raises(UsageError, match="lane"):
        promote(do, "jobs", [Entry(1), Entry(2, lane="a")], job="2")
    with pytest.raises(TubeFull, match="capacity of 3"):
        promote(do, "jobs", [Entry(1), Entry(2)], [Entry(3), Entry(4)], job="3")
    with pytest.raises(UsageError, match="json payloads"):
        promote(do, "jobs", [Entry(b"bytes")], job="4")
    with pytest.raises(TubeNotFound):
        promote(do, "nobody", [Entry(1)], job="5")
    q.create_tube("named", id="required")
    with pytest.raises(UsageError, match="needs an id"):
        promote(do, "named", [Entry(1)], job="6")
    assert list(q.tube("jobs").tasks()) == []
    assert q.tube("jobs").statistics().calls["put"] == 0


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"data": pa.array(["1", None])}, "data is null in 1 of them"),
        ({"pri": pa.array([1])}, "either data or body"),
        ({"data": pa.array(["1"]), "body": pa.array([b"1"])}, "either data or body"),
        ({"data": pa.array(["1"]), "pri": pa.array(["1"])}, "no column 'pri' of type string"),
        ({"data": pa.array(["1"]), "colour": pa.array(["red"])}, "no column 'colour'"),
        ({"data": pa.array(["1"]), "key": pa.array(["k" * 256])}, "key must have at most 255 bytes"),
        ({"data": pa.array(["1"]), "lane": pa.array(["a\0"])}, "lane must not contain NUL"),
        ({"data": pa.array(["1"]), "ttl": pa.array([-1])}, "ttl must be at least 0, got -1"),
        ({"data": pa.array(["1"]), "max_attempts": pa.array([0])}, "max_attempts must be at least 1"),
    ],
)
def test_ill_formed_rows_are_refused_when_they_are_staged(q, do, table, text):
    q.create_tube("jobs")
    with pytest.raises(UsageError, match=text):
        do(ops.Stage("jobs", "job", "a", stream(pa.table(table))))
    with pytest.raises(UsageError, match="not one"):
        do(ops.Stage("jobs", "job", "a", b"no stream"))
    assert do(ops.ListStaged()) == []


@pytest.mark.parametrize("key", [None, "k"])
def test_a_file_is_promoted_one_portion_at_a_time(tmp_path, key):
    with connect(str(tmp_path / "tasks.db"), durability="relaxed") as q:
        q.create_tube("jobs")
        do = q._engine.execute
        for portion in range(20):
            own = [key and f"{key}{portion}-{n}" for n in range(200)]
            do(ops.Stage("jobs", "job", "a", rows([Entry("x" * 1000, key=one) for one in own])))
        tracemalloc.start()
        try:
            assert do(ops.Promote("jobs", "job", (("a", 4000),))) == Promoted(4000)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 2_000_000, "all rows have 4 MB"


def test_no_rows_are_nothing(q, do):
    q.create_tube("jobs")
    assert do(ops.Stage("jobs", "job", "a", stream(pa.table({"data": pa.array([], pa.string())})))) == 0
    assert do(ops.ListStaged()) == []
    assert do(ops.Promote("jobs", "job", (("a", 0),))) == Promoted(0)
    assert do(ops.Promote("jobs", "job", ())) == Promoted(0)


def test_who_waits_is_served_and_callbacks_are_called(q, do, waiter):
    jobs = q.create_tube("jobs")
    taker = waiter(q, lambda: jobs.take(timeout=60))
    promote(do, "jobs", [Entry("a"), Entry("b")])
    assert taker.result().data == "a"
    told = []
    q.create_tube("heard").on_task_change(lambda task, event: told.append((task.data, str(event))))
    promote(do, "heard", [Entry(1), Entry(2)], job="2")
    assert told == [(1, "put"), (2, "put")]
