"""A DataFrame is put into a tube: what its columns mean, and that a job is done once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tests.spark.past import history
from tests.spark.places import PLACES, check_once, check_put

import penstock
import penstock.spark
from penstock.model.staging import Promoted
from penstock.spark import jobs

ROWS = 3000


@pytest.fixture(params=PLACES[:1], ids=lambda place: place.name)
def url(request, tmp_path) -> str:
    """A file unless a test says otherwise: what differs between stores is tested without Spark."""
    return request.param.url(tmp_path)


@pytest.fixture
def queue(url):
    with penstock.connect(url) as queue:
        yield queue


def write(frame, url: str, tube: str = "jobs", **options: Any) -> None:
    frame.write.format("penstock").mode("append").options(url=url, tube=tube, **options).save()


def refused(frame, url: str, **options: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        write(frame, url, **options)
    return str(caught.value)


@pytest.mark.parametrize("url", PLACES, ids=lambda place: place.name, indirect=True)
def test_every_row_is_put_once_and_in_order(spark, url, queue):
    queue.create_tube("jobs", history=True)
    frame = spark.range(ROWS, numPartitions=3).selectExpr("concat('{\"n\":', id, '}') as data")
    write(frame, url)
    check_once(queue, [{"n": n} for n in range(ROWS)])
    assert [task.data["n"] for task in queue.tube("jobs").take_many(5)] == [0, 1, 2, 3, 4]
    assert sum(row.event == "put" for row in history(queue, ROWS)) == ROWS


def test_columns_are_options_and_null_is_the_default(spark, url, queue):
    queue.create_tube("jobs", "standard", pri=7, ttl=900)
    later = datetime(2099, 1, 1, tzinfo=UTC)
    rows = [
        ('"a"', 1, "lane", "key", 0.0, 60.5, 5, 3, True, None),
        ('"b"', None, None, None, None, None, None, None, None, None),
        ('"c"', 3, "", "", 3600.0, None, None, None, False, 1.5),
    ]
    names = "data string, pri int, lane string, key string, delay double, ttl double, ttr int, max_attempts int"
    frame = spark.createDataFrame(rows, f"{names}, keep boolean, repeat double").coalesce(1)
    write(frame, url)
    first, second, third = queue.tube("jobs").tasks()
    assert (first.data, first.pri, first.lane, first.key, first.ttl, first.ttr) == ("a", 1, "lane", "key", 60.5, 5)
    assert (first.max_attempts, str(first.state)) == (3, "ready")
    assert (second.data, second.pri, second.lane, second.key, second.ttl) == ("b", 7, None, None, 900)
    assert (third.lane, third.key, str(third.state)) == (None, None, "delayed")
    write(spark.createDataFrame([("1", later)], "data string, delay timestamp"), url)
    assert next(task for task in queue.tube("jobs").tasks() if task.data == 1).ready_at == later


def test_data_that_is_no_text_becomes_json(spark, url, queue):
    queue.create_tube("jobs")
    frame = spark.sql("select named_struct('n', 1, 'm', map('k', array(1.5d)), 'd', date'2026-01-02') as data")
    write(frame, url)
    write(spark.sql("select 7 as data"), url)
    write(spark.sql("select 1 as n, 'it''s' as text, null as nothing, timestamp'2026-01-02 03:04:05' as at"), url)
    assert [task.data for task in queue.tube("jobs").tasks()] == [
        {"n": 1, "m": {"k": [1.5]}, "d": "2026-01-02"},
        7,
        {"n": 1, "text": "it's", "nothing": None, "at": "2026-01-02T03:04:05+00:00"},
    ]


def test_bodies_are_bytes(spark, url, queue):
    queue.create_tube("jobs", payload="bytes")
    write(spark.createDataFrame([(bytearray(b"\0\\x\xff"),), (bytearray(b""),)], "body binary").coalesce(1), url)
    assert [task.data for task in queue.tube("jobs").tasks()] == [b"\0\\x\xff", b""]
    assert "payload='bytes'" in refused(spark.sql("select '1' as data"), url)


def test_wrong_calls_are_refused(spark, url, queue):
    frame = spark.sql("select '1' as data")
    assert "there is no tube 'jobs'" in refused(frame, url)
    queue.create_tube("jobs")
    assert "data must be JSON text, and '{' is not" in refused(spark.sql("select '{' as data"), url)
    check_put(queue, 0)
    assert "onConflict must be one of" in refused(frame, url, onConflict="wrong")
    assert "there is no option 'jobid2'" in refused(frame, url, jobId2="7")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format("penstock").mode("overwrite").options(url=url, tube="jobs").save()
    assert "in the memory of one process" in refused(frame, "memory:")


def test_a_job_with_a_name_is_done_once(spark, url, queue):
    queue.create_tube("jobs")
    queue.create_tube("others")
    frame = spark.range(100, numPartitions=2).selectExpr("cast(id as string) as data")
    write(frame, url, jobId="load 7")
    write(frame, url, jobId="load 7")
    check_put(queue, 100)
    assert jobs.outcome(queue._engine, "load 7") == Promoted(100)
    write(frame, url, jobId="load 8")
    write(frame, url)
    check_put(queue, 300)
    write(frame.limit(0), url, jobId="empty")
    assert jobs.outcome(queue._engine, "empty") == Promoted(0)
    assert "puts into tube 'jobs', not into 'others'" in refused(frame, url, tube="others", jobId="load 7")


def test_a_thread_that_registers_can_write(spark, url, queue):
    queue.create_tube("jobs")
    frame = spark.range(10).selectExpr("cast(id as string) as data")
    failed = []

    def work():
        try:
            penstock.spark.register(spark)
            write(frame, url)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
    check_once(queue, 10)


@pytest.mark.parametrize("url", PLACES[1:], ids=["postgres"], indirect=True)
def test_keys_decide_as_in_a_put(spark, url, queue):
    jobs_tube = queue.create_tube("jobs")
    jobs_tube.put("old", key="a")
    frame = spark.createDataFrame([('"new a"', "a"), ('"b"', "b"), ('"b again"', "b")], "data string, key string")
    write(frame.coalesce(1), url, jobId="1")
    assert [task.data for task in jobs_tube.tasks()] == ["old", "b"]
    assert jobs.outcome(queue._engine, "1") == Promoted(1, 2)
    assert "has the key" in refused(frame, url, onConflict="error")
    check_put(queue, 2)
    write(frame.limit(1), url, onConflict="replace")
    assert [task.data for task in jobs_tube.tasks()] == ["new a", "b"]
