"""What Spark asks of streams, in the order in which it asks, without Spark: restarts at each point, runs that end."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType, TimestampType
from tests.conftest import Background
from tests.spark.past import history
from tests.support.engines import ENGINES

import penstock
from penstock import EngineUnavailable, TubeNotFound, UsageError
from penstock.spark import outcomes, schemas, stores
from penstock.spark.claim_log import ClaimLog
from penstock.spark.claims import TaskStream
from penstock.spark.events import EventStream
from penstock.spark.options import Options

DURABLE = [engine for engine in ENGINES if engine.durable]
TYPES = {
    "bigint": LongType(),
    "string": StringType(),
    "binary": BinaryType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
}


@pytest.fixture(params=DURABLE, ids=lambda engine: engine.name)
def url(request, tmp_path):
    place = request.param.url(tmp_path)
    yield place
    stores.close_all()
    request.param.clean(place)


@pytest.fixture
def q(url):
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", keep=True)


def schema(feed):
    return StructType([StructField(name, TYPES[kind]) for name, kind in schemas.COLUMNS[feed].items()])


def tasks(url, **options):
    given = {"url": url, "tube": "jobs", "streamId": "s", "pollInterval": "0", **options}
    return TaskStream(Options(given), schema("claims"))


def events(url, **options):
    return EventStream(Options({"url": url, "feed": "events", "pollInterval": "0", **options}), schema("events"))


def rows(reader, start, end, column="seq"):
    found = []
    for partition in reader.partitions({"seq": start}, {"seq": end}):
        for batch in reader.read(partition):
            found += batch.to_pydict()[column]
    return found


def latest(reader, start, limit=1000):
    return reader.latestOffset({"seq": start}, ReadMaxRows(limit))["seq"]


def states(jobs):
    return [task.state for task in jobs.tasks()]


def test_a_batch_is_acked_when_spark_asks_for_the_next(url, jobs):
    jobs.put_many(range(5))
    reader = tasks(url)
    assert reader.initialOffset() == {"seq": 0}
    assert latest(reader, 0, 3) == 3
    assert rows(reader, 0, 3) == [1, 2, 3]
    assert states(jobs) == ["taken"] * 3 + ["ready"] * 2
    assert latest(reader, 3, 3) == 5
    assert states(jobs) == ["done"] * 3 + ["taken"] * 2
    assert latest(reader, 5) == 5
    assert states(jobs) == ["done"] * 5
    assert reader.reportLatestOffset() == {"seq": 5}
    assert reader.partitions({"seq": 5}, {"seq": 5}) == []


def test_commit_acks_as_well(url, jobs):
    jobs.put("x")
    reader = tasks(url)
    latest(reader, 0)
    reader.commit({"seq": 1})
    reader.commit({"seq": 1})
    assert states(jobs) == ["done"]


def test_claims_that_were_not_written_down_as_an_offset_come_first_after_a_restart(url, jobs):
    jobs.put_many(range(5))
    assert latest(tasks(url), 0, 3) == 3
    again = tasks(url)
    assert latest(again, 0, 2) == 2
    assert rows(again, 0, 2) == [1, 2]
    assert latest(again, 2, 9) == 3
    assert latest(again, 3, 9) == 5
    assert rows(again, 2, 5) == [3, 4, 5]


def test_a_planned_batch_is_read_again_before_anything_else_is_asked(url, jobs):
    jobs.put_many(range(5))
    latest(tasks(url), 0, 3)
    again = tasks(url, numPartitions="2")
    assert rows(again, 0, 3) == [1, 2, 3]
    assert latest(again, 3, 3) == 5
    assert states(jobs) == ["done"] * 3 + ["taken"] * 2


def test_a_committed_batch_is_acked_by_the_next_run(url, jobs):
    jobs.put_many(range(3))
    latest(tasks(url), 0)
    again = tasks(url)
    assert latest(again, 3) == 3
    assert states(jobs) == ["done"] * 3


def test_an_old_checkpoint_is_delivered_again_and_acks_nothing_twice(url, jobs):
    jobs.put_many(range(4))
    reader = tasks(url)
    latest(reader, 0, 2)
    latest(reader, 2, 2)
    latest(reader, 4)
    old = tasks(url)
    assert latest(old, 0, 3) == 3
    assert rows(old, 0, 3) == [1, 2, 3]
    assert latest(old, 3, 3) == 4 and latest(old, 4) == 4
    assert states(jobs) == ["done"] * 4


def test_a_run_delivers_each_task_that_is_there_once(url):
    q = penstock.connect(url)
    jobs = q.create_tube("jobs", "fifottl")
    jobs.put_many(range(3))
    reader = tasks(url)
    reader.prepareForTriggerAvailableNow()
    jobs.put("later")
    assert latest(reader, 0, 2) == 2
    outcomes.write(q._engine, "s", [{"claim": 1, "outcome": "retry"}])
    assert latest(reader, 2, 2) == 3
    assert latest(reader, 3, 2) == latest(reader, 3, 2) == 3
    assert [(task.data, task.state, task._record.attempt) for task in jobs.tasks()] == [
        (0, "ready", 1), ("later", "ready", 0),
    ]  # fmt: skip
    q.close()


@pytest.mark.parametrize("run", [False, True])
def test_what_the_query_before_claims_at_the_last_moment_is_delivered_too(url, jobs, run, monkeypatch):
    """Only PostgreSQL lets the new query attach itself while a transaction of the old one is open."""
    jobs.put_many(range(6))
    old, new = tasks(url), tasks(url)
    checked = ClaimLog._check

    def attach_meanwhile(log, tx):
        checked(log, tx)
        if log is old._log and new._log is None and log.last == 0:
            Background(new.initialOffset).result()

    if url.startswith("postgresql"):
        monkeypatch.setattr(ClaimLog, "_check", attach_meanwhile)
    assert latest(old, 0, 3) == 3
    if run:
        new.prepareForTriggerAvailableNow()
    assert latest(new, 0, 2) == 2 and latest(new, 2, 2) == 3
    assert latest(new, 3, 9) == 6 and latest(new, 6, 9) == 6
    assert rows(new, 0, 6) == [1, 2, 3, 4, 5, 6]
    assert states(jobs) == ["done"] * 6


def test_a_call_that_failed_keeps_nothing_from_a_run(url, jobs, monkeypatch):
    jobs.put_many(range(3))
    reader = tasks(url)
    reader.prepareForTriggerAvailableNow()
    written = ClaimLog._write

    def fail_once(log, tx, last, records):
        monkeypatch.setattr(ClaimLog, "_write", written)
        raise EngineUnavailable("no answer", "not_done")

    monkeypatch.setattr(ClaimLog, "_write", fail_once)
    assert latest(reader, 0) == 3
    assert rows(reader, 0, 3) == [1, 2, 3]


@pytest.mark.parametrize("name", ["a\0b", "half \udc80"])
def test_names_that_no_store_can_hold_are_refused(name):
    for make in (tasks, events):
        with pytest.raises(UsageError, match="option streamId"):
            make("tasks.db", streamId=name)


def test_a_run_on_an_empty_tube_ends_at_once(url, jobs):
    reader = tasks(url)
    reader.prepareForTriggerAvailableNow()
    jobs.put("later")
    assert latest(reader, 0) == 0
    assert states(jobs) == ["ready"]


def test_without_a_limit_a_batch_is_all_there_is(url, jobs):
    jobs.put_many(range(30))
    reader = tasks(url, maxTasksPerTrigger="7")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": 30}


def test_a_stream_whose_store_had_nothing_leaves_it_alone_for_a_while(url, jobs):
    reader = tasks(url, pollInterval="600")
    assert latest(reader, 0) == 0
    jobs.put("x")
    assert latest(reader, 0) == 0
    assert states(jobs) == ["ready"]


def test_without_its_checkpoint_a_stream_delivers_again_what_was_not_acked(url, jobs):
    jobs.put_many(range(5))
    first = tasks(url)
    latest(first, 0, 2)
    latest(first, 2, 2)
    again = tasks(url)
    start = again.initialOffset()["seq"]
    assert start == 2 and rows(again, start, latest(again, start)) == [3, 4]
    assert latest(again, 4) == 5 and latest(again, 5) == 5
    assert states(jobs) == ["done"] * 5


def test_columns_may_be_left_out(url, q):
    q.create_tube("jobs", payload="bytes").put(b"y")
    fields = [StructField("claim", LongType()), StructField("body", BinaryType())]
    reader = TaskStream(Options({"url": url, "tube": "jobs", "streamId": "s"}), StructType(fields))
    (partition,) = reader.partitions({"seq": 0}, {"seq": latest(reader, 0)})
    assert [batch.to_pylist() for batch in reader.read(partition)] == [[{"claim": 1, "body": b"y"}]]


def test_what_cannot_work_is_refused(url, q):
    with pytest.raises(UsageError, match="there is no option 'maxrows' here"):
        tasks(url, maxRows="3")
    with pytest.raises(UsageError, match=r"needs \.option\(\"streamId\""):
        tasks(url, streamId="")
    with pytest.raises(TubeNotFound, match="there is no tube 'nobody'"):
        tasks(url, tube="nobody").initialOffset()


def test_a_checkpoint_of_another_store_is_refused(url, jobs):
    with pytest.raises(UsageError, match="at claim 7, but stream 's' has claimed 0"):
        latest(tasks(url), 7)


def test_a_stream_that_has_missed_events_says_so(url, q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(5))
    every = [row.seq for row in history(q, 5)]
    q.forget_history(every[2])
    assert latest(events(url), every[2]) == every[4]
    assert latest(events(url), 0) == every[4]
    assert latest(events(url, failOnDataLoss="false"), every[1]) == every[4]
    with pytest.raises(UsageError, match=f"at event {every[1]}, and events up to {every[2]} were removed"):
        latest(events(url), every[1])


def test_a_planned_batch_whose_events_were_removed_is_refused_after_a_restart(url, q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(10))
    every = [row.seq for row in history(q, 10)]
    assert latest(events(url), every[3], 4) == every[7]
    q.forget_history(every[5])
    with pytest.raises(UsageError, match=f"at event {every[3]}, and events up to {every[5]} were removed"):
        rows(events(url), every[3], every[7])
    assert rows(events(url, failOnDataLoss="false"), every[3], every[7]) == every[6:8]


def test_a_running_stream_whose_next_events_are_removed_says_so(url, q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(10))
    every = [row.seq for row in history(q, 10)]
    reader = events(url)
    assert latest(reader, every[1], 2) == every[3]
    (partition,) = reader.partitions({"seq": every[1]}, {"seq": every[3]})
    q.forget_history(every[5])
    for call in (lambda: latest(reader, every[3]), lambda: list(reader.read(partition))):
        with pytest.raises(UsageError, match=f"events up to {every[5]} were removed"):
            call()


def test_a_new_stream_begins_after_what_was_removed_and_misses_nothing_from_there(url, q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(10))
    every = [row.seq for row in history(q, 10)]
    q.forget_history(every[2])
    limit = ReadMaxRows(4)
    end = events(url).latestOffset({"seq": 0}, limit)

    def read_again():
        reader = events(url)
        return [part.value for part in reader.partitions({"seq": 0}, end)], reader.latestOffset(end, limit)

    assert read_again() == ([(every[2], every[6])], {"seq": every[9]})
    q.forget_history(every[3])
    with pytest.raises(UsageError, match=f"at event {every[2]}, and events up to {every[3]} were removed"):
        read_again()


def test_a_running_stream_of_one_tube_does_not_miss_what_is_removed_of_others(url, q):
    jobs, other = q.create_tube("jobs", history=True), q.create_tube("other", history=True)
    jobs.put("x")
    start = history(q, 1)[-1].seq
    reader = events(url, tube="jobs")
    other.put_many(range(3))
    assert latest(reader, start) == start
    gone = history(q, 4)[-1].seq
    q.forget_history(gone)
    jobs.put("y")
    last = history(q, 1)[-1].seq
    end = reader.latestOffset({"seq": start}, ReadMaxRows(9))
    assert end == {"seq": last, "gone": gone}
    assert [part.value for part in events(url, tube="jobs").partitions({"seq": start}, end)] == [(gone, end["seq"])]


def test_an_event_that_was_never_here_is_refused(url, q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(3))
    last = history(q, 3)[-1].seq
    for call in (lambda: latest(events(url), last + 5), lambda: rows(events(url), last, last + 5)):
        with pytest.raises(UsageError, match=f"at event {last + 5}, but the last one here is {last}"):
            call()
    assert latest(events(url, fromSeq=str(last + 5)), last + 5) == last + 5
    q.forget_history(last)
    assert latest(events(url), last) == last


def test_events_are_planned_by_marks(url, q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(5))
    every = [row.seq for row in history(q, 5)]
    reader = events(url, numPartitions="2")
    assert reader.initialOffset() == {"seq": 0} and reader.reportLatestOffset() is None
    assert latest(reader, 0, 3) == every[2]
    assert rows(reader, 0, every[2]) == every[:3]
    assert latest(reader, every[2], 3) == every[4]
    assert latest(reader, every[4], 3) == every[4]
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": every[4]}
    reader.prepareForTriggerAvailableNow()
    jobs.put("later")
    assert latest(reader, every[4]) == every[4]
