"""A call about a task that somebody's open transaction holds waits alone: other calls of its process go on."""

from __future__ import annotations

import threading

import psycopg
import pytest
from tests.support.postgres import until

import penstock

VERBS = {"delete": lambda tube, task: tube.delete(task.id), "release": lambda tube, task: task.release()}


@pytest.mark.parametrize("verb", VERBS)
def test_other_calls_of_the_process_go_on(place, verb):
    with penstock.connect(place) as q:
        tube = q.create_tube("jobs")
        tube.put_many([1, 2, 3])
        task = tube.take()
        outcome: list[object] = []

        def call() -> None:
            try:
                outcome.append(VERBS[verb](tube, task))
            except penstock.PenstockError as error:
                outcome.append(error)

        with psycopg.connect(place.split("?")[0]) as connection:
            tube.ack(task.id, transaction=connection)
            waiting = threading.Thread(target=call)
            waiting.start()
            with psycopg.connect(place.split("?")[0], autocommit=True) as looking:
                blocked = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and pid <> pg_backend_pid()"
                until(lambda: looking.execute(blocked).fetchone(), "nobody waits for the transaction")
            for _ in range(5):
                other = tube.take()
                other.release()
                assert tube.statistics().tasks["total"] == 3
            assert not outcome
            connection.rollback()
        waiting.join(30)
        assert isinstance(outcome[0], penstock.Task)
