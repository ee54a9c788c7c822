"""Verbs on an adopted table: what becomes of the letter, of the columns, of the row. (conformance 2.K, 2.L)"""

from __future__ import annotations

import pytest
from tests.adopt.pairs import sqlite_in_every_run
from tests.support.shop import TIMED

from penstock import LeaseLost, NotTaken, State, TaskNotFound, UsageError, WrongState

AUTO = {"id": "auto", **TIMED}


def seconds(shop):
    return shop.bench.clock.now() / 1_000_000


def filled(shop, number=1, features=AUTO, **options):
    """The tube, with so many rows of tea."""
    orders = shop.orders(features, **options)
    orders.put_many([{"item": "tea"}] * number)
    return orders


@sqlite_in_every_run
def test_without_ttr_a_lease_has_no_end(shop):  # case 195
    orders = filled(shop)
    task = orders.take()
    shop.bench.clock.advance(1e6)
    assert shop.row(task.id, "status, due") == ("T", 0)
    task.ack()


def test_after_the_default_ttr_the_row_is_R_and_the_holder_is_told(shop):  # case 196
    orders = filled(shop, features={"id": "auto", "ttr": 0.25})
    task = orders.take()
    assert shop.row(1, "due") == seconds(shop) + 0.25
    shop.bench.clock.advance(0.25)
    assert shop.row(1, "status, due, tries") == ("R", 0, 1)
    with pytest.raises(NotTaken):
        orders.ack(1)
    with pytest.raises(LeaseLost):
        task.ack()


def test_a_finished_row_is_deleted(shop):
    orders = filled(shop)
    done = orders.take().ack()
    assert (done.state, shop.row(1)) == (State.DONE, None)
    with pytest.raises(TaskNotFound):
        orders.peek(1)


def test_keep_leaves_the_row_as_D(shop):  # case 199
    orders = filled(shop, features={"id": "auto", "keep": True})
    orders.take().ack()
    assert shop.row(1) == "D"
    shop.bench.clock.advance(1e6)
    assert shop.row(1) == "D"
    assert orders.take() is None
    assert orders.peek(1).state == State.DONE


@sqlite_in_every_run
def test_zombie_without_seconds_leaves_the_row_as_Z(shop):  # case 200
    orders = filled(shop, features={"id": "auto", "zombie": True, "ttr": 5})
    orders.take().ack()
    assert shop.row(1, "status, due") == ("Z", 0)
    shop.bench.clock.advance(10)
    assert shop.row(1) == "Z"
    assert orders.take() is None


def test_a_zombie_is_deleted_after_its_seconds(shop):  # case 201
    orders = filled(shop, features={"id": "auto", "zombie": 5})
    orders.take().ack()
    assert shop.row(1, "status, due") == ("Z", seconds(shop) + 5)
    assert orders.take() is None
    shop.bench.clock.advance(5)
    assert shop.row(1) is None


@sqlite_in_every_run
def test_ack_says_how_long_a_zombie_stays(shop):  # case 202
    orders = filled(shop, features={"id": "auto", "zombie": True})
    orders.take().ack(keep=0.5)
    assert (shop.row(1, "status, due"), orders.take()) == (("Z", seconds(shop) + 0.5), None)
    shop.bench.clock.advance(0.5)
    assert shop.row(1) is None


@sqlite_in_every_run
@pytest.mark.parametrize("features", [{}, {"keep": True}])
def test_without_zombie_nothing_can_be_kept_for_a_while(shop, features):  # case 203
    orders = filled(shop, features={"id": "auto", **features})
    task = orders.take()
    with pytest.raises(UsageError, match="zombie"):
        task.ack(keep=5)
    assert shop.row(1) == "T"
    with pytest.raises(UsageError, match="zombie"):
        orders.put({}, keep=5)
    task.ack()


@sqlite_in_every_run
def test_without_keep_or_zombie_nothing_can_be_kept_for_ever(shop):
    orders = filled(shop, features={"id": "auto"})
    task = orders.take()
    for refused in (lambda: task.ack(keep=True), lambda: orders.put({}, keep=True)):
        with pytest.raises(UsageError, match="keep or zombie"):
            refused()
    assert shop.letters() == {"T": 1}


@sqlite_in_every_run
def test_ack_with_update_on_a_deleting_tube_answers_the_update(shop):  # case 204
    orders = filled(shop)
    task = orders.take()
    assert task.data == {"item": "tea", "amount": 1}
    assert task.ack(update={"amount": 3}).data == {"item": "tea", "amount": 3}
    assert shop.row(1) is None


def test_ack_with_update_on_a_keeping_tube_writes_it(shop):
    orders = filled(shop, features={"id": "auto", "keep": True})
    orders.take().ack(update={"amount": 3})
    assert shop.row(1, "status, amount") == ("D", 3)


def test_release_with_update_changes_the_columns(shop):  # case 205
    orders = filled(shop)
    released = orders.take().release(update={"item": "milk"})
    assert (released.data["item"], released.state) == ("milk", State.READY)
    assert shop.row(1, "status, item") == ("R", "milk")
    orders.release(orders.take().id, data={"item": "beer"})
    assert shop.row(1, "status, item") == ("R", "beer")


def test_release_with_delay_wakes_in_the_order_of_time(shop):  # case 206
    orders = filled(shop, 2)
    one, two = orders.take_many(2)
    one.release(delay=0.12)
    two.release(delay=0.1)
    assert shop.letters() == {"W": 2}
    shop.bench.clock.advance(0.1)
    assert (shop.row(1), shop.row(2)) == ("W", "R")
    shop.bench.clock.advance(0.02)
    assert shop.letters() == {"R": 2}


@sqlite_in_every_run
def test_release_with_ttl_dies_then_unless_taken(shop):  # case 207
    orders = filled(shop)
    orders.take().release(ttl=1)
    assert shop.row(1, "status, due") == ("R", seconds(shop) + 1)
    shop.bench.clock.advance(1)
    assert shop.row(1) is None


def test_a_task_released_after_its_ttl_is_expired(shop):  # case 210
    orders = shop.orders()
    orders.put({}, ttl=0.1)
    task = orders.take()
    shop.bench.clock.advance(1)
    assert shop.row(1) == "T"
    assert task.release().state == State.DONE
    assert shop.row(1) is None


@sqlite_in_every_run
def test_ttr_and_a_lost_session_do_not_forget_the_ttl(shop):  # case 212
    orders = shop.orders()
    orders.put({}, ttl=10, ttr=2)
    died = seconds(shop) + 10
    orders.take()
    shop.bench.clock.advance(2)
    assert shop.row(1, "status, due") == ("R", died)
    other = shop.bench.connect()
    other.tube("orders").take()
    other.close()
    assert shop.row(1, "status, due") == ("R", died)
    shop.bench.clock.advance(8)
    assert shop.row(1) is None


def test_bury_with_update_makes_B_and_answers_the_task(shop):  # case 214
    orders = filled(shop)
    buried = orders.take().bury(update={"item": "mouldy"})
    assert (buried.state, buried.data["item"]) == (State.BURIED, "mouldy")
    assert shop.row(1, "status, item") == ("B", "mouldy")
    assert orders.take() is None


@sqlite_in_every_run
def test_no_timer_of_the_lease_touches_a_buried_row(shop):  # case 216
    orders = filled(shop, features={"id": "auto", "ttr": 5})
    orders.take().bury()
    shop.bench.clock.advance(100)
    assert shop.row(1, "status, due") == ("B", 0)


@sqlite_in_every_run
def test_without_the_feature_nothing_is_buried(shop):  # case 175
    orders = filled(shop, 2, features={"id": "auto", "buried": False, "delayed": True})
    task = orders.take()
    for refused in (
        task.bury,
        task.fail,
        lambda: orders.bury(2),
        lambda: orders.switch(2, "buried"),
        lambda: orders.put({}, max_attempts=2),
    ):
        with pytest.raises(UsageError, match="buried"):
            refused()
    assert shop.letters() == {"T": 1, "R": 1}
    assert shop.counted(orders) == {"T": 1, "R": 1}
    assert task.fail(delay=5).state == State.DELAYED


@sqlite_in_every_run
def test_a_waiting_take_gets_what_is_dug_out(shop, waiter):  # case 217
    orders = filled(shop)
    orders.take().bury()
    wait = waiter(shop.q, lambda: orders.take(timeout=60))
    assert orders.dig(1).state == State.READY
    assert wait.result().id == 1


def test_kick_and_plow_take_the_first_by_priority_and_key(shop):  # case 218  # case 223
    orders = shop.orders()
    for pri in (2, 1, 1, 0):
        orders.bury(orders.put({}, pri=pri).id)
    assert orders.kick(2) == 2
    assert shop.sql("SELECT id FROM orders WHERE status = 'R' ORDER BY id") == [(2,), (4,)]
    assert orders.plow(1, update={"item": "kept"}) == 1
    assert shop.sql("SELECT id, item FROM orders WHERE status = 'B'") == [(1, None)]
    assert shop.row(3, "status, item") == ("R", "kept")


@sqlite_in_every_run
def test_a_numeric_id_is_an_id_to_dig_and_a_count_to_plow(shop):  # case 219  # case 222
    orders = filled(shop, 5)
    for number in range(1, 6):
        orders.bury(number)
    assert orders.dig(3).id == 3
    assert shop.letters() == {"B": 4, "R": 1}
    with pytest.raises(WrongState):
        orders.dig(3)
    assert orders.plow(float("inf")) == 4
    assert orders.plow() == 0


def test_dig_takes_delay_ttl_and_update(shop):  # case 221
    orders = filled(shop, 2)
    orders.bury(1)
    orders.bury(2)
    orders.dig(1, delay=1, update={"item": "milk"})
    assert shop.row(1, "status, due, item") == ("W", seconds(shop) + 1, "milk")
    orders.dig(2, ttl=3)
    assert shop.row(2, "status, due") == ("R", seconds(shop) + 3)
    shop.bench.clock.advance(1)
    assert shop.row(1) == "R"
    shop.bench.clock.advance(2)
    assert (shop.row(1), shop.row(2)) == ("R", None)


def test_delete_removes_the_row_in_any_state(shop):  # case 224
    orders = filled(shop, 3)
    task = orders.take()
    orders.bury(2)
    for number in (1, 2, 3):
        orders.delete(number)
    assert shop.letters() == {}
    with pytest.raises(LeaseLost):
        task.ack()
    with pytest.raises(TaskNotFound):
        orders.delete(1)


@sqlite_in_every_run
def test_a_key_can_be_given_alone_or_as_a_tuple(shop):  # case 225
    orders = filled(shop)
    assert orders.peek(1).id == orders.peek((1,)).id == 1


def test_touch_moves_the_moment_in_the_row(shop):  # case 226  # case 227
    orders = shop.orders()
    orders.put({}, ttl=10, ttr=2)
    assert shop.row(orders.touch(1, 5).id, "due") == seconds(shop) + 15
    task = orders.take()
    task.touch(3)
    assert shop.row(1, "due") == seconds(shop) + 5
    shop.bench.clock.advance(4)
    task.release()
    assert shop.row(1, "due") == seconds(shop) - 4 + 18


@sqlite_in_every_run
def test_touch_of_a_task_without_times_changes_nothing(shop):  # case 229
    orders = filled(shop)
    orders.touch(1, 5)
    assert shop.row(1, "status, due") == ("R", 0)


def test_update_moves_a_task_to_another_lane_and_priority(shop):  # case 246
    orders = shop.orders(tube_stats_of(AUTO), lane_concurrency=1)
    orders.put_many([{"branch": "north"}] * 2)
    orders.put({"branch": "south"}, pri=2)
    moved = orders.take(lane="north").release(update={"branch": "south", "prio": 1, "amount": 4})
    assert (moved.lane, moved.pri, moved.data["amount"]) == ("south", 1, 4)
    assert shop.row(1, "status, branch, prio, amount") == ("R", "south", 1, 4)
    assert [(lane.name, lane.ready, lane.taken) for lane in orders.lanes()] == [("north", 1, 0), ("south", 2, 0)]
    assert [orders.take(lane=lane).id for lane in ("south", "north")] == [1, 2]
    assert orders.take() is None
    assert orders.statistics().calls["release"] == 1


def tube_stats_of(features):
    return {**features, "tube_stats": ["north", "south"]}


@sqlite_in_every_run
@pytest.mark.parametrize("verb", ["ack", "release", "bury", "dig", "plow"])
def test_every_verb_with_update_moves_lanes_and_priorities(shop, verb):
    orders = filled(shop, features={"id": "auto", "keep": True})
    if verb in ("dig", "plow"):
        orders.bury(1)
        orders.dig(1, update={"branch": "a", "prio": 9}) if verb == "dig" else orders.plow(
            update={"branch": "a", "prio": 9}
        )
    else:
        getattr(orders.take(), verb)(update={"branch": "a", "prio": 9})
    assert shop.row(1, "branch, prio") == ("a", 9)
    assert (orders.peek(1).lane, orders.peek(1).pri) == ("a", 9)


@sqlite_in_every_run
def test_an_update_that_cannot_be_is_refused_and_changes_nothing(shop):
    orders = filled(shop)
    task = orders.take()
    for update in ({"colour": 1}, {"status": "R"}, {"id": 9}, {"prio": "x"}, {"amount": object()}, 5):
        with pytest.raises(UsageError):
            task.release(update=update)
        assert shop.sql("SELECT * FROM orders") == [(1, "T", 0, 0, None, 1, "tea", 1)], update
    task.ack()


@sqlite_in_every_run
def test_a_tube_of_our_own_has_no_columns_to_update(shop):
    jobs = shop.q.create_tube("jobs")
    jobs.put(1)
    with pytest.raises(UsageError, match="not adopted"):
        jobs.take().ack(update={"a": 1})


@sqlite_in_every_run
def test_one_waits_for_the_end_of_a_row(shop, waiter):  # case 232  # case 237
    orders = filled(shop)
    first = waiter(shop.q, lambda: orders.wait(1, timeout=60))
    second = waiter(shop.q, lambda: orders.wait(1, timeout=60))
    orders.take().release()
    assert first.running and second.running
    orders.take().ack(result="paid")
    assert first.result().result == second.result().result == "paid"
    shop.bench.clock.advance(10)
    assert shop.row(1) is None


def test_a_row_taken_away_by_snatch_switch_and_restart_shows_it(shop):
    orders = filled(shop, features={**AUTO, "keep": True})
    task = orders.take()
    assert orders.snatch(1, delay=5).state == State.DELAYED
    assert shop.row(1) == "W"
    with pytest.raises(LeaseLost):
        task.ack()
    orders.restart(1)
    assert shop.row(1, "status, tries") == ("R", 0)
    orders.switch(1, "done")
    assert shop.row(1) == "D"
    orders.restart(1)
    assert shop.row(1) == "R"


def test_counts_of_calls_tell_the_transitions(shop):  # case 245
    orders = filled(shop, 10)
    tasks = orders.take_many(10)
    for task in tasks[:5]:
        task.ack()
    for task in tasks[5:]:
        task.release()
    for task in orders.take_many(5):
        task.release(delay=5)
    calls = orders.statistics().calls
    assert {name: calls[name] for name in ("put", "take", "ack", "release")} == {
        "put": 10,
        "take": 15,
        "ack": 5,
        "release": 10,
    }
    assert shop.counted(orders) == shop.shown() == {"W": 5}


@sqlite_in_every_run
def test_several_rows_of_one_lane_are_taken_in_parallel(shop):  # case 244
    orders = shop.orders()
    orders.put_many([{"branch": "north"}] * 3)
    assert len(orders.take_many(3, lane="north")) == 3


def test_truncate_removes_the_rows_that_are_tasks(shop):  # case 249
    orders = filled(shop, 3)
    task = orders.take()
    shop.sql("INSERT INTO orders (status, item) VALUES ('archived', 'old'), ('R', 'new')")
    assert orders.truncate() == 4
    assert shop.sql("SELECT status FROM orders") == [("archived",)]
    assert shop.counted(orders) == {} and shop.unseen() == []
    with pytest.raises(LeaseLost):
        task.ack()
