"""Attempts of handlers: how often, how long after, how long in all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.watching import Events
from tests.worker.bench import PATIENCE, Bench, Later, Still, Working, until, until_state, work
from tests.worker.conftest import on_both

import penstock
from penstock import Exponential, Run

LIMIT = 600.0
"""Seconds that a run may last; over when a test says so."""


def failing(calls: list[Any]) -> Any:
    def job(data: Any, run: Run) -> None:
        calls.append((run.attempt, run.last_attempt))
        raise ValueError(f"attempt {run.attempt}")

    return job


@on_both
def test_a_task_is_tried_max_attempts_times_and_then_buried(q: Any) -> None:  # cases 253, 270, 277, 279, 284
    calls: list[Any] = []
    task = q.handler("jobs", max_attempts=3, retry=0)(failing(calls)).put(1)
    tally = work(q)
    found = q.tube("jobs").peek(task.id)
    assert calls == [(1, False), (2, False), (3, True)]
    assert (found.state, found.reason, found.attempt) == ("buried", "no_attempts", 3)
    assert [text.splitlines()[0] for text in found.errors] == [f"ValueError: attempt {n}" for n in (1, 2, 3)]
    assert found.error == found.errors[-1]
    assert (tally.ok, tally.trouble) == (0, 3)


def test_a_task_that_succeeds_at_last_is_done(q: Any) -> None:
    @q.handler("jobs", max_attempts=5, retry=0, keep=True)
    async def job(data: Any, run: Run) -> int:
        if run.attempt < 3:
            raise ValueError(f"attempt {run.attempt}")
        return run.attempt

    task = job.put(1)
    tally = work(q)
    found = q.tube("jobs").peek(task.id)
    assert (found.reason, found.result, len(found.errors)) == ("success", 3, 2)
    assert (tally.ok, tally.trouble) == (1, 2)


def test_a_task_may_have_attempts_of_its_own(memory: Any) -> None:
    calls: list[Any] = []
    handler = memory.handler("jobs", max_attempts=9, retry=0)(failing(calls))
    handler.put(1, max_attempts=2)
    work(memory)
    assert calls == [(1, False), (2, True)]


def test_without_a_policy_the_first_failure_buries(q: Any) -> None:  # case 273
    calls: list[Any] = []
    task = q.handler("jobs", max_attempts=None, retry=None)(failing(calls)).put(1)
    work(q)
    found = q.tube("jobs").peek(task.id)
    assert (calls, found.reason) == ([(1, False)], "no_attempts")


def test_a_retry_without_a_limit_goes_on(q: Any) -> None:
    calls: list[Any] = []

    @q.handler("jobs", max_attempts=None, retry=0)
    def job(data: Any, run: Run) -> None:
        calls.append(run.last_attempt)
        if run.attempt < 30:
            raise ValueError

    job.put(1)
    work(q)
    assert calls == [False] * 30


POLICIES: dict[str, tuple[Any, list[float]]] = {  # the delays, in seconds, after the first failures
    "seconds": (1000, [1000, 1000, 1000]),
    "timedelta": (timedelta(seconds=1000), [1000, 1000]),
    "list": ([600, 3000], [600, 3000, 3000]),
    "list of one": ([700], [700, 700]),
    "exponential": (Exponential(base=1000, factor=3), [1000, 3000, 3600]),
    "exponential with a maximum": (Exponential(base=1000, factor=2, max=1500), [1000, 1500, 1500]),
}


@pytest.mark.parametrize(("policy", "delays"), POLICIES.values(), ids=POLICIES)
def test_a_failure_waits_as_the_policy_says(policy: Any, delays: list[float]) -> None:  # cases 274, 275, 276
    q = penstock.connect("memory:")
    check_delays(q, policy, delays)


@on_both
@pytest.mark.parametrize("policy", ["list", "exponential"])
def test_a_failure_waits_as_the_policy_says_on_every_engine(q: Any, policy: str) -> None:  # cases 274, 275
    check_delays(q, *POLICIES[policy])


def test_jitter_spreads_the_delays_within_its_bounds(q: Any) -> None:
    handler = q.handler("jobs", retry=Exponential(base=1000, jitter=0.1))(failing([]))
    handler.put_many(range(30))
    before = datetime.now(UTC)
    work(q, horizon=60)
    after = datetime.now(UTC)
    delays = [task.ready_at for task in q.tube("jobs").tasks()]
    assert len(set(delays)) > 20
    assert min(delays) >= before + timedelta(seconds=900) and max(delays) <= after + timedelta(seconds=1100)


def check_delays(q: Any, policy: Any, delays: list[float]) -> None:
    handler = q.handler("jobs", retry=policy, max_attempts=9, history=True)(failing([]))
    task = handler.put(1)
    tube = q.tube("jobs")
    for delay in delays:
        work(q, horizon=60)
        found = tube.peek(task.id)
        assert found.state == "delayed"
        failed_at = [event.at for event in q.history(limit=100) if event.event == "fail"][-1]
        assert found.ready_at - failed_at == timedelta(seconds=delay)
        tube.switch(task.id, "ready")


def test_the_defaults_are_25_attempts_ever_later(still: Still) -> None:  # case 253
    q = still.connect()
    task = q.handler("jobs")(failing([])).put(1)
    work(q, horizon=0)
    found = q.tube("jobs").peek(task.id)
    assert (found.state, found.max_attempts) == ("delayed", 25)
    assert timedelta(seconds=0.9) <= found.ready_at - found.created_at <= timedelta(seconds=1.1)
    assert q.tube("jobs").options["retry"] == Exponential(jitter=0.1)


def test_a_short_delay_is_waited_for(q: Any) -> None:  # case 266
    calls: list[Any] = []
    handler = q.handler("jobs", max_attempts=3, retry=[0.02, 0.05])(failing(calls))
    handler.put(1)
    handler.put(2, delay=0.05)
    work(q)
    assert len(calls) == 6


@on_both
def test_a_delayed_task_starts_soon_after_its_time(q: Any) -> None:  # case 266
    seen: list[datetime] = []
    handler = q.handler("jobs")(lambda data: seen.append(datetime.now(UTC)))
    with Working(q):
        task = handler.put(1, delay=0.1)
        until(lambda: seen)
    assert seen[0] >= task.ready_at


def test_the_horizon_is_how_far_a_run_to_the_end_looks(memory: Any) -> None:
    calls: list[Any] = []
    handler = memory.handler("jobs")(calls.append)
    handler.put(1, delay=0.05)
    handler.put(2, delay=3600)
    work(memory, horizon=60)
    assert calls == [1]


def test_add_retries_lets_a_worker_try_again(q: Any) -> None:  # cases 304, 305
    calls: list[Any] = []
    task = q.handler("jobs", max_attempts=2, retry=0)(failing(calls)).put(1)
    work(q)
    q.tube("jobs").add_retries(2)
    work(q)
    assert [attempt for attempt, _ in calls] == [1, 2, 3, 4]
    assert calls[-1][1] is True
    assert q.tube("jobs").peek(task.id).reason == "no_attempts"


@on_both
def test_add_retries_revives_what_failed_for_want_of_attempts_or_time(
    still: Still, later: Later
) -> None:  # cases 304, 305, 306, 308
    q = still.connect()
    runs: list[str] = []
    slow = threading.Event()

    def job(data: str, run: Run) -> None:
        runs.append(data)
        if data == "abort":
            raise penstock.Abort
        if data == "slow" and run.attempt == 1:
            slow.set()
            run.wait(PATIENCE)
        if data == "fail":
            raise ValueError

    options: dict[str, Any] = {"keep": True, "keep_failed": True, "max_attempts": 1, "retry": 0}
    handler = q.handler("jobs", **options)(job)
    other = q.handler("other", **options)(job)
    tasks = {data: handler.put(data, ttr=LIMIT if data == "slow" else None) for data in ("fail", "abort", "slow", "ok")}
    tasks["cancelled"] = handler.put("cancelled", key="c")
    tasks["expired"] = handler.put("expired", ttl=0)
    apart = other.put("fail")
    q.tube("jobs").cancel(key="c")
    with Working(q) as working:
        assert slow.wait(PATIENCE)
        later(LIMIT)
        until(lambda: working.tally.ok == 1 and working.tally.trouble == 4)
        still.clock.advance(LIMIT)
    reasons = {data: str(q.tube("jobs").peek(task.id).reason) for data, task in tasks.items()}
    assert list(reasons.values()) == ["no_attempts", "aborted", "lost", "success", "cancelled", "expired"]
    for wrong in (0, -1):
        with pytest.raises(penstock.UsageError):
            q.tube("jobs").add_retries(wrong)
    runs.clear()
    assert q.tube("jobs").add_retries(2) == 3
    work(q)
    assert sorted(runs) == ["fail", "fail", "slow"]  # one whose ttl is 0 expires again
    assert q.tube("other").peek(apart.id).attempt == 1


def test_a_kicked_task_runs_again(q: Any) -> None:
    calls: list[Any] = []
    handler = q.handler("jobs", max_attempts=1)(failing(calls))
    handler.put(1)
    work(q)
    assert q.tube("jobs").kick() == 1
    work(q)
    assert [attempt for attempt, _ in calls] == [1, 2]


# -- repeating -------------------------------------------------------------------------------------


@on_both
def test_a_repeating_task_comes_again_after_its_period(q: Any) -> None:  # case 280
    runs: list[tuple[int, int]] = []

    @q.handler("jobs", max_attempts=3)
    def job(data: Any, run: Run) -> None:
        runs.append((data, run.attempt))

    task = job.put(1, repeat=0.02)
    with Working(q):
        until(lambda: len(runs) >= 3)
    assert set(runs) == {(1, 1)}
    assert q.tube("jobs").peek(task.id).state in ("delayed", "ready")


def test_a_repeating_task_that_fails_waits_its_retry_delay(q: Any) -> None:  # case 282
    handler = q.handler("jobs", max_attempts=3, retry=1000)(failing([]))
    task = handler.put(1, repeat=5000)
    before = datetime.now(UTC)
    work(q, horizon=60)
    found = q.tube("jobs").peek(task.id)
    assert found.state == "delayed"
    assert timedelta(seconds=999) < found.ready_at - before
    assert found.ready_at - datetime.now(UTC) < timedelta(seconds=1100)


def test_a_repeating_task_neither_gets_lost_nor_expires(still: Still, later: Later) -> None:  # cases 289, 299
    q = still.connect()
    runs: list[int] = []

    @q.handler("jobs", max_attempts=2, attempt_limit=LIMIT, ttl=0.4 * LIMIT)
    def job(data: Any, run: Run) -> None:
        runs.append(run.attempt)
        if len(runs) == 1:
            run.wait(PATIENCE)

    job.put(1, repeat=0.3 * LIMIT)
    with Working(q) as working:
        until(lambda: len(runs) == 1)
        later(LIMIT)
        until(lambda: working.tally.lost)
        still.clock.advance(LIMIT)
        for number in (3, 4):
            until(lambda: q.tube("jobs").statistics().tasks["delayed"] == 1)
            still.clock.advance(0.3 * LIMIT)
            until(lambda number=number: len(runs) == number)
    assert runs == [1, 2, 1, 1]


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ttl"),
    [
        ({"attempt_limit": 3, "max_attempts": 3, "retry": 1}, 11),
        ({"attempt_limit": 3, "max_attempts": 1, "retry": None}, 3),
        ({"attempt_limit": 10, "max_attempts": 4, "retry": [60, 300]}, 10 + 60 + 10 + 300 + 10 + 300 + 10),
        ({"attempt_limit": 2, "max_attempts": 4, "retry": Exponential(jitter=0.5)}, 4 * 2 + 1 + 2 + 4),
        ({"attempt_limit": 2, "max_attempts": 3}, 3 * 2 + 1 + 2),
        ({}, 25 * 3600 + sum(min(3600, 2**k) for k in range(24))),
    ],
    ids=str,
)
def test_a_derived_ttl_is_the_time_of_all_attempts(options: dict[str, Any], ttl: float) -> None:  # cases 293, 295
    q = penstock.connect("memory:")
    check_ttl(q, options, ttl)


@on_both
def test_a_derived_ttl_is_the_time_of_all_attempts_on_every_engine(q: Any) -> None:  # case 293
    check_ttl(q, {"attempt_limit": 3, "max_attempts": 3, "retry": 1}, 11)


def check_ttl(q: Any, options: dict[str, Any], ttl: float) -> None:
    handler = q.handler("jobs", ttl="derived", **options)(lambda data: None)
    task = handler.put(1)
    assert task.ttl == ttl
    assert task.expires_at - task.created_at == timedelta(seconds=ttl)
    later = handler.put(1, delay=100)
    assert later.expires_at - later.created_at == timedelta(seconds=100 + ttl)


@on_both
def test_a_ttl_counts_from_the_end_of_the_delay(q: Any) -> None:  # case 296
    task = q.handler("jobs")(failing([])).put(1, delay=100, ttl=50)
    assert task.expires_at - task.created_at == timedelta(seconds=150)


def test_a_task_whose_ttl_has_passed_is_never_run(q: Any) -> None:  # cases 297, 300
    calls: list[Any] = []
    handler = q.handler("jobs", keep=True, keep_failed=True)(calls.append)
    expired = handler.put(1, ttl=0)
    handler.put(2, ttl=60)
    work(q)
    assert calls == [2]
    assert q.tube("jobs").peek(expired.id).reason == "expired"


def test_a_cancelled_task_is_never_run(q: Any) -> None:  # cases 301, 303
    calls: list[Any] = []
    handler = q.handler("jobs")(calls.append)
    handler.put(1, key="a")
    handler.put(2, key="b")
    q.tube("jobs").cancel(key="a")
    q.tube("jobs").cancel(key="unknown")
    work(q)
    assert calls == [2]


def test_a_handler_without_a_limit_has_a_sane_one(q: Any) -> None:  # case 291
    limits: dict[str, Any] = {}

    def job(data: Any, run: Run) -> None:
        limits[run.task.tube] = run.time_left

    q.handler("none")(job).put(1)
    q.handler("zero", attempt_limit=0)(job).put(1)
    q.handler("own", attempt_limit=600)(job).put(1)
    q.handler("never", attempt_limit=None)(job).put(1)
    work(q)
    assert 3500 < limits["none"] <= 3600 and 3500 < limits["zero"] <= 3600
    assert 500 < limits["own"] <= 600
    assert limits["never"] is None


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_run_that_takes_too_long_is_told_and_its_task_comes_again(
    still: Still, later: Later, colour: str
) -> None:  # case 288
    q = still.connect()
    inside = threading.Event()
    told: list[Any] = []

    def job(data: Any, run: Run) -> str:
        if run.attempt == 1:
            inside.set()
            told.append((run.wait(PATIENCE), run.why, run.time_left))
        return f"attempt {run.attempt}"

    async def ajob(data: Any, run: Run) -> str:
        if run.attempt == 1:
            inside.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append((run.cancelled, run.why, run.time_left))
                raise
        return f"attempt {run.attempt}"

    handler = q.handler("jobs", attempt_limit=LIMIT, max_attempts=2, keep=True)(job if colour == "sync" else ajob)
    task = handler.put(1)
    with Working(q) as working:
        assert inside.wait(PATIENCE)
        later(LIMIT)
        until(lambda: working.tally.trouble)
        still.clock.advance(LIMIT)
        found = until_state(q.tube("jobs"), task.id, "done")
    assert told == [(True, "late", 0.0)]
    assert (found.reason, found.result, found.attempt) == ("success", "attempt 2", 2)
    assert working.tally.lost == 1


def test_a_run_that_takes_too_long_at_its_last_attempt_is_lost(still: Still, later: Later) -> None:  # case 288
    q = still.connect()
    inside = threading.Event()

    def job(data: Any, run: Run) -> str:
        inside.set()
        run.wait(PATIENCE)
        return "too late"

    task = q.handler("jobs", attempt_limit=LIMIT, max_attempts=1, keep=True)(job).put(1)
    with Working(q) as working:
        assert inside.wait(PATIENCE)
        later(LIMIT)
        until(lambda: working.tally.trouble)
        still.clock.advance(LIMIT)
    found = q.tube("jobs").peek(task.id)
    assert (found.state, found.reason, found.result) == ("buried", "lost", None)


@on_both
def test_a_late_result_of_an_old_attempt_is_refused(still: Still, later: Later) -> None:  # case 290
    q = still.connect()
    inside, go_on = threading.Event(), threading.Event()

    @q.handler("jobs", attempt_limit=LIMIT, max_attempts=2, keep=True)
    def job(data: Any, run: Run) -> str:
        if run.attempt == 1:
            inside.set()
            go_on.wait(PATIENCE)
            return "first"
        go_on.set()
        return "second"

    task = job.put(1)
    with Working(q, concurrency=2) as working:
        assert inside.wait(PATIENCE)
        later(LIMIT)
        until(lambda: working.tally.lost)
        still.clock.advance(LIMIT)
        until(lambda: (working.tally.ok, working.tally.trouble) == (1, 1))
    assert q.tube("jobs").peek(task.id).result == "second"


# -- what workers tell -----------------------------------------------------------------------------


class Told(list[tuple[Any, ...]]):
    """Hooks that write down what they are told."""

    def inc_busy(self, name: str, tube: str) -> None:
        self.append(("inc", name, tube))

    def measure(self, name: str, tube: str, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.append(("measure", name, tube, ok))

    def dec_busy(self, name: str, tube: str) -> None:
        self.append(("dec", name, tube))


def test_hooks_are_told_in_order_for_each_task(memory: Any) -> None:  # case 292
    told = Told()

    @memory.handler("jobs", max_attempts=1)
    def job(data: int) -> None:
        if data == 1:
            raise ValueError
        if data == 2:
            raise penstock.Abort

    job.put_many([0, 1, 2])
    memory.tube("jobs").put("no number")
    work(memory, concurrency=1, hooks=told, name="w1")
    steps = [told[n : n + 3] for n in range(0, len(told), 3)]
    assert [step[1][3] for step in steps] == [True, False, False, False]
    for step in steps:
        assert [what[:3] for what in step] == [("inc", "w1", "jobs"), ("measure", "w1", "jobs"), ("dec", "w1", "jobs")]


@on_both
def test_a_task_put_in_a_transaction_runs_once_that_is_committed(bench: Bench) -> None:  # case 258
    seen: list[Any] = []
    with penstock.connect(bench.url, durability="relaxed") as q:
        handler = q.handler("jobs")(seen.append)
        handler.put(0)
        with contextlib.suppress(KeyError), q.transaction() as tx:
            handler.put(1, transaction=tx)
            handler.put_many([2], transaction=tx)
            raise KeyError
        with q.transaction() as tx:
            handler.put(3, transaction=tx)
            handler.put_many([4], transaction=tx)
        work(q, concurrency=1)
        assert seen == [0, 3, 4]


@on_both
def test_the_events_of_a_task_are_those_of_the_verbs(bench: Bench) -> None:
    q = bench.connect()
    handler = q.handler("jobs", max_attempts=2, retry=0)(failing([]))
    tube = q.create_tube("jobs", max_attempts=2, retry=0)
    events = Events(tube)
    task = handler.put(1)
    work(q)
    until_state(tube, task.id, "buried")
    until(lambda: len(events) == 5)
    assert events.names == ["put", "take", "fail", "take", "fail"]
