"""A call about a task that somebody's open transaction holds waits alone: other calls of its process go on."""

from __future__ import annotations

import threading

import psycopg
import pytest
from tests.conftest import Background
from tests.support.postgres import until

import penstock

VERBS = {"delete": lambda tube, task: tube.delete(task.id), "release": lambda tube, task: task.release()}


@pytest.fixture
def place(warm: str) -> str:
    return warm


@pytest.mark.parametrize("verb", VERBS)
def test_other_calls_of_the_process_go_on(place, verb):
    with penstock.connect(f"{place}&patience=100") as q:
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
        waiting.join(90)
        assert isinstance(outcome[0], penstock.Task)


def test_a_caller_that_waits_for_its_own_transaction_is_told(place):
    with penstock.connect(f"{place}&patience=0.5") as q, psycopg.connect(place.split("?")[0]) as connection:
        tube = q.create_tube("jobs")
        tube.put("inside", key="k", transaction=connection)
        with pytest.raises(penstock.EngineUnavailable, match="an open transaction holds") as refusal:
            tube.put("outside", key="k")
        assert refusal.value.outcome == "not_done"
        connection.commit()
        assert [task.data for task in tube.tasks()] == ["inside"]


def test_a_put_that_may_wait_for_room_waits_for_a_transaction_too(place):
    with penstock.connect(place) as q, psycopg.connect(place.split("?")[0]) as connection:
        tube = q.create_tube("jobs", "limfifottl", capacity=5)
        tube.put("inside", key="k", transaction=connection)
        put = Background(lambda: tube.put("outside", key="k", timeout=60))
        ordinary = q._engine.store._connections._main.info.backend_pid
        with psycopg.connect(place.split("?")[0], autocommit=True) as looking:
            aside = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and pid <> all(%s)"
            mine = [ordinary, looking.info.backend_pid]
            until(lambda: looking.execute(aside, [mine]).fetchone() or not put.running, "nobody waits aside")
        connection.rollback()
        assert put.result().data == "outside"


def test_a_transaction_that_waits_for_another_is_told(place):
    with penstock.connect(f"{place}&patience=0.5") as q, psycopg.connect(place.split("?")[0]) as connection:
        tube = q.create_tube("jobs")
        tube.put("other", key="k", transaction=connection)
        with pytest.raises(penstock.EngineUnavailable, match="an open transaction holds"), q.transaction() as tx:
            tube.put("mine", key="k", transaction=tx)
        connection.rollback()
        with q.transaction() as tx:
            tube.put("again", key="k", transaction=tx)
        assert [task.data for task in tube.tasks()] == ["again"]


def test_a_queue_is_closed_while_a_call_waits_for_a_transaction(place):
    q = penstock.connect(f"{place}&patience=0.5")
    tube = q.create_tube("jobs")
    outcome: list[Exception] = []

    def call() -> None:
        try:
            tube.put("outside", key="k")
        except penstock.PenstockError as error:
            outcome.append(error)

    with psycopg.connect(place.split("?")[0]) as connection:
        tube.put("inside", key="k", transaction=connection)
        with psycopg.connect(place.split("?")[0], autocommit=True) as looking:
            blocked = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and pid <> pg_backend_pid()"
            seen = False
            while not seen:  # its patience may be over before anybody has looked
                waiting = threading.Thread(target=call)
                waiting.start()
                until(lambda: looking.execute(blocked).fetchone() or not waiting.is_alive(), "nobody waits")  # noqa: B023
                seen = waiting.is_alive()
        q.close()
        waiting.join(90)
        assert not waiting.is_alive(), "the call waits for ever"
        assert {type(error) for error in outcome} == {penstock.EngineUnavailable}
        connection.rollback()


def test_the_patience_of_the_url_holds_in_transactions(place):
    with penstock.connect(f"{place}&patience=7") as q:
        q.create_tube("jobs", lane_concurrency=1).alter(lane_order="strict")
        with q.transaction() as tx:
            assert tx.connection.execute("show lock_timeout").fetchone() == ("7s",)
