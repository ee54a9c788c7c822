"""Snapshots of a queue as DataFrames."""

from __future__ import annotations

import json

import pytest
from tests.spark.past import history
from tests.support import postgres

import penstock
from penstock.engines.scan import id_text
from penstock.spark import schemas


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """A place that is used once: processes of Spark keep what they have opened."""
    if request.param == "sqlite":
        yield str(tmp_path / "tasks.db")
    else:
        place = postgres.place()
        yield place
        postgres.drop_place(place)


@pytest.fixture
def q(url):
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


def only(name):
    """For tests of what Spark does: what a scan of the store finds is in tests/contract/test_scan.py, for each."""
    return pytest.mark.parametrize("url", [name], indirect=True)


POSTGRES_FIRST = pytest.mark.parametrize(
    "url", ["postgres", pytest.param("sqlite", marks=pytest.mark.exhaustive)], indirect=True
)
"""For longer tests of the same kind."""


def read(spark, url, tube="jobs", **options):
    reader = spark.read.format("penstock").option("url", url).option("tube", tube)
    return reader.options(**options)


def seqs(frame):
    return sorted(row.seq for row in frame.select("seq").collect())


def test_tasks_come_in_partitions_with_every_column(spark, q, url):
    jobs = q.create_tube("jobs", keep=60, retry=5)
    jobs.put_many([{"n": n, "text": 'a "b",\né'} for n in range(50)])
    jobs.put("one", lane="l", key="k", pri=3, ttl=100, delay=30)
    jobs.take().ack({"sum": 1})
    jobs.take().bury("no\nway")
    frame = read(spark, url, numPartitions=3).load()
    rows = {row.seq: row for row in frame.collect()}
    assert frame.rdd.getNumPartitions() == 3
    assert frame.columns == list(schemas.TASKS)
    tasks = list(jobs.tasks())
    assert sorted(rows) == [task._record.seq for task in tasks]
    for task in tasks:
        row = rows[task._record.seq]
        assert (row.id, row.state, json.loads(row.data)) == (id_text(task.id), task.state, task.data)
        assert (row.lane, row.key, row.pri, row.ttl, row.error) == (task.lane, task.key, task.pri, task.ttl, task.error)
    created = frame.selectExpr("min(unix_micros(created_at))").first()[0]
    assert created == tasks[0]._record.created_at


@only("sqlite")
def test_options_and_a_schema_choose_rows_and_columns(spark, q, url):
    jobs = q.create_tube("jobs", keep=True)
    for n in range(9):
        jobs.put(n, lane="abc"[n % 3])
    jobs.take().ack()
    jobs.take().bury()
    assert read(spark, url, columns="state,data").load().columns == ["state", "data"]
    assert read(spark, url).schema("data string").load().columns == ["data"]
    some = read(spark, url, states="ready", lanes="a,c", columns="data").load()
    assert sorted(json.loads(row.data) for row in some.collect()) == [2, 3, 5, 6, 8]
    assert read(spark, url, since="2100-01-01").load().count() == 0
    assert read(spark, url, until="2100-01-01").load().count() == 9


@POSTGRES_FIRST
def test_a_dataframe_that_is_reused_or_united_with_itself_has_the_right_rows(spark, q, url):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put_many(range(30))
    for task in jobs.take_many(10):
        task.ack()
    frame = read(spark, url, numPartitions=2).load()
    ready, done = frame.filter("state = 'ready'"), frame.filter("state = 'done'")
    assert (ready.count(), frame.count(), done.count(), frame.count()) == (20, 30, 10, 30)
    both = ready.union(done)
    assert seqs(both) == seqs(frame) and both.count() == 30
    assert ready.join(done, "seq").count() == 0


@only("postgres")
def test_each_task_is_read_once_whatever_happens_between_partitions(spark, q, url):
    jobs = q.create_tube("jobs", keep=True, retry=0)
    jobs.put_many(range(40))
    frame = read(spark, url, numPartitions=4).load()
    first = seqs(frame)
    for task in jobs.take_many(20):
        task.release()
    jobs.put_many(range(10))
    # The plan of a load() ends with the last task there was then.
    assert first == seqs(frame) and len(set(first)) == 40
    assert read(spark, url).load().count() == 50


@POSTGRES_FIRST
def test_events_are_read_in_parts_and_by_position(spark, q, url):
    jobs = q.create_tube("jobs", history=True)
    q.create_tube("other", history=True).put(1)
    jobs.put_many(range(50))
    for task in jobs.take_many(50):
        task.ack()
    events = history(q, 151)
    frame = read(spark, url, "", feed="events", numPartitions=4).load()
    assert frame.rdd.getNumPartitions() == 4
    assert frame.columns == list(schemas.EVENTS)
    assert seqs(frame) == [event.seq for event in events]
    assert read(spark, url, feed="events").load().count() == len(events) - 1
    some = read(spark, url, feed="events", fromSeq=events[9].seq, toSeq=events[19].seq).load()
    assert seqs(some) == [event.seq for event in events[10:20]]
    assert read(spark, url, feed="events", states="done").load().count() == 50


@only("sqlite")
def test_results_are_what_ended_and_is_kept(spark, q, url):
    jobs = q.create_tube("jobs", keep=True, id="required")
    for name in ("a", "b", "c"):
        jobs.put(name, id=name)
    jobs.take().ack({"length": 1})
    jobs.take().bury("no")
    rows = read(spark, url, feed="results").load().orderBy("id").collect()
    assert [(row.id, row.state, row.result, row.error) for row in rows] == [
        ("a", "done", '{"length":1}', None),
        ("b", "buried", None, "no"),
    ]


@only("sqlite")
def test_nothing_there_is_no_rows(spark, q, url):
    q.create_tube("jobs")
    assert read(spark, url).load().collect() == []
    assert read(spark, url, feed="events").load().collect() == []


@only("postgres")
def test_bytes_are_bytes(spark, q, url):
    q.create_tube("bodies", payload="bytes").put_many([b"", b"\x00\xff", bytes(range(256))])
    rows = read(spark, url, "bodies", columns="seq,body,data").load().orderBy("seq").collect()
    assert [(bytes(row.body), row.data) for row in rows] == [
        (b"", None),
        (b"\x00\xff", None),
        (bytes(range(256)), None),
    ]


@only("sqlite")
def test_errors_reach_the_caller(spark, q, url):
    with pytest.raises(Exception, match="there is no tube 'nowhere'"):
        read(spark, url, "nowhere").load().count()
    with pytest.raises(Exception, match="there is no option 'colour' here"):
        read(spark, url, colour="red").load().count()
