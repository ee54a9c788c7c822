"""Scans: on every engine they read the same as ListTasks and ReadHistory."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from tests.support import postgres
from tests.support.engines import Bench, engine_parameters

import penstock
from penstock import TubeNotFound, UsageError
from penstock.engines import arrow, scan_place
from penstock.engines.scan import EVENTS, PAGE, TASKS, Scan, id_text
from penstock.engines.sqlite import scan as sqlite_scan

ODD = (
    *(
        "",
        " ",
        '"',
        '""',
        ",",
        "\n",
        "\r",
        "\r\n",
        "a\nb\r\nc",
        'a"b,c\n"d"',
        "\\",
        "\\N",
        "\\.",
        "\\n",
        "NULL",
        "null",
        "NaN",
    ),
    *(
        "é",
        "漢字",
        "🦀",
        "\u2028",
        "\t",
        "'",
        "''; drop table x",
        "0",
        "1e5",
        "true",
        "2020-01-01",
        "{}",
        "%s %(x)s {0}",
        "\x01",
        "\x02",
        "a\x01\x02\x01b",
    ),
)


@pytest.fixture(params=engine_parameters())
def bench(request, tmp_path, clock):
    with postgres.warmth():
        bench = Bench(request.param, "blocking", tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def q(bench):
    return bench.connect()


def read(q, *args, **options):
    """All rows of a scan as dicts; each batch has the schema that was promised."""
    scan = Scan(*args, **options)
    found = list(q._engine.scan(scan))
    assert all(batch.schema == arrow.schema(scan.kinds) and batch.num_rows for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def task_row(task):
    record = task._record
    row = {name: getattr(task, name, None) for name in TASKS}
    return {
        **row,
        "seq": record.seq,
        "id": id_text(task.id),
        "state": str(task.state),
        "reason": None if task.reason is None else str(task.reason),
        "data": record.data if isinstance(record.data, str) else None,
        "body": record.data if isinstance(record.data, bytes) else None,
        "taken_at": None if record.taken_at is None else pa.scalar(record.taken_at, arrow.TYPES["timestamp"]).as_py(),
        "result": record.result,
        "errors": record.errors,
    }


def event_row(event, data=None):
    return {**event._asdict(), "task_id": id_text(event.task_id), "data": data, "body": None}


def test_a_scan_of_tasks_reads_what_is_listed(q, clock):
    jobs = q.create_tube("jobs", keep=60, retry=5, max_attempts=3, ttr=10)
    for n in range(8):
        jobs.put({"n": n}, pri=n, lane=f"l{n % 2}", key=f"k{n}", ttl=1000 + n if n % 2 else None)
    jobs.put("later", delay=50)
    jobs.take().ack({"sum": 1})
    jobs.take().fail(ValueError('a\n"b", c'))
    jobs.take().bury("done with it")
    jobs.take()
    rows = read(q, "tasks", "jobs")
    assert rows == [task_row(task) for task in jobs.tasks()]
    assert {row["state"] for row in rows} == {"ready", "taken", "delayed", "buried", "done"}
    assert list(rows[0]) == list(TASKS)


def test_a_scan_of_events_reads_the_history(q, clock):
    jobs = q.create_tube("jobs", history=True, retry=7)
    other = q.create_tube("other", history=True)
    other.put(1)
    jobs.put("x", pri=3, lane="l", key="k", delay=2)
    clock.advance(2)
    jobs.take().fail(ValueError("no\nroute"))
    clock.advance(7)
    jobs.take().ack(keep=True)
    assert read(q, "events") == [event_row(event) for event in q.history()]
    assert read(q, "events", "jobs") == [event_row(event) for event in q.history(tube="jobs")]
    assert list(read(q, "events")[0]) == list(EVENTS)


def test_data_in_events_are_shown_as_text_or_bytes(q):
    q.create_tube("texts", history=True, history_data=True).put({"a": "é\n"})
    q.create_tube("bodies", history=True, history_data=True, payload="bytes").put(b"\x00\xff")
    text, body = read(q, "events", columns=("data", "body"))
    assert (json.loads(text["data"]), text["body"]) == ({"a": "é\n"}, None)
    assert body == {"data": None, "body": b"\x00\xff"}


def test_odd_texts_come_back_as_they_are(q):
    jobs = q.create_tube("jobs", history=True, history_data=True, keep=True)
    for text in ODD:
        jobs.put({"text": text}, lane=text or None, key=text or None)
    jobs.put("")
    for _ in ODD:
        jobs.take().ack("")
    error = jobs.take()
    error.bury("\n".join(ODD))
    rows = read(q, "tasks", "jobs")
    assert rows == [task_row(task) for task in jobs.tasks()]
    assert [json.loads(row["data"]) for row in rows] == [*({"text": text} for text in ODD), ""]
    assert rows[-1]["error"] == "\n".join(ODD)
    events = read(q, "events")
    assert [(e["lane"], e["key"], e["error"]) for e in events] == [(e.lane, e.key, e.error) for e in q.history()]


def test_an_empty_text_is_not_null(q):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    jobs.take().bury("")
    jobs.put(2)
    assert [row["error"] for row in read(q, "tasks", "jobs", columns=("error",))] == ["", None]
    assert read(q, "tasks", "jobs", columns=("lane",)) == [{"lane": None}] * 2


def test_bytes_come_back_as_they_are(q):
    tube = q.create_tube("bodies", payload="bytes")
    bodies = [b"", b"\x00", bytes(range(256)), b'"\n,', "é".encode(), b"x" * 100_000]
    for body in bodies:
        tube.put(body)
    rows = read(q, "tasks", "bodies", columns=("body", "data", "seq"))
    assert [row["body"] for row in rows] == bodies
    assert {row["data"] for row in rows} == {None}


def test_huge_data_come_back_as_they_are(q):
    jobs = q.create_tube("jobs", max_payload=64 << 20)
    texts = ["a\n" * 2_500_000, "small", 'é"' * 1_500_000]
    for text in texts:
        jobs.put(text)
    assert [json.loads(row["data"]) for row in read(q, "tasks", "jobs", columns=("data",))] == texts


def test_rows_with_large_data_come_in_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_scan, "PAGE_BYTES", 1000)
    with penstock.connect(str(tmp_path / "tasks.db")) as q:
        q.create_tube("jobs").put_many(["x" * 100] * 45)
        found = [batch.to_pydict()["seq"] for batch in q._engine.scan(Scan("tasks", "jobs", ("seq", "data")))]
    assert [len(seqs) for seqs in found] == [20, 20, 5]
    assert [seq for seqs in found for seq in seqs] == list(range(1, 46))


def test_more_rows_than_a_batch_has_are_all_there_once_in_order(q):
    jobs = q.create_tube("jobs")
    number = 2 * PAGE + 1
    jobs.put_many(range(number))
    rows = read(q, "tasks", "jobs", columns=("seq", "data"))
    assert [json.loads(row["data"]) for row in rows] == list(range(number))
    seqs = [row["seq"] for row in rows]
    assert seqs == sorted(set(seqs))


def test_ranges_follow_each_other_without_gap_or_overlap(q):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(100))
    for what, tube in (("tasks", "jobs"), ("events", None)):
        seqs = [row["seq"] for row in read(q, what, tube, columns=("seq",))]
        bounds = [0, seqs[9], seqs[40], seqs[-1]]
        parts = [read(q, what, tube, columns=("seq",), lo=lo, hi=hi) for lo, hi in pairwise(bounds)]
        assert [len(part) for part in parts] == [10, 31, 59]
        assert [row["seq"] for part in parts for row in part] == seqs


def test_states_lanes_and_moments_choose_rows(q, clock):
    jobs = q.create_tube("jobs", keep=True, history=True)
    start = clock.now()
    for n in range(6):
        jobs.put(n, lane="ab"[n % 2])
        clock.advance(1)
    jobs.take().ack()
    jobs.take().bury()

    def data(**options):
        return [json.loads(row["data"]) for row in read(q, "tasks", "jobs", columns=("data",), **options)]

    second = 1_000_000
    assert data(states=("done", "buried")) == [0, 1]
    assert data(states=("ready",), lanes=("b",)) == [3, 5]
    assert data(lanes=("a", "no such")) == [0, 2, 4]
    assert data(states=()) == data(lanes=()) == []
    assert data(since=start + 2 * second, until=start + 4 * second) == [2, 3]
    assert data(since=start + 5 * second, by_end=True) == [0, 5]
    events = read(q, "events", states=("done", "buried"), columns=("event",))
    assert [row["event"] for row in events] == ["ack", "bury"]
    assert len(read(q, "events", since=start + 6 * second)) == 4
    assert len(read(q, "events", since=start, until=start + 6 * second)) == 6


def test_ids_of_ones_own_are_shown_as_text(q):
    names = q.create_tube("names", id="required", history=True)
    ids = [*(text for text in ODD if text.strip()), 12, "12", -5, "-5", "-", "--5", "5-", "5\n", '"12"', "١٢", "1.5"]
    for one in ids:
        names.put(1, id=one)
    shown = [id_text(one) for one in ids]
    assert len(set(shown)) == len(ids) and {"12", '"12"', "-5", '"-5"', "--5", "1.5", '"\\"12\\""'} < set(shown)
    assert [row["id"] for row in read(q, "tasks", "names", columns=("id",))] == shown
    assert [row["task_id"] for row in read(q, "events", columns=("task_id",))] == shown


def test_a_temporary_tube_can_be_read(q):
    q.create_tube("short", temporary=True).put("x")
    assert [row["data"] for row in read(q, "tasks", "short")] == ['"x"']


def test_what_is_asked_for_is_no_part_of_statements(q):
    jobs = q.create_tube("jobs", history=True)
    for text in ODD:
        jobs.put(text, lane=text or None)
    for text in filter(None, ODD):
        assert [json.loads(row["data"]) for row in read(q, "tasks", "jobs", lanes=(text,))] == [text]
        assert [row["lane"] for row in read(q, "events", lanes=(text,))] == [text]
        assert read(q, "events", text) == []


def test_durations_without_end_are_infinite_and_dates_out_of_reach_are_null(q):
    jobs = q.create_tube("jobs")
    jobs.put(1, ttr=float("inf"), ttl=float("inf"))
    rows = read(q, "tasks", "jobs")
    assert rows == [task_row(task) for task in jobs.tasks()]


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_a_scan_that_is_dropped_half_way_leaves_the_store_usable(q, times):
    jobs = q.create_tube("jobs")
    jobs.put_many(range(PAGE + 1))
    for _ in range(times):
        batches = q._engine.scan(Scan("tasks", "jobs", ("seq",)))
        next(batches)
        batches.close()
    assert len(read(q, "tasks", "jobs", columns=("seq",))) == PAGE + 1
    jobs.put(1)


def test_a_place_can_be_read_without_being_opened(q, bench):
    q.create_tube("jobs", history=True).put_many(["a", "b"])
    q.create_tube("short", temporary=True).put("c")
    for what, tube, number in (("tasks", "jobs", 2), ("tasks", "short", 1), ("events", None, 2)):
        scan = Scan(what, tube, ("seq",))
        assert sum(batch.num_rows for batch in scan_place(bench.url, scan)) == number
    with pytest.raises(TubeNotFound, match="'nowhere'"):
        list(scan_place(bench.url, Scan("tasks", "nowhere")))


def test_an_empty_tube_has_no_batches(q):
    q.create_tube("jobs")
    assert read(q, "tasks", "jobs") == read(q, "events") == []


def test_what_cannot_be_read_is_refused_by_name(q):
    with pytest.raises(TubeNotFound, match="'nowhere'"):
        read(q, "tasks", "nowhere")
    with pytest.raises(UsageError, match="no column 'colour'"):
        q._engine.scan(Scan("tasks", "jobs", ("colour",)))
    with pytest.raises(UsageError, match="no state 'asleep'"):
        q._engine.scan(Scan("tasks", "jobs", states=("asleep",)))
    with pytest.raises(UsageError, match="needs a tube"):
        q._engine.scan(Scan("tasks"))
