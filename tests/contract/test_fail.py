"""fail: retries, attempts and the grave."""

from __future__ import annotations

import pytest
from tests.support.watching import at, refused

from penstock import Exponential, Reason, State, UsageError


@pytest.fixture
def failing(q):
    """Make a tube with these options, put a task, and fail it once a call."""

    def make(**options):
        jobs = q.create_tube("jobs", **options)
        jobs.put(1)
        return jobs, lambda **how: jobs.take().fail("no", **how)

    return make


def delays(jobs, fail, clock, number):
    result = []
    for _ in range(number):
        result.append((fail().ready_at - at(clock)).total_seconds())
        clock.advance(result[-1])
    return result


def test_without_any_policy_the_first_failure_buries(failing):
    jobs, fail = failing()
    task = fail()
    assert (task.state, task.reason, task.error) == (State.BURIED, Reason.NO_ATTEMPTS, "no")
    assert jobs.take() is None


def test_attempts_left_without_delay_is_ready_at_once(failing):
    _, fail = failing(max_attempts=3)
    assert [fail().state for _ in range(3)] == [State.READY, State.READY, State.BURIED]


def test_a_delay_is_a_retry_of_its_own(failing, clock):
    _, fail = failing()
    task = fail(delay=7)
    assert (task.state, task.ready_at) == (State.DELAYED, at(clock, 7))


def test_the_delay_of_fail_is_before_that_of_the_tube(failing, clock):
    _, fail = failing(retry=5)
    assert fail(delay=0).state == State.READY
    assert fail(delay=9).ready_at == at(clock, 9)


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (5, [5, 5, 5, 5]),
        ([1, 10], [1, 10, 10, 10]),
        (Exponential(), [1, 2, 4, 8]),
        (Exponential(base=2, factor=3, max=20), [2, 6, 18, 20]),
        (0, [0, 0, 0, 0]),
    ],
)
def test_a_retry_policy_gives_the_delays(failing, clock, retry, expected):  # cases 274, 275
    jobs, fail = failing(retry=retry)
    assert delays(jobs, fail, clock, 4) == expected


def test_a_release_is_no_failure(failing, clock):
    jobs, fail = failing(retry=[1, 10])
    jobs.take().release()
    assert delays(jobs, fail, clock, 2) == [1, 10]


def test_errors_are_kept_in_order(failing, clock):  # case 277
    jobs, _ = failing(max_attempts=5)
    jobs.take().fail("first")
    task = jobs.take().fail(ValueError("second"))
    assert (task.error, task.errors) == ("ValueError: second", ["first", "ValueError: second"])


def test_the_last_attempt_knows_that_it_is(failing):  # case 279
    jobs, _ = failing(max_attempts=2)
    task = jobs.take()
    assert not task.last_attempt
    task.release()
    assert jobs.take().last_attempt


def test_abort_buries_whatever_is_left(failing):  # case 271
    _, fail = failing(max_attempts=5, retry=5)
    task = fail(abort=True)
    assert (task.state, task.reason, task.attempt) == (State.BURIED, Reason.ABORTED, 1)


@pytest.mark.parametrize("abort", ["perhaps", 2, None])
def test_a_bad_abort_is_refused(failing, abort):
    jobs, fail = failing()
    refused(abort, lambda: fail(abort=abort))
    assert jobs.peek(1).state == State.TAKEN


@pytest.mark.parametrize("delay", [float("nan"), "soon"])
def test_a_bad_delay_is_refused(failing, delay):
    jobs, fail = failing()
    refused(delay, lambda: fail(delay=delay))
    assert jobs.peek(1).state == State.TAKEN


def test_a_kind_without_delay_retries_at_once_and_takes_no_delay(q):
    jobs = q.create_tube("jobs", "fifo", max_attempts=2)
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(UsageError, match="'delay'"):
        task.fail("no", delay=5)
    assert task.fail("no").state == State.READY
    assert jobs.take().fail("no").reason == Reason.NO_ATTEMPTS


def test_a_long_error_is_cut(failing):
    jobs, _ = failing()
    assert 1000 < len(jobs.take().fail("x" * 100_000).error) < 10_000


def test_an_error_of_any_characters_is_kept(failing):
    jobs, _ = failing()
    jobs.take().fail(ValueError("a\0b \ud800 ä"))
    assert jobs.peek(1).error.startswith("ValueError: a")
    assert "ä" in jobs.peek(1).error


def test_a_text_of_any_characters_is_kept(failing):
    jobs, _ = failing()
    jobs.take().fail("a\0b \ud800 ä")
    assert "ä" in jobs.peek(1).error


@pytest.mark.parametrize("error", [5, ["no"], b"no"])
def test_an_error_that_is_neither_text_nor_exception_is_refused(failing, error):
    jobs, _ = failing()
    task = jobs.take()
    refused(error, lambda: task.fail(error))
    refused(error, lambda: task.bury(error))
    assert jobs.peek(1).state == State.TAKEN
