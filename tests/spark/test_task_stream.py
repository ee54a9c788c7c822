"""Tasks as a stream: batches of leased tasks, the same rows after a restart, an outcome for each row."""

from __future__ import annotations

import json

import pytest
from tests.support.engines import ENGINES

import penstock

DURABLE = [engine for engine in ENGINES if engine.durable]


@pytest.fixture(params=DURABLE, ids=lambda engine: engine.name)
def url(request, tmp_path):
    place = request.param.url(tmp_path)
    yield place
    request.param.clean(place)


@pytest.fixture
def q(url):
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


def stream(spark, url, **options):
    given = {"url": url, "tube": "jobs", "streamId": "s", "pollInterval": 0.05, **options}
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
    """Handle what there is now."""
    query = (
        frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    )
    query.start().awaitTermination(60)


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
