"""Tasks as a stream: batches of leased tasks, the same rows after a restart, an outcome for each row."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import apsw
import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.queries import finish, running
from tests.support.engines import ENGINES
from tests.worker.bench import until

import penstock
from penstock import UsageError
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.templates import quoted
from penstock.model import ops
from penstock.spark import attempt, settle

PATIENCE = 300.0
DURABLE = [engine for engine in ENGINES if engine.durable]
SQLITE, POSTGRES = (
    pytest.mark.parametrize("url", [engine], indirect=True, ids=lambda engine: engine.name) for engine in DURABLE
)
"""Spark and not the store is what is tested here. test_stream_calls.py is about every store."""


@pytest.fixture
def url(request, tmp_path):
    place = request.param.url(tmp_path)
    yield place
    request.param.clean(place)


@pytest.fixture
def q(url):
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


def stream(spark, url, **options):
    given = {"url": url, "tube": "jobs", "streamId": "s", "pollInterval": 0.05, "lease": 3600, **options}
    return spark.readStream.format("penstock").options(**given).load()


class Batches:
    """What a stream delivered, batch by batch."""

    def __init__(self, outcome=None):
        self.rows = {}
        self._outcome = outcome

    def __call__(self, frame, number):
        self.rows[number] = sorted(frame.select("claim", "id", "data").collect())
        if self._outcome is not None:
            self._outcome(frame, number)

    @property
    def data(self):
        return [json.loads(row.data) for rows in self.rows.values() for row in rows]


def run(frame, batches, checkpoint):
    finish(frame.writeStream.foreachBatch(batches), checkpoint)


@SQLITE
def test_what_is_available_is_delivered_once_and_acked(spark, q, url, tmp_path):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put_many(range(25))
    batches = Batches()
    run(stream(spark, url, maxTasksPerTrigger=10), batches, tmp_path / "c")
    assert [len(rows) for rows in batches.rows.values()] == [10, 10, 5]
    assert sorted(batches.data) == list(range(25))
    assert jobs.statistics().tasks["kept"] == 25
    jobs.put_many(range(25, 30))
    run(stream(spark, url), batches, tmp_path / "c")
    assert sorted(batches.data) == list(range(30))
    assert jobs.statistics().tasks["kept"] == 30


@POSTGRES
def test_rows_have_the_columns_of_a_task_and_those_of_a_claim(spark, q, url, tmp_path):
    q.create_tube("jobs", payload="bytes").put(b"x", lane="l", pri=2, ttl=60)
    rows = []
    run(stream(spark, url), lambda frame, number: rows.extend(frame.collect()), tmp_path / "c")
    (row,) = rows
    assert (row.body, row.data, row.lane, row.pri, row.ttl, row.state, row.attempt) == (
        *(bytearray(b"x"), None, "l", 2, 60.0, "taken", 1),
    )
    assert (row.claim, row.id) == (1, "1") and row.token > 0


def handler(row):
    number = json.loads(row["data"])
    if number % 3 == 0:
        raise ValueError(f"{number} is poison")
    return {"half": number / 2}


@POSTGRES
def test_each_row_has_its_outcome_and_poison_does_not_fail_the_batch(spark, q, url, tmp_path):
    with pytest.raises(UsageError, match="claim and outcome"):
        settle(spark.range(1), url=url, stream="s")
    jobs = q.create_tube("jobs", keep=True, retry=300)
    jobs.put_many(range(1, 10))

    def outcome(frame, number):
        settled.append(settle(attempt(frame.filter("data != '5'"), handler), url=url, stream="s"))

    settled = []
    batches = Batches(outcome)
    run(stream(spark, url, maxTasksPerTrigger=6, numPartitions=2), batches, tmp_path / "c")
    assert settled == [5, 3]
    assert sorted(batches.data) == list(range(1, 10))
    states = {task.data: task.state for task in jobs.tasks()}
    assert [number for number, state in states.items() if state == "delayed"] == [3, 6, 9]
    assert [number for number, state in states.items() if state == "done"] == [1, 2, 4, 5, 7, 8]
    assert (jobs.peek(4).result, jobs.peek(5).result) == ({"half": 2.0}, None)
    assert jobs.peek(6).error.startswith("ValueError: 6 is poison\n")


class Breaks(Exception):
    pass


@POSTGRES
def test_a_batch_that_failed_comes_again_with_the_same_rows(spark, q, url, tmp_path):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put_many(range(7))

    def fail(frame, number):
        if number == 1:
            raise Breaks

    first, second = Batches(fail), Batches()
    with pytest.raises(Exception, match="Breaks"):
        run(stream(spark, url, maxTasksPerTrigger=3), first, tmp_path / "c")
    jobs.put_many(range(7, 9))
    # Neither more tasks nor other options change a batch that was planned.
    run(stream(spark, url, maxTasksPerTrigger=50, numPartitions=3), second, tmp_path / "c")
    assert first.rows[1] == second.rows[1]
    assert sorted(second.data) == [3, 4, 5, 6, 7, 8]
    assert jobs.statistics().tasks["kept"] == 9


@SQLITE
def test_a_second_query_ends_the_first_one_of_the_same_stream(spark, q, url, tmp_path):
    jobs = q.create_tube("jobs", keep=True)
    seen = []

    def note(frame, number):
        seen.extend(json.loads(row.data) for row in frame.select("data").collect())

    writer = stream(spark, url).writeStream.foreachBatch(note)
    with running(writer, tmp_path / "first") as first:
        jobs.put(1)
        assert jobs.wait(1, timeout=600).state == "done"
        with running(writer, tmp_path / "second"):
            with pytest.raises(StreamingQueryException, match="another query reads the stream 's' now"):
                first.awaitTermination(600)
            jobs.put(2)
            assert jobs.wait(2, timeout=600).state == "done"
    assert seen == [1, 2]


def lease_end(url):
    """Until when the store leaves its tasks with a stream that it does not hear of."""
    ask = "select max(expires_at) from {} where name = 'spark stream s'"
    if url.startswith("postgresql"):
        place = Place.parse(url)
        with psycopg.connect(place.conninfo) as connection:
            ((end,),) = connection.execute(ask.format(f"{quoted(place.schema)}.sessions")).fetchall()
    else:
        with closing(apsw.Connection(url)) as connection:
            ((end,),) = connection.execute(ask.format("penstock_sessions"))
    return end


def keeps_its_tasks(spark, engine, folder):
    """A batch that goes on until its leases end later than they did."""
    url, ends = engine.url(folder), []

    def wait_for_a_sign(frame, number):
        ends.append(lease_end(url))
        pause = threading.Event()  # a look is a connection
        until(lambda: pause.wait(0.2) or lease_end(url) != ends[0], PATIENCE)
        ends.append(lease_end(url))

    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", keep=True, ttr=1)
        jobs.put_many(range(3))
        batches = Batches(wait_for_a_sign)
        run(stream(spark, url, lease=15), batches, folder / "c")
        assert ends[0] < ends[1] and sorted(batches.data) == [0, 1, 2]
        assert [(task.state, task.attempt) for task in jobs.tasks()] == [("done", 1)] * 3
        assert json.loads(q._engine.execute(ops.ReadLedger("acked:s"))[0].text)["lost"] == 0
    engine.clean(url)


@pytest.mark.exhaustive  # test_claim_log.py restarts a stream while its leases go on
def test_a_batch_may_take_longer_than_its_leases_without_a_sign(spark, tmp_path):
    """On every store at one time: the process that plans gives a sign after a third of the lease."""
    with ThreadPoolExecutor() as pool:
        streams = []
        for engine in DURABLE:
            (tmp_path / engine.name).mkdir()
            streams.append(pool.submit(keeps_its_tasks, spark, engine, tmp_path / engine.name))
        for one in streams:
            one.result()
