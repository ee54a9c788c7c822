"""Tokens: the numbers that tell one grant from another."""

from __future__ import annotations

import pytest

from penstock import LeaseLost


def test_tokens_are_whole_numbers_below_two_to_the_63(q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    token = jobs.take().token
    assert type(token) is int
    assert 2**32 <= token < 2**63


def test_only_who_took_a_task_sees_its_token(q):
    jobs = q.create_tube("jobs")
    assert jobs.put("x").token is None
    task = jobs.take()
    assert jobs.peek(1).token is None
    assert [seen.token for seen in jobs.tasks()] == [None]
    assert task.ack().token is None


def test_tokens_of_one_task_rise_with_every_grant(q, clock):
    jobs = q.create_tube("jobs", ttr=5, retry=0)
    jobs.put("x")
    tokens = []
    for end in ("release", "fail", "ttr", "snatch"):
        task = jobs.take()
        tokens.append(task.token)
        if end == "ttr":
            clock.advance(5)
        elif end == "snatch":
            jobs.snatch(1)
        else:
            getattr(task, end)()
    tokens.append(jobs.take().token)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 5


def test_tokens_of_one_lane_rise_in_the_order_of_its_grants(bench, q):
    q.create_tube("jobs", "utube").put_many(range(20), lane="a")
    tubes = [bench.connect().tube("jobs") for _ in range(3)]
    tokens = []
    for n in range(20):
        task = tubes[n % 3].take()
        assert task.data == n
        tokens.append(task.token)
        task.ack()
    assert tokens == sorted(set(tokens))


def test_a_batch_has_rising_tokens(q):
    for kind in ("fifo", "utube", "standard"):
        tube = q.create_tube(kind, kind)
        tube.put_many(range(30))
        tokens = [task.token for task in tube.take_many(30)]
        assert tokens == sorted(set(tokens))


def test_tokens_are_unique_over_tubes_and_sessions(bench, q):
    names = ["one", "two", "three"]
    for name in names:
        q.create_tube(name, temporary=name == "three").put_many(range(10))
    tokens = [task.token for queue in (q, bench.connect()) for name in names for task in queue.tube(name).take_many(5)]
    assert len(set(tokens)) == 30


@pytest.mark.parametrize("rounds", [3, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_tokens_rise_past_many_thousand_grants(q, rounds):
    jobs = q.create_tube("jobs", "fifo")
    other = q.create_tube("other", "fifo")
    last = 0
    seen = set()
    for _ in range(rounds):
        jobs.put_many(range(1500))
        tasks = jobs.take_many(1500)
        other.put("x")
        tasks_of_other = other.take_many(1)
        seen.update(task.token for task in [*tasks, *tasks_of_other])
        assert tasks[0].token > last
        last = tasks[-1].token
        jobs.ack_many(tasks)
    assert len(seen) == rounds * 1501


@pytest.mark.parametrize("temporary", [False, True])
def test_tokens_of_a_new_run_are_above_all_of_the_runs_before(bench, q, temporary):
    q.create_tube("jobs", temporary=temporary)
    highest = 0
    for _ in range(3):
        jobs = bench.new_run().tube("jobs")
        jobs.put("x")
        token = jobs.take().token
        assert token >> 32 > highest >> 32
        highest = token


def test_a_token_of_an_earlier_run_is_worth_nothing(bench, q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    old = jobs.take().token
    again = bench.new_run()
    task = again.tube("jobs").take()
    assert (task.id, task.attempt) == (1, 2)
    assert task.token > old


def test_a_stale_token_changes_nothing_even_for_the_session_that_has_the_task_again(q, clock):  # cases 290, 336
    jobs = q.create_tube("jobs", ttr=5)
    jobs.put("x")
    late = jobs.take()
    clock.advance(5)
    now = jobs.take()
    for call in (late.ack, late.release, late.bury, late.fail, lambda: late.touch(1)):
        with pytest.raises(LeaseLost) as error:
            call()
        assert error.value.now == "taken"
    assert now.ack().reason == "success"
