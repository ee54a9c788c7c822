"""create_tube, tube, tubes, drop, truncate, pause, alter."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, refused

from penstock import State, TubeBusy, TubeExists, TubeNotFound, UsageError

FEATURES = {
    "fifo": set(),
    "fifottl": {"pri", "ttl", "ttr", "delay", "repeat"},
    "limfifottl": {"pri", "ttl", "ttr", "delay", "repeat"},
    "utube": {"lane"},
    "utubettl": {"pri", "ttl", "ttr", "delay", "repeat", "lane"},
    "standard": {"pri", "ttl", "ttr", "delay", "repeat", "lane"},
}
PUT_OPTIONS = {"pri": 1, "ttl": 5, "ttr": 5, "delay": 5, "repeat": 5, "lane": "a"}
TUBE_OPTIONS = {
    "pri": ({"pri": 3}, "pri"),
    "ttl": ({"ttl": 3}, "ttl"),
    "ttr": ({"ttr": 3}, "ttr"),
    "delay": ({"retry": 3}, "retry"),
    "lane": ({"lane_concurrency": 3}, "lane_concurrency"),
}


def names(q):
    return [tube.name for tube in q.tubes()]


def test_a_tube_is_listed_found_and_gone_after_drop(q):  # case 15
    for name in ("b", "a"):
        q.create_tube(name)
    assert names(q) == ["a", "b"]
    assert q.tube("a").name == "a"
    with pytest.raises(TubeNotFound, match="'c'"):
        q.tube("c")
    q.tube("a").drop()
    with pytest.raises(TubeNotFound, match="'a'"):
        q.tube("a")
    assert names(q) == ["b"]


def test_an_unknown_kind_is_refused_and_creates_nothing(q):  # case 7
    with pytest.raises(UsageError, match="unknown kind 'lifo'"):
        q.create_tube("jobs", "lifo")
    assert names(q) == []


def test_a_second_create_is_refused(q):
    q.create_tube("jobs", "fifo")
    with pytest.raises(TubeExists, match="'jobs'"):
        q.create_tube("jobs", "fifo")


def test_if_not_exists_gives_the_tube_that_is_there(q):  # case 9
    q.create_tube("jobs", "fifo", max_attempts=3).put("kept")
    again = q.create_tube("jobs", "fifo", if_not_exists=True)
    assert again.take().data == "kept"
    assert again.options["max_attempts"] == 3


def test_if_not_exists_with_another_kind_is_refused(q):  # case 10
    q.create_tube("jobs", "fifo")
    with pytest.raises(UsageError, match=r"'fifo'.*'fifottl'"):
        q.create_tube("jobs", "fifottl", if_not_exists=True)
    assert q.tube("jobs").kind == "fifo"


def test_if_not_exists_with_other_options_lists_all_of_them(q):
    q.create_tube("jobs", max_attempts=3, ttl=5)
    with pytest.raises(UsageError) as caught:
        q.create_tube("jobs", if_not_exists=True, max_attempts=4, ttl=6, temporary=True)
    assert all(option in str(caught.value) for option in ("max_attempts", "ttl", "temporary"))


def test_if_not_exists_with_the_same_options_is_accepted(q):
    q.create_tube("jobs", max_attempts=3, ttl=5)
    assert q.create_tube("jobs", if_not_exists=True, max_attempts=3, ttl=5.0).name == "jobs"


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 64])
def test_a_good_name_is_accepted(q, name):  # case 13
    q.create_tube(name).put(1)
    assert q.tube(name).take().data == 1


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "ä", "a\n", "a'; --", None, 5])
def test_a_bad_name_is_refused(q, name):  # case 13
    refused(name, lambda: q.create_tube(name))
    assert names(q) == []


def test_an_unknown_option_is_refused_by_name(q):  # case 18
    with pytest.raises(UsageError, match="if_not_exist"):
        q.create_tube("jobs", if_not_exist=True)
    assert names(q) == []


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("option", PUT_OPTIONS)
def test_put_takes_the_options_of_the_kind_and_no_other(q, kind, option):  # case 6
    jobs = q.create_tube("jobs", kind)
    if option in FEATURES[kind]:
        assert jobs.put(1, **{option: PUT_OPTIONS[option]}).outcome == "new"
        return
    with pytest.raises(UsageError, match=f"'{option}'.*'{kind}'"):
        jobs.put(1, **{option: PUT_OPTIONS[option]})
    assert jobs.tasks() == []


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("feature", TUBE_OPTIONS)
def test_a_tube_takes_the_options_of_its_kind_and_no_other(q, kind, feature):
    options, name = TUBE_OPTIONS[feature]
    if feature in FEATURES[kind]:
        assert q.create_tube("jobs", kind, **options).options[name] == options[name]
        return
    with pytest.raises(UsageError, match=f"'{name}'"):
        q.create_tube("jobs", kind, **options)
    jobs = q.create_tube("jobs", kind)
    with pytest.raises(UsageError, match=f"'{name}'"):
        jobs.alter(**options)


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "utubettl"])
def test_capacity_needs_a_kind_that_has_it(q, kind):
    with pytest.raises(UsageError, match="'capacity'"):
        q.create_tube("jobs", kind, capacity=3)


@pytest.mark.parametrize("kind", FEATURES)
def test_every_kind_has_keys_keep_attempts_and_pause(q, kind):
    jobs = q.create_tube("jobs", kind, keep=True, max_attempts=4, concurrency=1, history=True)
    jobs.put(1, key="k", max_attempts=2)
    jobs.pause()
    assert jobs.take() is None
    jobs.resume()
    assert jobs.take().ack().max_attempts == 2
    assert jobs.peek(1).state == State.DONE


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ttl", -1),
        ("ttl", float("nan")),
        ("ttr", "5"),
        ("pri", 1 << 63),
        ("pri", 1.5),
        ("capacity", -1),
        ("max_attempts", 0),
        ("max_attempts", True),
        ("retry", "soon"),
        ("retry", []),
        ("keep", -1),
        ("keep", None),
        ("concurrency", 0),
        ("lane_concurrency", 0),
        ("lane_rate", 0),
        ("lane_burst", 0),
        ("lane_order", "loose"),
        ("lane_pick", "random"),
        ("payload", "pickle"),
        ("max_payload", 0),
        ("history", 1),
        ("id", "serial"),
    ],
)
def test_a_bad_option_is_refused_and_creates_nothing(q, option, value):
    refused(value, lambda: q.create_tube("jobs", **{option: value}))
    assert names(q) == []


def test_a_table_that_cannot_be_a_tube_is_refused_by_what_is_missing(q, bench):  # case 12
    if not bench.engine.durable:
        with pytest.raises(UsageError, match="tables"):
            q.adopt("x", table="x", fields={"status": "status"})
        return
    with q.transaction() as tx:
        tx.connection.execute("CREATE TABLE x (id INTEGER PRIMARY KEY, note TEXT)")
    with pytest.raises(UsageError, match="status"):
        q.adopt("x", table="x", fields={"status": "status"})
    assert names(q) == []
    with q.transaction() as tx:
        tx.connection.execute("DROP TABLE x")


def test_a_temporary_tube_is_there_and_empty_in_the_next_run(q, bench):  # case 17
    q.create_tube("scratch", temporary=True).put(1)
    q.create_tube("solid").put(1)
    again = bench.new_run()
    assert names(again) == ["scratch", "solid"]
    assert again.tube("scratch").statistics().tasks["total"] == 0
    assert again.tube("scratch").take() is None
    assert again.tube("solid").take().data == 1


def test_a_callback_does_not_outlive_its_run(q, bench):  # case 19
    events = Events(q.create_tube("jobs"))
    q.tube("jobs").put(1)
    again = bench.new_run()
    again.tube("jobs").put(2)
    assert events.names == ["put"]
    assert again.tube("jobs").on_task_change(None) is None


# -- drop and truncate ---------------------------------------------------------------------------------


def test_drop_is_refused_while_a_task_is_taken(q):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(TubeBusy, match="'jobs'"):
        jobs.drop()
    task.release()
    jobs.drop()
    assert names(q) == []


def test_drop_is_refused_while_a_taker_waits(q, waiter):
    jobs = q.create_tube("jobs")
    taker = waiter(q, lambda: jobs.take(None))
    with pytest.raises(TubeBusy, match="'jobs'"):
        jobs.drop()
    jobs.put(1)
    assert taker.result().data == 1


def test_a_forced_drop_ends_leases_and_waiting(q, waiter):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    task = jobs.take()
    taker = waiter(q, lambda: jobs.take(None))
    jobs.drop(force=True)
    for call in (taker.result, task.ack, lambda: jobs.put(1)):
        with pytest.raises(TubeNotFound, match="'jobs'"):
            call()


def test_a_lease_that_ran_out_does_not_hinder_drop(q, clock):
    jobs = q.create_tube("jobs")
    jobs.put(1, ttr=5)
    jobs.take()
    clock.advance(5)
    jobs.drop()
    assert names(q) == []


def test_a_tube_created_again_begins_empty(q):
    jobs = q.create_tube("jobs")
    jobs.put(1, key="k")
    jobs.drop()
    again = q.create_tube("jobs", "fifo")
    assert again.tasks() == []
    assert again.put(2, key="k").outcome == "new"
    assert again.statistics().calls["put"] == 1


def test_truncate_clears_tasks_leases_and_keys_and_goes_on_counting(q):
    jobs = q.create_tube("jobs")
    jobs.lane("a").configure(concurrency=1)
    jobs.put_many([1, 2, 3], lane="a")
    jobs.put(4, key="k")
    task = jobs.take()
    jobs.bury(2)
    assert jobs.truncate() == 4
    with pytest.raises(Exception, match="gone"):
        task.ack()
    assert jobs.put(5, key="k", lane="a").id == 5
    assert jobs.statistics().calls["put"] == 5
    assert jobs.statistics().tasks["total"] == 1
    assert [lane.limits.concurrency for lane in jobs.lanes()] == [1]


# -- pause and alter -----------------------------------------------------------------------------------


def test_pause_stops_grants_and_nothing_else(q, clock):
    jobs = q.create_tube("jobs")
    jobs.put_many([1, 2])
    task = jobs.take()
    jobs.pause()
    assert jobs.take() is None
    assert jobs.take_many(5) == []
    jobs.put(3)
    jobs.put(4, ttl=5)
    task.ack()
    clock.advance(5)
    assert [t.data for t in jobs.tasks()] == [2, 3]
    jobs.resume()
    assert jobs.take().data == 2


def test_resume_serves_who_waits(q, waiter):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    jobs.pause()
    taker = waiter(q, lambda: jobs.take(None))
    assert taker.running
    jobs.resume()
    assert taker.result().data == 1


def test_a_pause_outlives_the_run(q, bench):
    q.create_tube("jobs").put(1)
    q.tube("jobs").pause()
    jobs = bench.new_run().tube("jobs")
    assert jobs.take() is None
    jobs.resume()
    assert jobs.take().data == 1


def test_altered_defaults_count_for_later_puts(q):
    jobs = q.create_tube("jobs", ttl=10, ttr=3, pri=7, max_attempts=2)
    jobs.put("old")
    jobs.alter(ttl=20, ttr=6, pri=8, max_attempts=4)
    jobs.put("new")
    assert [(t.ttl, t.ttr, t.pri, t.max_attempts) for t in jobs.tasks()] == [(10, 3, 7, 2), (20, 6, 8, 4)]


def test_altered_retry_keep_and_capacity_count_at_once(q):
    jobs = q.create_tube("jobs", max_attempts=5)
    jobs.put_many([1, 2])
    first, second = jobs.take_many(2)
    jobs.alter(retry=9, keep=True, capacity=2)
    assert first.fail("no").state == State.DELAYED
    second.ack()
    assert jobs.peek(2).state == State.DONE
    jobs.put(3)
    with pytest.raises(Exception, match="capacity of 2"):
        jobs.put(4)


@pytest.mark.parametrize("option", [{"kind": "fifo"}, {"temporary": True}, {"payload": "bytes"}, {"id": "uuid"}])
def test_alter_cannot_change_what_is_fixed(q, option):
    jobs = q.create_tube("jobs")
    with pytest.raises(UsageError, match=f"{next(iter(option))} is fixed"):
        jobs.alter(**option)


def test_alter_refuses_what_it_does_not_know_and_changes_nothing(q):
    jobs = q.create_tube("jobs", ttl=5)
    with pytest.raises(UsageError, match="colour"):
        jobs.alter(ttl=6, colour="red")
    assert q.tube("jobs").options["ttl"] == 5
