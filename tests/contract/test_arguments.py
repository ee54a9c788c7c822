"""Arguments that are wrong are refused at the door, with the value and the rule, and change nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Exponential, Features, Kind, State, TaskNotFound, TubeBusy, UsageError

HUGE = 1 << 70
MOST = (1 << 63) - 1
COUNTS = [HUGE, 1 << 63, 10**5000, -1, 1.5, True, "5", float("nan")]


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", history=True)


def naming(value):
    """What the text of the error must have of a value."""
    return "bits" if value == 10**5000 else repr(value)


def ids(value):
    return "10**5000" if value == 10**5000 else repr(value)


@pytest.mark.parametrize("value", COUNTS, ids=ids)
@pytest.mark.parametrize("option", ["max_attempts", "capacity", "concurrency", "lane_concurrency"])
def test_a_tubes_counts_are_whole_numbers_that_a_store_can_hold(q, option, value):
    jobs = q.create_tube("jobs", **{option: MOST})
    assert jobs.options[option] == MOST
    for call in (lambda: jobs.alter(**{option: value}), lambda: q.create_tube("other", **{option: value})):
        with pytest.raises(UsageError, match=option) as error:
            call()
        assert naming(value) in str(error.value)
    assert [tube.name for tube in q.tubes()] == ["jobs"]
    assert q.tube("jobs").options[option] == MOST


@pytest.mark.parametrize("value", COUNTS, ids=ids)
def test_other_counts_are_whole_numbers_that_a_store_can_hold(q, jobs, value):
    calls = {
        "max_attempts": lambda: jobs.put("x", max_attempts=value),
        "limit": lambda: jobs.tasks(limit=value),
        "n": lambda: jobs.kick(value),
        "n ": lambda: jobs.plow(value),
        " n": lambda: jobs.add_retries(value),
        "n must": lambda: jobs.take_many(value),
        "limit ": lambda: q.history(limit=value),
        "after": lambda: q.history(after=value),
        "upto": lambda: q.forget_history(value),
        "concurrency": lambda: jobs.lane("a").configure(concurrency=value),
        " limit": lambda: jobs.lanes(limit=value),
    }
    for name, call in calls.items():
        with pytest.raises(UsageError, match=name.strip()) as error:
            call()
        assert naming(value) in str(error.value)
    assert (jobs.tasks(), jobs.lanes()) == ([], [])


def test_the_largest_counts_are_taken(q, jobs):
    jobs.put("x", max_attempts=MOST)
    jobs.bury(1)
    assert (jobs.kick(MOST), jobs.plow(MOST), jobs.plow(float("inf")), jobs.plow(None)) == (1, 0, 0, 0)
    assert len(jobs.tasks(limit=MOST)) == 1
    assert len(q.history(limit=MOST)) == 3
    assert q.history(after=MOST) == []
    assert jobs.lane("a").configure(concurrency=MOST).concurrency == MOST
    assert q.forget_history(MOST) == 3


def test_attempts_end_at_the_largest_number(q):
    jobs = q.create_tube("jobs", max_attempts=1)
    jobs.put("x")
    jobs.take().fail("x")
    assert jobs.add_retries(MOST) == 1
    assert jobs.peek(1).max_attempts == MOST


@pytest.mark.parametrize("arguments", [{"limit": None}, {"after": None}, {"tube": 5}, {"tube": "a\ud800"}])
def test_history_refuses_what_is_no_position_and_no_tube(q, jobs, arguments):
    with pytest.raises(UsageError):
        q.history(**arguments)


@pytest.mark.parametrize("after", ["a\ud800", b"a", 1.5, "x" * 256, ["a"]])
def test_lanes_are_listed_from_a_text(jobs, after):
    jobs.put("x", lane="b")
    with pytest.raises(UsageError, match="after"):
        jobs.lanes(after=after)
    assert [lane.name for lane in jobs.lanes(after="a")] == ["b"]


def test_the_shared_lane_is_not_listed_again_behind_itself(q):
    tube = q.create_tube("jobs", "utube")
    tube.put("x")
    assert [lane.name for lane in tube.lanes()] == [""]
    assert tube.lanes(after="") == []


@pytest.mark.parametrize("ever", [10**400, float("inf"), 100 * 365 * 24 * 3600, timedelta.max])
def test_a_hundred_years_and_more_is_never(q, ever):
    jobs = q.create_tube("jobs", ttl=ever, ttr=ever, keep=ever)
    assert jobs.put("x", ttl=ever, ttr=ever, keep=ever).expires_at is None
    task = jobs.take(timeout=ever, ttr=ever)
    assert (task.deadline, task.touch(ever).deadline) == (None, None)
    assert task.release(delay=ever).state == State.DELAYED
    assert jobs.put("y", repeat=ever, delay=ever, timeout=ever).ready_at is None
    q.configure(session_ttl=ever)


@pytest.mark.parametrize("value", [-(10**400), -(10**5000)], ids=["-10**400", "-10**5000"])
def test_a_negative_time_is_refused_however_large(jobs, value):
    with pytest.raises(UsageError, match="ttl must not be negative"):
        jobs.put("x", ttl=value)


@pytest.mark.parametrize("kind", [["a"], {}, None, 5, Features()])
def test_a_kind_is_given_by_its_name(q, kind):
    with pytest.raises(UsageError, match="unknown kind"):
        q.create_tube("z", kind)
    assert q.tubes() == []


def test_an_exponential_may_be_given_timedeltas(q):
    policy = Exponential(base=timedelta(seconds=2), max=timedelta(minutes=1))
    assert policy == Exponential(base=2, max=60)
    jobs = q.create_tube("jobs", retry=policy)
    jobs.put("x")
    task = jobs.take().fail("x")
    assert task.ready_at - task.created_at == timedelta(seconds=2)


# -- where a page begins ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "time64"])
@pytest.mark.parametrize("state", [None, "ready"])
def test_a_page_may_begin_behind_a_number_that_no_task_has(q, mode, state):
    jobs = q.create_tube("jobs", id=mode)
    made = [task.id for task in jobs.put_many(["a", "b", "c"])]
    for after in (-5, -(1 << 63), 0):
        assert [task.id for task in jobs.tasks(state, after=after)] == made
    jobs.delete(made[1])
    assert [task.id for task in jobs.tasks(state, after=made[1])] == made[2:]
    assert jobs.tasks(state, after=MOST) == []
    with pytest.raises(TaskNotFound, match="'a'"):
        jobs.tasks(state, after="a")


@pytest.mark.parametrize("after", [-5, 7, "b", ("a", 1)])
def test_a_page_begins_behind_a_task_where_ids_are_the_callers(q, after):
    jobs = q.create_tube("jobs", id="required")
    jobs.put("x", id="a")
    jobs.put("y", id=1)
    assert [task.data for task in jobs.tasks(after="a")] == ["y"]
    with pytest.raises(TaskNotFound):
        jobs.tasks(after=after)


# -- what the hook of a kind answers ---------------------------------------------------------------------


@pytest.mark.parametrize("answer", [float("nan"), -1, "5", True, [5]])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_delay_that_is_none_is_refused_by_the_name_of_its_hook(q, answer, by_id):
    class Odd(Kind):
        features = Features(delay=True)

        def retry_delay(self, task, failure):
            return answer

    q.register_kind("odd", Odd)
    jobs = q.create_tube("jobs", "odd", retry=1)
    jobs.put("x")
    task = jobs.take()
    with pytest.raises(UsageError, match=r"retry_delay\(\) of kind 'odd'"):
        jobs.fail(1, "x") if by_id else task.fail("x")
    assert jobs.peek(1).state == State.TAKEN
    assert task.fail("x", delay=5).state == State.DELAYED


# -- what the texts say ----------------------------------------------------------------------------------


def test_bytes_are_told_where_they_may_go(jobs):
    with pytest.raises(UsageError, match='payload="bytes"'):
        jobs.put(b"x")


def test_a_task_instead_of_an_id_is_told_its_own_verbs(bench, jobs):
    jobs.put("x")
    task = jobs.take()
    for call in (lambda: jobs.ack(task), lambda: jobs.peek(task)):
        with pytest.raises(UsageError, match=r"task\.ack\(\)"):
            call()


def test_a_missing_feature_names_the_kinds_that_have_it(q):
    for call in (lambda: q.create_tube("a", "fifo", capacity=1), lambda: q.create_tube("b", "fifo").put("x", lane="l")):
        with pytest.raises(UsageError, match=r"lacks; kinds that have it: .*standard"):
            call()


def test_an_unknown_option_of_put_many_lists_those_there_are(jobs):
    with pytest.raises(UsageError, match="priority; there are pri, ttl"):
        jobs.put_many(["x"], priority=1)


@pytest.mark.parametrize("option", ["lane", "key"])
def test_a_text_that_is_too_long_is_shown_shortened(jobs, option):
    with pytest.raises(UsageError, match="100000 bytes") as error:
        jobs.put("x", **{option: "x" * 100_000})
    assert len(str(error.value)) < 300


def test_one_is_not_spoken_of_as_many(jobs):
    jobs.put_many(["x", "y"])
    jobs.take()
    with pytest.raises(TubeBusy, match="1 task is taken and 0 takers wait"):
        jobs.drop()
    jobs.take()
    with pytest.raises(TubeBusy, match="2 tasks are taken"):
        jobs.drop()


def test_another_kind_is_what_differs(q):
    q.create_tube("jobs", "fifo")
    with pytest.raises(UsageError, match="kind: it has 'fifo', asked for 'standard'") as error:
        q.create_tube("jobs", "standard", if_not_exists=True, ttl=5, lane_rate=1)
    assert "feature" not in str(error.value)


def test_what_differs_is_shown_as_it_is_written(q):
    q.create_tube("jobs", ttl=5, keep=True, retry=[1, 2])
    with pytest.raises(UsageError) as error:
        q.create_tube("jobs", if_not_exists=True, ttl=6.5, keep=60, retry=3, ttr=None, history=False)
    for text in ("ttl: it has 5.0, asked for 6.5", "keep: it has True, asked for 60.0", "retry: it has [1.0, 2.0]"):
        assert text in str(error.value)
    assert "ttr" not in str(error.value)
    assert q.create_tube("jobs", if_not_exists=True, ttl=5, keep=True, retry=[1, 2]).name == "jobs"
