"""The claim log of a stream, without Spark: what it leases, what it delivers again, what it ends and how."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.spark.places import every_engine
from tests.support.engines import Bench

from penstock import UsageError
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.spark import claim_log, outcomes
from penstock.spark.claim_log import ClaimLog, claims

TTL = 60 * SECOND


@pytest.fixture(params=every_engine())
def bench(request, tmp_path, clock):
    bench = Bench(request.param, "blocking", tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", keep=True)


def attach(q, stream="s", tube="jobs"):
    return ClaimLog(q._engine, stream, tube, TTL)


def delivered(q, after=0, upto=1000, stream="s"):
    return [claim for page in claims(q._engine, stream, after, upto) for claim in page]


def last_tally(q):
    tally = json.loads(q._engine.execute(ops.LastNotes("acked:s"))[0].text)
    return {name: number for name, number in tally.items() if name != "at" and number}


def die(log):
    """The process of a stream is gone: nobody keeps its session alive."""
    log._engine.lose(log.session)


def test_claims_are_leased_and_acked(q, jobs):
    jobs.put_many(list("abcde"))
    log = attach(q)
    assert log.take(3) == (3, []) and log.take(3) == (2, []) and log.take(3) == (0, [])
    assert jobs.statistics().tasks["taken"] == 5
    log.ack(3)
    assert jobs.statistics().tasks["kept"] == 3
    log.ack(5)
    log.ack(5)
    assert jobs.statistics().tasks["kept"] == 5
    assert [claim.record.data for claim in delivered(q)] == ['"a"', '"b"', '"c"', '"d"', '"e"']


def test_a_claim_is_read_again_as_it_was_whatever_becomes_of_the_task(q):
    jobs = q.create_tube("jobs", payload="bytes", id="uuid")
    jobs.put(b"\x00\xff", lane="lé", pri=-3, key="k", ttl=5, delay=0)
    log = attach(q)
    log.take(5)
    (before,) = delivered(q)
    assert (before.record.data, before.record.lane, before.record.pri) == (b"\x00\xff", "lé", -3)
    jobs.delete(before.record.id)
    assert delivered(q) == [before]


def test_a_restarted_stream_holds_what_the_last_one_held(q, jobs, clock):
    jobs.put_many(list("abc"))
    first = attach(q)
    first.take(3)
    first.ack(1)
    die(first)
    clock.advance(59)
    second = attach(q)
    assert (second.acked, second.last) == (1, 3)
    second.void_lost(1)
    assert second.voided(0, 3) == []
    clock.advance(600)
    second.ack(3)
    assert last_tally(q) == {"done": 2}
    assert jobs.statistics().tasks["kept"] == 3


def test_claims_that_no_batch_had_when_their_lease_ended_are_claimed_anew(q, jobs, clock):
    jobs.put_many(list("abc"))
    first = attach(q)
    first.take(3)
    die(first)
    clock.advance(60)
    assert jobs.take(timeout=0).data == "a"
    second = attach(q)
    second.void_lost(0)
    assert second.voided(0, 3) == [1, 2, 3]
    assert second.take(5) == (2, [])
    second.ack(5)
    assert last_tally(q) == {"done": 2}
    assert [claim.record.data for claim in delivered(q, 3)] == ['"b"', '"c"']


def test_the_ack_of_a_lease_that_is_over_is_refused_and_counted(q, jobs, clock):
    jobs.put_many(list("abc"))
    log = attach(q)
    log.take(3)
    die(log)
    clock.advance(60)
    task = jobs.take(timeout=0)
    log.ack(3)
    assert last_tally(q) == {"lost": 3}
    assert (jobs.peek(task.id).state, jobs.statistics().tasks["ready"]) == ("taken", 2)
    task.ack()


def test_outcomes_decide_what_happens_to_a_task(q, jobs, clock):
    jobs.put_many(list("abcdef"))
    log = attach(q)
    log.take(6)
    said = [
        {"claim": 1, "outcome": "done", "result": '{"x": 1}'},
        {"claim": 3, "outcome": "bury", "error": "ValueError: no"},
        {"claim": 4, "outcome": "retry"},
        {"claim": 5, "outcome": "retry", "delay": 30.0, "error": "later"},
    ]
    assert outcomes.write(q._engine, "s", said) == 4
    log.ack(6)
    assert last_tally(q) == {"done": 3, "bury": 1, "retry": 2}
    assert [jobs.peek(n).state for n in range(1, 7)] == ["done", "done", "buried", "ready", "delayed", "done"]
    assert jobs.peek(1).result == {"x": 1}
    assert jobs.peek(3).error == "ValueError: no"
    clock.advance(30)
    assert log.take(9) == (2, [])


def test_a_retry_follows_the_policy_of_the_tube(q, clock):
    jobs = q.create_tube("jobs", retry=7, max_attempts=2)
    jobs.put("x")
    log = attach(q)
    for number, state in ((1, "delayed"), (2, "buried")):
        log.take(1)
        outcomes.write(q._engine, "s", [{"claim": number, "outcome": "retry"}])
        log.ack(number)
        assert jobs.peek(1).state == state
        clock.advance(7)


def test_a_tube_without_delays_retries_at_once(q):
    jobs = q.create_tube("jobs", "fifo")
    jobs.put("x")
    log = attach(q)
    log.take(1)
    outcomes.write(q._engine, "s", [{"claim": 1, "outcome": "retry"}])
    log.ack(1)
    assert jobs.peek(1).state == "ready"


def test_the_first_outcome_counts(q, jobs):
    jobs.put_many(list("abc"))
    log = attach(q)
    log.take(3)
    outcomes.write(q._engine, "s", [{"claim": 2, "outcome": "bury"}])
    outcomes.write(q._engine, "s", [{"claim": n, "outcome": "retry"} for n in (1, 2, 3)])
    log.ack(3)
    assert [jobs.peek(n).state for n in (1, 2, 3)] == ["ready", "buried", "ready"]


@pytest.mark.parametrize("outcome", ["retry", "bury"])
def test_any_error_can_be_told(q, jobs, outcome):
    jobs.put_many(list("abc"))
    log = attach(q)
    log.take(3)
    texts = ("nul \0 inside", "half \udc80 a letter", "long " * 10_000)
    outcomes.write(q._engine, "s", [{"claim": n, "outcome": outcome, "error": t} for n, t in enumerate(texts, 1)])
    log.ack(3)
    assert last_tally(q) == {outcome: 3}
    told = [jobs.peek(n).error for n in (1, 2, 3)]
    assert told[:2] == ["nul \ufffd inside", "half ? a letter"] and told[2] == texts[2][:4096]


@pytest.mark.parametrize("result", ["NaN", "hello", '"a\\u0000b"', "", "[" * 100 + "]" * 100])
def test_a_result_that_no_task_can_hold_is_refused_before_it_is_written(q, jobs, result):
    jobs.put("x")
    log = attach(q)
    log.take(1)
    with pytest.raises(UsageError, match="the result of claim 1 must be JSON that a task can hold"):
        outcomes.write(q._engine, "s", [{"claim": 1, "outcome": "done", "result": result}])
    assert q._engine.execute(ops.ReadLedger("outcomes:s")) == []


def test_work_whose_result_cannot_be_stored_is_not_done_again():
    def handle(row):
        if row["claim"] == 1:
            raise ValueError("half \udc80 a letter")
        return {2: float("nan"), 3: {"a": 1}, 4: object()}[row["claim"]]

    batch = pa.RecordBatch.from_pydict({"claim": [1, 2, 3, 4]})
    (found,) = outcomes._call(handle, iter([batch]))
    rows = found.to_pylist()
    assert [row["outcome"] for row in rows] == ["retry", "bury", "done", "bury"]
    assert rows[0]["error"].startswith("ValueError: half ? a letter\n")
    assert "its result cannot be stored: numbers in data must be finite" in rows[1]["error"]
    assert rows[2]["result"] == '{"a":1}'


def test_outcomes_of_claims_that_there_are_not_are_refused(q, jobs):
    jobs.put_many(list("abc"))
    log = attach(q)
    log.take(2)
    for number, stream in ((0, "s"), (3, "s"), (1, "other")):
        with pytest.raises(UsageError, match=f"no claim {number}: stream '{stream}' has claimed"):
            outcomes.write(q._engine, stream, [{"claim": number, "outcome": "bury"}])
    log.ack(2)
    assert log.take(1) == (1, [])
    log.ack(3)
    assert jobs.statistics().tasks["kept"] == 3


def test_an_unknown_outcome_is_refused(q, jobs):
    with pytest.raises(UsageError, match=r"one of done, retry, bury, got 'later' for claim 7"):
        outcomes.write(q._engine, "s", [{"claim": 7, "outcome": "later"}])


def test_the_last_query_that_attaches_itself_goes_on_alone(q, jobs, bench):
    jobs.put_many(list("abc"))
    first = attach(q)
    first.take(1)
    second = attach(bench.connect())
    for call in (lambda: first.take(1), lambda: first.ack(1)):
        with pytest.raises(UsageError, match="another query reads the stream 's' now"):
            call()
    assert second.take(1) == (1, [])
    second.ack(2)
    assert jobs.statistics().tasks["kept"] == 2


def test_large_data_are_claimed_portion_by_portion(q, monkeypatch):
    monkeypatch.setattr(claim_log, "FIRST", 2)
    monkeypatch.setattr(claim_log, "PART_BYTES", 1000)
    monkeypatch.setattr(claim_log, "BATCH_BYTES", 3000)
    jobs = q.create_tube("jobs", keep=True)
    jobs.put_many(["x" * size for size in (10, 900, 900, 10, 900, 900, 900, 10)])
    log = attach(q)
    sizes = []
    while found := log.take(9)[0]:
        sizes.append(found)
    assert len(sizes) > 1 and sum(sizes) == 8
    assert [len(claim.record.data) - 2 for claim in delivered(q)] == [10, 900, 900, 10, 900, 900, 900, 10]
    assert [claim.number for claim in delivered(q)] == list(range(1, 9))
    log.ack(8)
    assert jobs.statistics().tasks["kept"] == 8


def test_a_stream_stays_with_its_tube(q, jobs):
    attach(q)
    q.create_tube("other")
    with pytest.raises(UsageError, match=r"stream 's' reads the tube 'jobs', not 'other'"):
        attach(q, tube="other")


def test_offsets_of_other_stores_and_forgotten_claims_are_refused(q, jobs, clock):
    jobs.put_many(list("abc"))
    log = attach(q)
    log.take(2)
    log.check_offset(2)
    with pytest.raises(UsageError, match=r"at claim 3, but stream 's' has claimed 2"):
        log.check_offset(3)
    log.ack(1)
    clock.advance(10)
    log.ack(2)
    log.trim(11 * SECOND)
    assert len(delivered(q)) == 2
    clock.advance(2)
    log.trim(11 * SECOND)
    assert [claim.number for claim in delivered(q)] == [2]
    log.check_offset(1)
    with pytest.raises(UsageError, match="older than claimRetention"):
        log.check_offset(0)
    again = attach(q)
    assert (again.acked, again.last) == (2, 2)
    assert again.take(5) == (1, [])


def test_a_batch_outlasts_the_ttr_of_its_tasks(q, clock):
    jobs = q.create_tube("jobs", ttr=5, keep=True)
    jobs.put("x")
    log = attach(q)
    log.take(1)
    clock.advance(1000)
    log.ack(1)
    assert last_tally(q) == {"done": 1}


def test_very_many_claims_are_acked_page_by_page(q, jobs):
    jobs.put_many(range(2500))
    log = attach(q)
    assert log.take(10_000) == (2500, [])
    log.ack(2500)
    assert jobs.statistics().tasks["kept"] == 2500
    assert len(delivered(q, upto=9999)) == 2500
