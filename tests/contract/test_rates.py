"""Lanes with a rate: how many tasks are granted over time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import UsageError

MICROSECOND = timedelta(microseconds=1)


def grants(tube, clock, seconds, step=0.1):
    """When tasks are granted, in tenths of a second, to somebody who asks in every step."""
    found = []
    for tick in range(round(seconds / step)):
        while task := tube.take():
            found.append(tick)
            task.ack()
        clock.advance(step)
    return found


def test_a_lane_with_a_rate_grants_one_task_an_interval(q, clock):  # case 321
    tube = q.create_tube("crawl", lane_rate=2)
    tube.put_many(range(10), lane="a")
    assert grants(tube, clock, 6) == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]


def test_an_idle_lane_does_not_save_up(q, clock):  # case 322
    tube = q.create_tube("crawl", lane_rate=2)
    tube.put("x", lane="a")
    tube.take().ack()
    clock.advance(3600)
    tube.put_many(range(4), lane="a")
    assert grants(tube, clock, 2) == [0, 5, 10, 15]


def test_a_burst_passes_at_once_and_then_the_rate_holds(q, clock):
    tube = q.create_tube("crawl", lane_rate=2, lane_burst=3)
    tube.put_many(range(7), lane="a")
    assert grants(tube, clock, 3) == [0, 0, 0, 5, 10, 15, 20]


def test_a_burst_comes_back_one_interval_at_a_time(q, clock):
    tube = q.create_tube("crawl", lane_rate=2, lane_burst=3)
    tube.put_many(range(20), lane="a")
    assert len(tube.take_many(20)) == 3
    clock.advance(1)
    assert len(tube.take_many(20)) == 2
    clock.advance(1.4)
    assert len(tube.take_many(20)) == 2
    clock.advance(0.1)
    assert len(tube.take_many(20)) == 1
    clock.advance(100)
    assert len(tube.take_many(20)) == 3


@pytest.mark.parametrize(("rate", "interval"), [(3, 333_334), (7, 142_858), (1000, 1000), (0.25, 4_000_000)])
def test_the_interval_is_exact_to_the_microsecond(q, clock, rate, interval):
    tube = q.create_tube("crawl", lane_rate=rate)
    tube.put_many(range(3), lane="a")
    assert tube.take().data == 0
    for expected in (1, 2):
        clock.advance((interval - 1) * MICROSECOND)
        assert tube.take() is None
        clock.advance(MICROSECOND)
        assert tube.take().data == expected


def test_a_limited_lane_does_not_delay_another(q):  # case 323
    tube = q.create_tube("crawl")
    tube.lane("a").configure(rate=1)
    tube.put_many(["a1", "a2"], lane="a")
    tube.put_many(["b1", "b2", "b3"], lane="b")
    tube.put("x")
    assert sorted(task.data for task in tube.take_many(10)) == ["a1", "b1", "b2", "b3", "x"]


def test_a_waiting_taker_is_served_when_the_rate_lets_it(q, clock, waiter):  # case 327
    tube = q.create_tube("crawl", lane_rate=2)
    tube.put_many(["a1", "a2", "a3"], lane="a")
    tube.take()
    take = waiter(q, lambda: tube.take(timeout=60))
    clock.advance(0.499999)
    assert take.running
    clock.advance(0.000001)
    assert take.result().data == "a2"


def test_the_rate_counts_when_a_task_is_delivered_not_when_it_is_put(q, clock):  # case 327
    tube = q.create_tube("crawl", lane_rate=1)
    tube.put_many(range(3), lane="a")
    clock.advance(0.9)
    assert tube.take().data == 0
    clock.advance(0.9)
    assert tube.take() is None
    clock.advance(0.1)
    assert tube.take().data == 1


@pytest.mark.parametrize("give_back", ["release", "refund", "fail", "delete", "snatch", "ttr"])
def test_nothing_is_given_back_to_the_rate(q, clock, give_back):
    tube = q.create_tube("crawl", lane_rate=0.1, retry=0)
    tube.put_many(["a1", "a2"], lane="a", ttr=5)
    task = tube.take()
    if give_back == "ttr":
        clock.advance(5)
    elif give_back == "refund":
        task.release(refund=True)
    elif give_back == "delete":
        tube.delete(1)
    elif give_back == "snatch":
        tube.snatch(1)
    else:
        getattr(task, give_back)()
    assert tube.take() is None
    clock.advance(4.999999 if give_back == "ttr" else 9.999999)
    assert tube.take() is None
    clock.advance(0.000001)
    assert tube.take().data == ("a2" if give_back == "delete" else "a1")


def test_the_rate_holds_over_a_new_run(bench, q, clock):  # case 330
    tube = q.create_tube("crawl", lane_rate=0.1)
    tube.put_many(range(3), lane="a")
    tube.take().ack()
    clock.advance(4)
    tube = bench.new_run().tube("crawl")
    assert tube.take() is None
    clock.advance(5.999999)
    assert tube.take() is None
    clock.advance(0.000001)
    assert tube.take().data == 1
    assert tube.take() is None


def test_the_rate_holds_when_the_lane_was_empty_between_two_runs(bench, q, clock):  # case 330
    tube = q.create_tube("crawl", lane_rate=0.1)
    tube.put("x", lane="a")
    tube.take().ack()
    tube = bench.new_run().tube("crawl")
    tube.put("y", lane="a")
    assert tube.take() is None
    clock.advance(10)
    assert tube.take().data == "y"


def test_the_rate_is_shared_by_all_sessions(bench, q, clock):
    q.create_tube("crawl", lane_rate=1, lane_burst=2).put_many(range(9), lane="a")
    tubes = [bench.connect().tube("crawl") for _ in range(3)]
    assert [len(tube.take_many(9)) for tube in tubes] == [2, 0, 0]
    clock.advance(1)
    assert [len(tube.take_many(9)) for tube in reversed(tubes)] == [1, 0, 0]


def test_the_rate_holds_over_truncate(q, clock):
    tube = q.create_tube("crawl", lane_rate=0.1)
    tube.put("x", lane="a")
    tube.take()
    tube.truncate()
    tube.put("y", lane="a")
    assert tube.take() is None
    clock.advance(10)
    assert tube.take().data == "y"


def test_rate_and_concurrency_hold_together(q, clock):
    tube = q.create_tube("crawl", lane_rate=1, lane_burst=3, lane_concurrency=2)
    tube.put_many(range(9), lane="a")
    first, second = tube.take_many(9)
    clock.advance(100)
    assert tube.take() is None
    first.ack()
    assert tube.take().data == 2
    second.ack()
    assert tube.take().data == 3
    assert tube.take() is None


def test_a_lane_may_be_slower_or_faster_than_its_tube(q, clock):
    tube = q.create_tube("crawl", lane_rate=1)
    tube.lane("slow").configure(rate=0.5)
    tube.lane("fast").configure(rate=5, burst=2)
    for lane in ("slow", "fast", "plain"):
        tube.put_many([lane] * 20, lane=lane)
    counts = {"slow": 0, "fast": 0, "plain": 0}
    for _ in range(40):
        for task in tube.take_many(100):
            counts[task.lane] += 1
        clock.advance(0.1)
    assert counts == {"slow": 2, "fast": 20, "plain": 4}


def test_a_lane_goes_back_to_the_rate_of_its_tube(q, clock):
    tube = q.create_tube("crawl")
    tube.put_many(range(5), lane="a")
    assert tube.lane("a").configure(rate=0.1).rate == 0.1
    tube.take()
    assert tube.take() is None
    assert tube.lane("a").configure(rate=None).rate is None
    assert [task.data for task in tube.take_many(9)] == [1, 2, 3, 4]


def test_a_rate_given_to_a_tube_holds_from_now_on(q, clock):
    tube = q.create_tube("crawl")
    tube.put_many(range(6), lane="a")
    tube.take_many(2)
    tube.alter(lane_rate=1)
    assert len(tube.take_many(9)) == 1
    assert tube.take() is None
    clock.advance(1)
    assert len(tube.take_many(9)) == 1
    tube.alter(lane_rate=None)
    assert len(tube.take_many(9)) == 2


def test_lanes_tell_when_the_rate_lets_the_next_task_through(q, clock):
    tube = q.create_tube("crawl", lane_rate=0.5, lane_burst=2)
    tube.put_many(range(3), lane="a")
    assert tube.lanes()[0].next_at is None
    tube.take_many(2)
    lane = tube.lanes()[0]
    assert (lane.name, lane.ready, lane.taken) == ("a", 1, 2)
    assert lane.next_at == tube.peek(1).created_at + timedelta(seconds=2)
    clock.advance(2)
    assert tube.lanes()[0].next_at is None


def test_a_limited_lane_takes_its_turn_from_when_it_opens(q, clock):
    tube = q.create_tube("crawl")
    tube.lane("a").configure(rate=1)
    tube.put_many(["a1", "a2"], lane="a")
    tube.put_many(["b1", "b2", "b3"], lane="b")
    assert [tube.take().data for _ in range(3)] == ["a1", "b1", "b2"]
    clock.advance(1)
    assert [tube.take().data for _ in range(2)] == ["b3", "a2"]


def test_a_due_retry_is_not_starved_by_new_tasks_of_its_lane(q, clock):  # case 320
    tube = q.create_tube("crawl", lane_rate=1, retry=3)
    tube.put("old", lane="a")
    tube.take().fail("refused")
    seen = []
    for n in range(8):
        tube.put(n, lane="a")
        clock.advance(1)
        seen.append(tube.take().ack().data)
    assert seen == [0, 1, "old", 2, 3, 4, 5, 6]


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "2", True])
def test_a_rate_that_is_no_rate_is_refused(q, rate):
    tube = q.create_tube("crawl")
    with pytest.raises(UsageError, match="rate"):
        tube.lane("a").configure(rate=rate)
    with pytest.raises(UsageError, match="lane_rate"):
        tube.alter(lane_rate=rate)
