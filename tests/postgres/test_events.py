"""Events come in an order in which nothing is inserted before what was read."""

from __future__ import annotations

import psycopg

import penstock
from penstock.engines import scan_place
from penstock.engines.scan import Scan

LONG = 1000
"""Seconds that sessions live: a sign of life on its way is a writer that is still open too."""


def read(q: penstock.Queue, after: int) -> list[penstock.HistoryEvent]:
    return q.history(after=after)


def test_a_transaction_that_commits_late_is_not_missed(warm):
    with penstock.connect(warm, session_ttl=LONG) as q, psycopg.connect(warm.split("?")[0]) as connection:
        jobs = q.create_tube("jobs", history=True)
        jobs.put("first")
        seen = read(q, 0)
        assert [event.event for event in seen] == ["put"]
        late = jobs.put("late", transaction=connection)
        soon = jobs.put("soon")
        # What is committed after a writer that is still open could be overtaken by it, so it is not shown yet.
        assert read(q, seen[-1].seq) == []
        connection.commit()
        rest = read(q, seen[-1].seq)
        assert [event.task_id for event in rest] == [late.id, soon.id]
        assert [event.seq for event in rest] == sorted(event.seq for event in rest)
        assert read(q, rest[-1].seq) == []


def test_a_transaction_that_is_rolled_back_leaves_no_gap_to_wait_for(warm):
    with penstock.connect(warm, session_ttl=LONG) as q, psycopg.connect(warm.split("?")[0]) as connection:
        jobs = q.create_tube("jobs", history=True)
        jobs.put("gone", transaction=connection)
        kept = jobs.put("kept")
        assert read(q, 0) == []
        connection.rollback()
        assert [event.task_id for event in read(q, 0)] == [kept.id]


def test_events_of_one_transaction_keep_their_order(warm):
    with penstock.connect(warm, session_ttl=LONG) as q, psycopg.connect(warm.split("?")[0]) as connection:
        jobs = q.create_tube("jobs", history=True)
        ids = [jobs.put(n, transaction=connection).id for n in range(5)]
        ids += [task.id for task in jobs.put_many(range(3), transaction=connection)]
        connection.commit()
        assert [event.task_id for event in read(q, 0)] == ids


def test_a_scan_shows_no_event_that_an_older_transaction_could_come_before(warm):
    with penstock.connect(warm, session_ttl=LONG) as q, psycopg.connect(warm.split("?")[0]) as connection:
        jobs = q.create_tube("jobs", history=True)
        late = jobs.put("late", transaction=connection)
        soon = jobs.put("soon")
        assert list(scan_place(warm, Scan("events"))) == []
        connection.commit()
        (batch,) = scan_place(warm, Scan("events", columns=("task_id",)))
        assert batch.column(0).to_pylist() == [str(late.id), str(soon.id)]
