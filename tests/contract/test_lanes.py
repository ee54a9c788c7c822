"""Lanes: sub-queues with a limit on what is taken at once, and the order between them."""

from __future__ import annotations

import pytest
from tests.support.remotes import behind

from penstock import State, UsageError
from penstock.engines import open_store
from penstock.engines.memory import MemoryStore
from penstock.engines.postgres.store import PostgresStore


def ids(tasks):
    return [task.id for task in tasks]


def drain(tube):
    """Take and ack one after the other until nothing comes."""
    found = []
    while task := tube.take():
        found.append(task.data)
        task.ack()
    return found


@pytest.fixture
def utube(q):
    """Lane a with tasks 1 and 2."""
    tube = q.create_tube("jobs", "utubettl")
    tube.put("a1", lane="a")
    tube.put("a2", lane="a")
    return tube


# -- one at a time ---------------------------------------------------------------------------------------


def test_a_lane_gives_one_task_at_a_time(utube):  # case 101
    assert utube.take().id == 1
    assert utube.take() is None
    assert utube.take_many(5) == []


def test_the_next_task_of_a_lane_comes_after_the_ack(q, utube, waiter):  # case 102
    task = utube.take()
    take = waiter(q, lambda: utube.take(timeout=60))
    assert take.running
    task.ack()
    assert take.result().id == 2


def test_the_next_task_of_a_lane_comes_after_a_bury(q, utube, waiter):  # case 103
    task = utube.take()
    take = waiter(q, lambda: utube.take(timeout=60))
    task.bury()
    assert take.result().id == 2


def test_the_next_task_of_a_lane_comes_after_the_taken_one_is_deleted(q, utube, waiter):  # case 104
    utube.take()
    take = waiter(q, lambda: utube.take(timeout=60))
    utube.delete(1)
    assert take.result().id == 2


def test_a_delayed_task_lets_the_next_of_its_lane_pass(utube, clock):  # case 105
    utube.take().release(delay=5)
    second = utube.take()
    assert second.id == 2
    second.ack()
    assert utube.take() is None
    clock.advance(5)
    assert utube.take().id == 1


def test_a_released_task_comes_before_the_next_of_its_lane(utube):  # case 106
    utube.take().release()
    assert utube.take().id == 1
    assert utube.take() is None


def test_a_task_whose_ttr_is_over_comes_again_before_the_next(q, clock):  # case 107
    tube = q.create_tube("jobs", "utubettl", ttr=5)
    tube.put_many(["a1", "a2"], lane="a")
    tube.take()
    clock.advance(5)
    assert tube.take().id == 1
    assert tube.take() is None
    assert tube.statistics().tasks["taken"] == 1


def test_the_end_of_a_session_opens_its_lanes(bench, utube, q, waiter):  # case 108
    other = bench.connect()
    other.tube("jobs").take()
    take = waiter(q, lambda: utube.take(timeout=60))
    assert take.running
    other.close()
    assert take.result().id == 1


def test_a_busy_lane_does_not_hold_up_another(utube):  # case 109
    utube.put("b1", lane="b")
    assert ids(utube.take_many(3)) == [1, 3]


@pytest.mark.parametrize("kind", ["utube", "utubettl"])
def test_tasks_without_a_lane_share_one_on_utube_kinds(q, kind):  # cases 110, 328
    tube = q.create_tube("jobs", kind)
    tube.put("x")
    tube.put("y", lane="")
    tube.put("z", lane=None)
    assert tube.take().data == "x"
    assert tube.take() is None
    assert [(lane.name, lane.ready, lane.taken) for lane in tube.lanes()] == [("", 2, 1)]
    assert tube.take(lane="") is None


def test_tasks_without_a_lane_have_none_on_standard(q):
    tube = q.create_tube("jobs", lane_concurrency=1)
    tube.put("x")
    tube.put("y", lane="")
    assert [task.lane for task in tube.take_many(2)] == [None, None]
    assert tube.lanes() == []


def test_a_number_names_the_same_lane_as_its_text(q):  # case 111
    tube = q.create_tube("jobs", "utube")
    tube.put("x", lane=1)
    tube.put("y", lane="1")
    assert tube.take(lane=1).lane == "1"
    assert tube.take() is None


@pytest.mark.parametrize("lane", ["x" * 256, "ü" * 128, "a\0b", 1.5, b"a", True, ["a"]])
def test_a_name_that_no_lane_can_have_is_refused(q, lane):
    tube = q.create_tube("jobs")
    with pytest.raises(UsageError, match="lane"):
        tube.put("x", lane=lane)
    with pytest.raises(UsageError, match="lane"):
        tube.take(lane=lane)


@pytest.mark.parametrize("lane", ["http://a.example/x?y=1", "x" * 255, "ü" * 127, "a b\n%'\"", "🙂"])
def test_any_text_names_a_lane(q, lane):  # case 329
    tube = q.create_tube("jobs", "utube")
    tube.put_many(["x", "y"], lane=lane)
    task = tube.take(lane=lane)
    assert task.lane == lane
    assert tube.take(lane=lane) is None
    assert [found.name for found in tube.lanes()] == [lane]


def test_a_kicked_task_and_a_younger_one_are_not_taken_together(utube):  # case 114
    utube.bury(1)
    assert utube.kick() == 1
    assert utube.take().id == 1
    assert utube.take() is None


def test_a_kicked_task_waits_while_a_younger_one_of_its_lane_is_taken(utube):  # case 114
    utube.bury(1)
    assert utube.take().id == 2
    utube.kick()
    assert utube.take() is None
    utube.ack(2)
    assert utube.take().id == 1


def test_with_all_heads_taken_there_is_nothing_to_take_whatever_waits_behind(q):  # case 115, its answers
    tube = q.create_tube("jobs", "utube")
    for name in range(10):
        tube.put_many(range(100), lane=f"lane {name}")
    assert len(tube.take_many(1000)) == 10
    assert tube.take() is None
    tube.put("free", lane="another")
    assert tube.take().data == "free"


def test_a_lane_is_in_the_order_of_priority(q):  # case 116
    tube = q.create_tube("jobs", "utubettl")
    tube.put("one", lane="dee", pri=1)
    tube.put("zero", lane="dee", pri=0)
    task = tube.take()
    assert task.data == "zero"
    task.release()
    task = tube.take()
    assert task.data == "zero"
    task.ack()
    assert tube.take().data == "one"


def test_priority_counts_between_lanes(q):  # case 117
    tube = q.create_tube("jobs", "utubettl")
    tube.put("five", lane="u1", pri=5)
    tube.put("one", lane="u2", pri=1)
    assert tube.take().data == "one"


def test_a_kicked_head_comes_before_what_remains_of_its_lane(q):  # case 118
    tube = q.create_tube("jobs", "utube")
    tube.put_many(["a1", "a2", "a3"], lane="a")
    tube.bury(1)
    tube.take().ack()
    tube.kick()
    assert drain(tube) == ["a1", "a3"]


def test_a_head_that_expires_lets_the_next_of_its_lane_forward(q, clock, waiter):  # case 119
    tube = q.create_tube("jobs", "utubettl")
    tube.put("a1", lane="a", ttl=5)
    tube.put("a2", lane="a")
    clock.advance(5)
    assert tube.take().data == "a2"


def test_release_with_another_priority_moves_a_task_in_its_lane(utube):
    utube.take().release(pri=7)
    assert drain(utube) == ["a2", "a1"]


def test_a_buried_or_delayed_task_of_a_forgotten_lane_can_be_removed_and_revived(utube, clock):
    utube.bury(1)
    utube.delete(2)
    assert utube.lanes() == []
    assert utube.delete(1).state == State.DONE
    utube.put("later", lane="z", delay=5)
    assert utube.cancel(3).reason == "cancelled"
    utube.put("later", lane="z", delay=5, ttl=1)
    utube.put("buried", lane="y", ttl=1)
    utube.bury(5)
    clock.advance(60)
    assert utube.statistics().tasks["total"] == 0
    utube.put("again", lane="y", delay=1)
    clock.advance(1)
    assert utube.take(lane="y").data == "again"


# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_lane_gives_as_many_tasks_at_a_time_as_it_may(q, limit):
    tube = q.create_tube("jobs", lane_concurrency=limit)
    tube.put_many(range(6), lane="a")
    taken = tube.take_many(6)
    assert [task.data for task in taken] == list(range(limit))
    taken[-1].ack()
    assert tube.take().data == limit
    assert tube.take() is None


def test_lanes_of_standard_tubes_have_no_limit(q):  # case 244
    tube = q.create_tube("jobs")
    tube.put_many(range(5), lane="a")
    assert [task.data for task in tube.take_many(9)] == list(range(5))


def test_a_tube_may_be_limited_as_a_whole(q, waiter):
    tube = q.create_tube("jobs", "fifo", concurrency=2)
    tube.put_many(list("abc"))
    first, _ = tube.take_many(3)
    take = waiter(q, lambda: tube.take(timeout=60))
    assert take.running
    first.ack()
    assert take.result().data == "c"


def test_the_limits_of_tube_and_lane_hold_together(q):
    tube = q.create_tube("jobs", concurrency=3, lane_concurrency=2)
    for lane in "ab":
        tube.put_many([f"{lane}1", f"{lane}2", f"{lane}3"], lane=lane)
    assert sorted(task.data for task in tube.take_many(9)) in (["a1", "a2", "b1"], ["a1", "b1", "b2"])


def test_a_lane_can_have_limits_of_its_own_and_go_back_to_the_tubes(q):
    tube = q.create_tube("jobs", lane_concurrency=1)
    tube.put_many(range(6), lane="a")
    tube.put_many(range(6), lane="b")
    limits = tube.lane("a").configure(concurrency=3)
    assert (limits.concurrency, limits.rate, limits.paused) == (3, None, False)
    assert sorted(task.lane for task in tube.take_many(9)) == ["a", "a", "a", "b"]
    assert tube.lane("a").configure(concurrency=None).concurrency == 1
    assert tube.take() is None
    tube.ack_many([task.id for task in tube.tasks("taken") if task.lane == "a"])
    assert ids(tube.take_many(9)) == [4]


def test_a_lower_limit_waits_until_enough_of_the_lane_is_given_back(q):
    tube = q.create_tube("jobs")
    tube.put_many(range(5), lane="a")
    taken = tube.take_many(3)
    tube.lane("a").configure(concurrency=2)
    taken[0].ack()
    assert tube.take() is None
    taken[1].ack()
    assert tube.take().data == 3
    assert tube.take() is None


def test_a_higher_limit_wakes_a_waiting_taker(q, utube, waiter):
    utube.take()
    take = waiter(q, lambda: utube.take(timeout=60))
    utube.lane("a").configure(concurrency=2)
    assert take.result().id == 2


def test_a_paused_lane_gives_nothing_and_the_others_go_on(q, waiter):
    tube = q.create_tube("jobs", "utube")
    tube.put("a1", lane="a")
    tube.put("b1", lane="b")
    assert tube.lane("a").configure(paused=True).paused is True
    assert tube.take().data == "b1"
    assert tube.take(lane="a") is None
    tube.put("a2", lane="a")
    assert tube.take() is None
    take = waiter(q, lambda: tube.take(timeout=60))
    assert tube.lane("a").configure(paused=False).paused is False
    assert take.result().data == "a1"


def test_a_task_of_a_paused_lane_can_be_finished(utube):
    task = utube.take()
    utube.lane("a").configure(paused=True)
    task.ack()
    assert utube.take() is None
    assert utube.statistics().tasks == {
        "ready": 1, "taken": 0, "delayed": 0, "buried": 0, "kept": 0, "done": 1, "total": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"concurrency": 1.5}, {"burst": 0}, {"paused": 1}, {"paused": None}, {"colour": 1}]
)
def test_settings_that_no_lane_can_have_are_refused(q, options):
    lane = q.create_tube("jobs").lane("a")
    with pytest.raises(UsageError, match=next(iter(options))):
        lane.configure(**options)
    assert q.tube("jobs").lanes() == []


def test_settings_stay_over_truncate_idleness_and_runs(bench, q, clock):
    tube = q.create_tube("jobs")
    tube.lane("a").configure(concurrency=1)
    tube.put_many(range(3), lane="a")
    tube.take()
    tube.truncate()
    clock.advance(1000)
    tube = bench.new_run().tube("jobs")
    tube.put_many(range(3), lane="a")
    assert [task.data for task in tube.take_many(3)] == [0]


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "limfifottl"])
def test_kinds_without_lanes_know_none(q, kind):
    tube = q.create_tube("jobs", kind)
    for call in (
        lambda: tube.put("x", lane="a"),
        lambda: tube.take(lane="a"),
        lambda: tube.lane("a").configure(concurrency=1),
        lambda: tube.lanes(),
        lambda: tube.alter(lane_concurrency=1),
        lambda: q.create_tube("other", kind, lane_concurrency=1),
    ):
        with pytest.raises(UsageError, match="lane"):
            call()


@pytest.mark.parametrize(
    "options",
    [{"lane_concurrency": 0}, {"lane_rate": 0}, {"lane_burst": 0}, {"lane_order": "x"}, {"lane_pick": "random"}],
)
def test_options_that_no_lanes_can_have_are_refused(q, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        q.create_tube("jobs", **options)


# -- the order inside a lane -----------------------------------------------------------------------------


def test_in_a_strict_lane_a_buried_task_holds_up_the_rest(q):
    tube = q.create_tube("jobs", "utube", lane_order="strict")
    tube.put_many(["a1", "a2"], lane="a")
    tube.put("b1", lane="b")
    tube.take().bury()
    assert tube.take().data == "b1"
    assert tube.take() is None
    tube.kick()
    assert drain(tube) == ["a1", "a2"]


def test_a_strict_lane_goes_on_when_the_buried_task_is_deleted(q, waiter):
    tube = q.create_tube("jobs", "utube", lane_order="strict")
    tube.put_many(["a1", "a2"], lane="a")
    tube.take().bury()
    take = waiter(q, lambda: tube.take(timeout=60))
    assert take.running
    tube.delete(1)
    assert take.result().data == "a2"


def test_in_a_strict_lane_a_delayed_task_holds_up_the_rest(q, clock):
    tube = q.create_tube("jobs", "utubettl", lane_order="strict")
    tube.put("a1", lane="a", delay=5)
    tube.put("a2", lane="a")
    assert tube.take() is None
    clock.advance(5)
    assert drain(tube) == ["a1", "a2"]


def test_in_a_strict_lane_with_room_a_taken_task_does_not_hold_up_the_next(q):
    tube = q.create_tube("jobs", lane_order="strict", lane_concurrency=2)
    tube.put_many(["a1", "a2", "a3"], lane="a")
    first, second = tube.take_many(3)
    assert (first.data, second.data) == ("a1", "a2")
    first.release(delay=5)
    assert tube.take() is None, "a1 waits again, so a3 must not pass it"
    second.ack()
    assert tube.take() is None


def test_a_more_urgent_task_goes_first_in_a_strict_lane(q):
    tube = q.create_tube("jobs", "utubettl", lane_order="strict")
    tube.put("a1", lane="a", delay=5)
    tube.put("a0", lane="a", pri=-1)
    assert tube.take().data == "a0"
    assert tube.take() is None


def test_a_task_that_expires_in_a_strict_lane_is_in_nobodys_way(q, clock):
    tube = q.create_tube("jobs", "utubettl", lane_order="strict")
    tube.put("a1", lane="a", ttl=5)
    tube.put("a2", lane="a")
    tube.bury(1)
    assert tube.take() is None
    clock.advance(5)
    assert tube.take().data == "a2"


def test_the_order_of_lanes_can_be_altered(q):
    tube = q.create_tube("jobs", "utube")
    tube.put_many(["a1", "a2"], lane="a")
    tube.bury(1)
    tube.alter(lane_order="strict")
    assert tube.take() is None
    tube.alter(lane_order="skip")
    assert tube.take().data == "a2"


# -- the order between lanes -----------------------------------------------------------------------------


def test_utube_kinds_serve_the_oldest_head_first(q):  # case 241
    tube = q.create_tube("jobs", "utube")
    for data in ("a1", "a2", "b1", "a3", "b2"):
        tube.put(data, lane=data[0])
    assert drain(tube) == ["a1", "a2", "b1", "a3", "b2"]


def test_standard_tubes_serve_lanes_in_turns(q):  # case 326
    tube = q.create_tube("jobs")
    for lane in "abc":
        tube.put_many([f"{lane}1", f"{lane}2", f"{lane}3"], lane=lane)
    assert [tube.take().data for _ in range(9)] == ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"]


def test_a_lane_that_joins_stands_at_the_back(q):
    tube = q.create_tube("jobs")
    tube.put_many(["a1", "a2"], lane="a")
    tube.put_many(["b1", "b2"], lane="b")
    assert tube.take().data == "a1"
    tube.put("c1", lane="c")
    assert [tube.take().data for _ in range(4)] == ["b1", "a2", "c1", "b2"]


def test_a_lane_joins_at_the_back_when_it_opens_again(q):
    tube = q.create_tube("jobs", lane_concurrency=1)
    for lane in "abc":
        tube.put_many([f"{lane}1", f"{lane}2"], lane=lane)
    first, second, third = tube.take_many(3)
    third.ack()
    first.ack()
    second.ack()
    assert [task.data for task in tube.take_many(3)] == ["c2", "a2", "b2"]


def test_turns_are_taken_among_the_most_urgent_heads_only(q):
    tube = q.create_tube("jobs")
    tube.put_many(["a1", "a2"], lane="a", pri=1)
    tube.put_many(["b1", "b2"], lane="b", pri=0)
    assert [tube.take().data for _ in range(4)] == ["b1", "b2", "a1", "a2"]


def test_a_more_urgent_head_keeps_its_lanes_place(q):
    tube = q.create_tube("jobs")
    for data in ("a1", "b1", "c1"):
        tube.put(data, lane=data[0], pri=5)
    for data in ("c0", "b0"):
        tube.put(data, lane=data[0], pri=1)
    assert [tube.take().data for _ in range(5)] == ["b0", "c0", "a1", "b1", "c1"]


def test_tasks_without_a_lane_stand_in_the_same_line_as_lanes(q):
    tube = q.create_tube("jobs")
    tube.put_many(["a1", "a2", "a3"], lane="a")
    tube.put("x")
    tube.put("y")
    assert [tube.take().data for _ in range(5)] == ["a1", "x", "y", "a2", "a3"]


def test_a_task_without_a_lane_that_is_given_back_has_its_place_again(q):
    tube = q.create_tube("jobs")
    tube.put("x")
    tube.put("a1", lane="a")
    tube.put("y")
    tube.take().release()
    assert [tube.take().data for _ in range(3)] == ["x", "a1", "y"]


def test_lanes_can_be_served_by_order_on_standard_tubes(q):
    tube = q.create_tube("jobs", lane_pick="order")
    for data in ("a1", "a2", "b1", "x", "a3"):
        tube.put(data, lane=data[0] if len(data) > 1 else None)
    assert [tube.take().data for _ in range(5)] == ["a1", "a2", "b1", "x", "a3"]


def test_from_turns_to_order_the_oldest_comes_first_again(q):
    tube = q.create_tube("jobs")
    for data in ("a1", "a2", "a3", "b1", "b2", "x"):
        tube.put(data, lane=data[0] if len(data) > 1 else None)
    assert [tube.take().data for _ in range(2)] == ["a1", "b1"]
    tube.alter(lane_pick="order")
    assert [tube.take().data for _ in range(4)] == ["a2", "a3", "b2", "x"]


def test_from_order_to_turns_nobody_starves(q):
    tube = q.create_tube("jobs", "utube")
    for lane in "abc":
        tube.put_many([f"{lane}{n}" for n in range(1, 4)], lane=lane)
    assert drain_some(tube, 2) == ["a1", "a2"]
    tube.alter(lane_pick="turns")
    assert drain_some(tube, 7) == ["a3", "b1", "c1", "b2", "c2", "b3", "c3"]


def drain_some(tube, number):
    return [tube.take().ack().data for _ in range(number)]


# -- one lane --------------------------------------------------------------------------------------------


def test_take_from_one_lane(q):  # case 240
    tube = q.create_tube("jobs")
    for n in range(1, 11):
        tube.put(n, lane=f"tube-{n}")
    assert tube.take(lane="tube-7").data == 7
    assert tube.take(lane="tube-7") is None
    assert tube.take(lane="no such lane") is None


def test_take_from_one_lane_goes_by_its_order_and_limit(q):
    tube = q.create_tube("jobs", lane_concurrency=2)
    tube.put("a1", lane="a", pri=5)
    tube.put("a2", lane="a", pri=1)
    tube.put("b1", lane="b")
    tube.put("a3", lane="a", pri=9)
    assert [task.data for task in tube.take_many(5, lane="a")] == ["a2", "a1"]


def test_the_waiter_of_a_lane_is_served_before_a_general_one(q, waiter):  # case 242
    tube = q.create_tube("jobs")
    anything = waiter(q, lambda: tube.take(timeout=60))
    only_x = waiter(q, lambda: tube.take(timeout=60, lane="x"))
    tube.put("first", lane="x")
    assert only_x.result().data == "first"
    tube.put("second", lane="x")
    assert anything.result().data == "second"


def test_the_waiter_of_a_lane_does_not_get_another_lanes_task(q, waiter, clock):  # case 243
    tube = q.create_tube("jobs")
    only_x = waiter(q, lambda: tube.take(timeout=60, lane="x"))
    tube.put("y1", lane="y")
    assert only_x.running
    clock.advance(60)
    assert only_x.result() is None
    assert tube.take().data == "y1"


# -- listing and forgetting ------------------------------------------------------------------------------


def test_lanes_are_listed_by_name_a_page_at_a_time(q):
    tube = q.create_tube("jobs")
    for name in ("d", "b", "a", "c"):
        tube.put_many(["x", "y"], lane=name)
    tube.take(lane="c")
    tube.lane("e").configure(concurrency=2, rate=4, burst=3)
    first = tube.lanes(limit=3)
    assert [(lane.name, lane.ready, lane.taken) for lane in first] == [("a", 2, 0), ("b", 2, 0), ("c", 1, 1)]
    second = tube.lanes(limit=3, after="c")
    assert [(lane.name, lane.ready, lane.taken) for lane in second] == [("d", 2, 0), ("e", 0, 0)]
    assert tuple(second[1].limits) == (2, 4.0, 3, False)
    assert tube.lanes(after="e") == []


def test_lanes_count_ready_and_taken_tasks_in_every_order(q):
    for order in ("skip", "strict"):
        tube = q.create_tube(order, lane_order=order, lane_concurrency=2)
        tube.put("r0", lane="a", pri=9)
        tube.put("t1", lane="a")
        tube.take()
        tube.put("b1", lane="a")
        tube.bury(3)
        tube.put("d1", lane="a", delay=60)
        tube.put("t2", lane="b")
        tube.take(lane="b")
        tube.bury(tube.put("only buried", lane="c").id)
        assert [(lane.name, lane.ready, lane.taken) for lane in tube.lanes()] == [("a", 1, 1), ("b", 0, 1)]


def test_a_list_of_lanes_needs_a_limit_that_is_a_number(q):
    tube = q.create_tube("jobs")
    for limit in (0, -1, "x"):
        with pytest.raises(UsageError, match="limit"):
            tube.lanes(limit=limit)


def remembered(url, name):
    """How many lanes a store keeps something about."""
    store = open_store(behind(url))
    if isinstance(store, MemoryStore):
        return len(store.data.tubes[name]._lanes)
    if isinstance(store, PostgresStore):
        with store._connections.borrowed() as connection:
            number = store.known(name, connection).number
            return connection.execute(f"select count(*) from {store.schema}.lanes_{number}").fetchone()[0]  # noqa: S608
    return store._tx.main.value("SELECT count(*) FROM penstock_lanes")


def test_an_idle_lane_without_settings_is_forgotten(bench, q, clock):  # case 325
    tube = q.create_tube("jobs", lane_rate=10, lane_concurrency=1)
    for n in range(100):
        tube.put("x", lane=f"lane {n}")
    assert tube.lane("lane 5").configure(rate=20).rate == 20
    assert tube.lane("lane 5").configure(rate=None).rate == 10
    tube.ack_many(tube.take_many(100))
    clock.advance(60)
    assert tube.lanes() == []
    assert remembered(bench.url, "jobs") == 0


def test_a_lane_whose_settings_went_back_is_forgotten(bench, q):
    lane = q.create_tube("jobs").lane("a")
    lane.configure(concurrency=1, rate=2, burst=3, paused=True)
    assert [found.name for found in q.tube("jobs").lanes()] == ["a"]
    lane.configure(concurrency=None, rate=None, burst=None, paused=False)
    assert q.tube("jobs").lanes() == []
    assert remembered(bench.url, "jobs") == 0


# -- altering limits while tasks are taken ---------------------------------------------------------------


def test_lanes_can_be_limited_while_tasks_are_taken(q):
    tube = q.create_tube("jobs")
    tube.put_many(["a1", "a2", "a3", "a4"], lane="a")
    tube.put_many(["b1", "b2"], lane="b")
    a1, b1, a2 = tube.take_many(3)
    tube.alter(lane_concurrency=1)
    assert tube.take() is None
    b1.ack()
    assert tube.take().data == "b2"
    a1.ack()
    assert tube.take() is None
    a2.ack()
    assert tube.take().data == "a3"
    assert tube.take() is None


def test_lanes_can_be_freed_while_tasks_are_taken(q, waiter):
    tube = q.create_tube("jobs", "utube")
    tube.put_many(["a1", "a2", "a3"], lane="a")
    tube.take()
    take = waiter(q, lambda: tube.take(timeout=60))
    tube.alter(lane_concurrency=None)
    assert take.result().data == "a2"
    assert tube.take().data == "a3"
    tube.alter(lane_concurrency=2)
    tube.put("a4", lane="a")
    tube.ack(1)
    assert tube.take() is None
    tube.ack(2)
    assert tube.take().data == "a4"


@pytest.mark.parametrize("kind", ["standard", "utube"])
def test_lanes_that_open_by_other_options_join_by_their_first_ready_tasks(q, kind):
    tube = q.create_tube("jobs", kind, lane_concurrency=1, lane_pick="turns")
    for lane in "bca":
        tube.put(lane, lane=lane)
    taken = tube.take_many(3)
    assert [task.data for task in taken] == ["b", "c", "a"]
    for lane in "cbdaabcd":
        tube.put(lane, lane=lane)
    tube.alter(lane_concurrency=2)
    assert [task.data for task in tube.take_many(6)] == ["d", "c", "b", "a", "d"]


def test_a_buried_task_of_a_lane_nobody_uses_holds_it_up_once_it_is_strict(q):
    tube = q.create_tube("jobs", lane_concurrency=1)
    tube.put(1, lane="a")
    tube.take().bury()
    tube.alter(lane_order="strict")
    tube.put(2, lane="a")
    assert tube.take() is None
    tube.kick()
    assert tube.take().data == 1


def test_a_limit_of_its_own_outlives_an_altered_tube(q):
    tube = q.create_tube("jobs", lane_concurrency=1)
    tube.lane("a").configure(concurrency=2)
    for lane in "ab":
        tube.put_many(range(4), lane=lane)
    tube.alter(lane_concurrency=3)
    assert sorted(task.lane for task in tube.take_many(9)) == ["a", "a", "b", "b", "b"]


def test_replacing_a_task_moves_it_to_its_new_lane(q):
    tube = q.create_tube("jobs", "utube")
    tube.put("a1", lane="a", key="k")
    tube.put("a2", lane="a")
    tube.put("b1", lane="b", key="k", on_conflict="replace")
    assert [(task.data, task.lane) for task in tube.take_many(5)] == [("b1", "b"), ("a2", "a")]


def test_lanes_stand_as_they_stood_after_a_new_run(bench, q):
    tube = q.create_tube("jobs")
    for lane in "abc":
        tube.put_many([f"{lane}1", f"{lane}2"], lane=lane)
    tube.take().ack()
    tube = bench.new_run().tube("jobs")
    assert [tube.take().data for _ in range(5)] == ["b1", "c1", "a2", "b2", "c2"]
