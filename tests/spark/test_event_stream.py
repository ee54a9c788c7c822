"""Events as a stream: all of them, in order, also those of transactions that commit late."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Background
from tests.spark.past import history
from tests.spark.places import every_engine
from tests.spark.queries import finish
from tests.support import postgres
from tests.support.engines import ENGINES

import penstock
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.templates import quoted
from penstock.model import ops
from penstock.spark import feeds

SQLITE, POSTGRES = (
    pytest.mark.parametrize("url", [engine], indirect=True, ids=lambda engine: engine.name)
    for engine in ENGINES
    if engine.durable
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


def read(spark, url, checkpoint, **options):
    """What there is now, batch by batch."""
    batches = []
    given = {"url": url, "feed": "events", "columns": "seq,tube,task_id,event", **options}
    frame = spark.readStream.format("penstock").options(**given).load()
    writer = frame.writeStream.foreachBatch(lambda part, number: batches.append(part.collect()))
    finish(writer, checkpoint)
    return batches


def seqs(batches):
    return [row.seq for batch in batches for row in batch]


@POSTGRES
def test_every_event_is_delivered_once_and_in_order(spark, q, url, tmp_path):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(20))
    for _ in range(5):
        jobs.take().ack()
    known = [row.seq for row in history(q, 30)]
    options = {"maxEventsPerTrigger": 12, "numPartitions": 2, "streamId": "lake"}
    batches = read(spark, url, tmp_path / "c", **options)
    assert [len(batch) for batch in batches] == [12, 12, 6]
    assert seqs(batches) == known
    assert feeds.positions(q._engine) == {"lake": known[-1]}
    jobs.put("one more")
    last = history(q, 31)[-1].seq
    assert seqs(read(spark, url, tmp_path / "c", **options)) == [last]


@SQLITE
def test_a_stream_may_begin_late_and_choose_its_events(spark, q, url, tmp_path):
    jobs, other = q.create_tube("jobs", history=True), q.create_tube("other", history=True)
    for number in range(4):
        jobs.put(number)
        other.put(number)
    jobs.take().ack()
    start = q.history()[2].seq
    chosen = read(spark, url, tmp_path / "c", tube="jobs", states="ready", fromSeq=start)
    assert [(row.tube, row.task_id, row.event) for batch in chosen for row in batch] == [
        ("jobs", "3", "put"), ("jobs", "4", "put"),
    ]  # fmt: skip


@pytest.fixture
def late():
    url = postgres.lent_place()
    with penstock.connect(url, durability="relaxed") as q:
        yield url, q
    postgres.give_back(url)


def visible(url, after=0):
    """What a reader sees that goes on from the highest seq it has seen."""
    place = Place.parse(url)
    with psycopg.connect(place.conninfo) as connection:
        events = f"{quoted(place.schema)}.events"
        found = connection.execute(f"select seq from {events} where seq > %s order by seq", [after])  # noqa: S608
        return [seq for (seq,) in found]


def test_a_transaction_that_commits_late_is_not_left_out(spark, late, tmp_path):
    url, q = late
    jobs = q.create_tube("jobs", history=True)
    jobs.put("before")
    history(q, 1)
    with q.transaction() as tx:
        jobs.put("late", transaction=tx)
        Background(lambda: jobs.put("early")).result()
        naive = visible(url)
        first = seqs(read(spark, url, tmp_path / "c"))
    every = [row.seq for row in history(q, 3)]
    second = seqs(read(spark, url, tmp_path / "c"))
    assert len(every) == 3 and first == every[:1] and second == every[1:]
    # One that had trusted its highest seq would never see the late one.
    assert every[1] not in naive and every[1] not in visible(url, max(naive))


@pytest.mark.parametrize("engine", every_engine())
def test_the_lowest_position_is_that_of_the_slowest_consumer(engine, tmp_path):
    place = engine.url(tmp_path)
    with penstock.connect(place) as q:
        store = q._engine
        assert feeds.lowest(store) is None and feeds.position(store, "a") == 0
        feeds.advance(store, "a", 5)
        feeds.advance(store, "b", 9)
        feeds.advance(store, "a", 3)
        assert feeds.positions(store) == {"a": 5, "b": 9} and feeds.lowest(store) == 5
        feeds.advance(store, "a", 12)
        assert feeds.lowest(store) == 9
        assert len(store.execute(ops.ReadLedger("feed:a"))) == 1
        feeds.leave(store, "b")
        assert feeds.positions(store) == {"a": 12}
        feeds.advance(store, "b", 20)
        assert feeds.lowest(store) == 12
    engine.clean(place)
