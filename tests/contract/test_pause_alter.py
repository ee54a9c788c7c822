"""pause, alter, and making a tube that is there already."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import PayloadTooLarge, State, TubeExists, UsageError


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


# -- pause -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "limfifottl", "utube", "utubettl", "standard"])
def test_a_paused_tube_grants_nothing(q, kind):
    tube = q.create_tube("jobs", kind)
    tube.put_many(list("ab"))
    tube.pause()
    assert tube.options["paused"] is True
    assert tube.take() is None
    assert tube.take_many(5) == []
    tube.put("c")
    assert tube.take() is None
    tube.resume()
    assert tube.options["paused"] is False
    assert tube.take().data == "a"


def test_everything_else_goes_on_in_a_paused_tube(jobs, clock):
    jobs.put_many(list("abc"), ttr=50)
    first, second = jobs.take_many(2)
    jobs.pause()
    first.touch(5)
    first.ack()
    second.release(delay=5)
    jobs.bury(3)
    assert jobs.kick() == 1
    jobs.put("mortal", ttl=5)
    clock.advance(5)
    assert [(task.data, task.state) for task in jobs.tasks()] == [("b", State.READY), ("c", State.READY)]


def test_a_pause_changes_no_row_of_the_end_of_a_lease(q, clock):
    jobs = q.create_tube("jobs", max_attempts=1, ttr=5, history=True)
    jobs.put_many(list("ab"))
    first, _ = jobs.take_many(2)
    jobs.pause()
    first.fail("x")
    clock.advance(5)
    assert [task.reason for task in jobs.tasks()] == ["no_attempts", "lost"]


def test_resume_wakes_waiting_takers(jobs, q, waiter):
    jobs.pause()
    jobs.put_many(list("ab"))
    takes = [waiter(q, lambda: jobs.take(timeout=60)) for _ in range(2)]
    assert all(take.running for take in takes)
    jobs.resume()
    assert [take.result().data for take in takes] == ["a", "b"]


def test_a_pause_holds_for_every_session(bench, jobs):
    jobs.put("x")
    jobs.pause()
    other = bench.connect().tube("jobs")
    assert other.take() is None
    other.resume()
    assert jobs.take().data == "x"


def test_pausing_twice_is_pausing(jobs):
    jobs.put("x")
    jobs.pause()
    jobs.pause()
    jobs.resume()
    assert jobs.take().data == "x"


# -- alter -----------------------------------------------------------------------------------------------


def test_altered_defaults_count_for_later_puts(jobs):
    jobs.put("old")
    jobs.alter(ttl=60, ttr=7, pri=3, max_attempts=2)
    jobs.put("new")
    old, new = jobs.tasks()
    assert (old.ttl, old.ttr, old.pri, old.max_attempts) == (None, None, 0, None)
    assert (new.ttl, new.ttr, new.pri, new.max_attempts) == (60, 7, 3, 2)
    assert [task.data for task in jobs.take_many(2)] == ["old", "new"]


def test_altered_defaults_can_go_back_to_none(q):
    jobs = q.create_tube("jobs", ttl=60, ttr=7, max_attempts=2)
    jobs.alter(ttl=None, ttr=None, max_attempts=None)
    task = jobs.put("x")
    assert (task.ttl, task.ttr, task.max_attempts) == (None, None, None)


def test_altered_retry_and_keep_count_from_now_on(jobs):
    jobs.put_many(list("ab"), max_attempts=5)
    first, second = jobs.take_many(2)
    jobs.alter(retry=9, keep=True)
    failed = first.fail("x")
    assert failed.ready_at - failed.created_at == timedelta(seconds=9)
    second.ack()
    assert jobs.peek(2).state == State.DONE


def test_altered_concurrency_counts_from_now_on(jobs, q, waiter):
    jobs.put_many(list("abcd"))
    first, second = jobs.take_many(2)
    jobs.alter(concurrency=1)
    first.ack()
    assert jobs.take() is None
    take = waiter(q, lambda: jobs.take(timeout=60))
    second.ack()
    assert take.result().data == "c"
    more = waiter(q, lambda: jobs.take(timeout=60))
    jobs.alter(concurrency=2)
    assert more.result().data == "d"


def test_altered_max_payload_counts_from_now_on(jobs):
    jobs.alter(max_payload=10)
    with pytest.raises(PayloadTooLarge):
        jobs.put("x" * 20)
    jobs.alter(max_payload=100)
    assert jobs.put("x" * 20).id == 1


def test_what_is_altered_holds_for_every_session(bench, jobs):
    other = bench.connect().tube("jobs")
    jobs.alter(ttl=60)
    assert other.put("x").ttl == 60
    assert bench.connect().tube("jobs").options["ttl"] == 60


@pytest.mark.parametrize("options", [{"kind": "fifo"}, {"temporary": True}, {"payload": "bytes"}, {"id": "uuid"}])
def test_what_is_fixed_cannot_be_altered(jobs, options):
    with pytest.raises(UsageError, match=f"{next(iter(options))} is fixed"):
        jobs.alter(**options)


@pytest.mark.parametrize("bad", [{"ttl": -1}, {"pri": "x"}, {"max_attempts": 0}, {"retry": "x"}, {"history": 1}])
def test_a_refused_alter_changes_nothing(jobs, bad):
    before = jobs.options
    with pytest.raises(UsageError, match=next(iter(bad))):
        jobs.alter(ttr=5, **bad)
    assert jobs.options == before
    assert jobs.put("x").ttr is None


def test_a_paused_tube_stays_paused_when_it_is_altered(jobs):
    jobs.put("x")
    jobs.pause()
    jobs.alter(ttl=60)
    assert jobs.take() is None


# -- create_tube -----------------------------------------------------------------------------------------


def test_a_tube_is_made_once(jobs, q):
    jobs.put("x")
    with pytest.raises(TubeExists, match="'jobs'"):
        q.create_tube("jobs")
    assert jobs.peek(1).data == "x"


def test_a_tube_that_is_there_can_be_asked_for(q):  # case 9
    first = q.create_tube("jobs", "utube", max_attempts=3, if_not_exists=True)
    first.put("x")
    again = q.create_tube("jobs", "utube", max_attempts=3, if_not_exists=True)
    assert again.peek(1).data == "x"
    assert q.create_tube("jobs", "utube", if_not_exists=True).options["max_attempts"] == 3


def test_a_tube_of_another_kind_or_with_other_options_is_not_what_was_asked_for(q):  # case 10
    q.create_tube("jobs", "fifo", max_attempts=3)
    with pytest.raises(UsageError, match=r"kind.*fifo.*fifottl"):
        q.create_tube("jobs", "fifottl", if_not_exists=True)
    with pytest.raises(UsageError, match=r"max_attempts.*3.*5.*keep"):
        q.create_tube("jobs", "fifo", max_attempts=5, keep=True, if_not_exists=True)
    with pytest.raises(UsageError, match="temporary"):
        q.create_tube("jobs", "fifo", temporary=True, if_not_exists=True)
    assert q.tube("jobs").options["max_attempts"] == 3


def test_a_tube_that_was_altered_is_compared_as_it_is_now(q):
    q.create_tube("jobs", ttl=5).alter(ttl=9)
    assert q.create_tube("jobs", ttl=9, if_not_exists=True).options["ttl"] == 9
    with pytest.raises(UsageError, match="ttl"):
        q.create_tube("jobs", ttl=5, if_not_exists=True)


def test_several_sessions_may_make_one_tube(bench):
    queues = [bench.connect() for _ in range(4)]
    tubes = [queue.create_tube("jobs", ttl=5, if_not_exists=True) for queue in queues]
    for tube in tubes:
        tube.put("x")
    assert len(tubes[0].tasks()) == 4
