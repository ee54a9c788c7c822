"""Kinds of tubes: what each can do, and kinds of one's own."""

from __future__ import annotations

import pytest

from penstock import Entry, Features, Kind, State, TubeNotFound, UsageError

FEATURES = {
    "fifo": set(),
    "fifottl": {"pri", "ttl", "ttr", "delay"},
    "limfifottl": {"pri", "ttl", "ttr", "delay", "capacity"},
    "utube": {"lanes"},
    "utubettl": {"pri", "ttl", "ttr", "delay", "lanes"},
    "standard": {"pri", "ttl", "ttr", "delay", "capacity", "lanes"},
}
CREATE = {
    "pri": {"pri": 3},
    "ttl": {"ttl": 60},
    "ttr": {"ttr": 60},
    "delay": {"retry": 60},
    "capacity": {"capacity": 3},
    "lanes": {"lane_concurrency": 2},
}
PUT = {
    "pri": [{"pri": 3}],
    "ttl": [{"ttl": 60}],
    "ttr": [{"ttr": 60}],
    "delay": [{"delay": 60}, {"repeat": 60}],
    "lanes": [{"lane": "a"}],
}


@pytest.mark.parametrize("feature", CREATE)
@pytest.mark.parametrize("kind", FEATURES)
def test_a_tube_takes_the_options_of_its_features_and_no_others(q, kind, feature):  # cases 6, 186, 187, 194
    options = CREATE[feature]
    name = next(iter(options))
    if feature in FEATURES[kind]:
        assert q.create_tube("jobs", kind, **options).options[name] == next(iter(options.values()))
    else:
        with pytest.raises(UsageError, match=name):
            q.create_tube("jobs", kind, **options)
        tube = q.create_tube("jobs", kind)
        with pytest.raises(UsageError, match=name):
            tube.alter(**options)


@pytest.mark.parametrize("feature", PUT)
@pytest.mark.parametrize("kind", FEATURES)
def test_a_put_takes_the_options_of_its_tubes_features_and_no_others(q, kind, feature):  # cases 6, 186, 187
    tube = q.create_tube("jobs", kind)
    for options in PUT[feature]:
        if feature in FEATURES[kind]:
            assert tube.put("x", **options).outcome == "new"
        else:
            with pytest.raises(UsageError, match=f"'{next(iter(options))}'"):
                tube.put("x", **options)
            assert tube.tasks() == []


@pytest.mark.parametrize("kind", FEATURES)
def test_verbs_of_a_feature_need_it(q, kind):  # cases 43, 83, 194
    tube = q.create_tube("jobs", kind)
    calls = {
        "ttr": [lambda task: tube.touch(task.id, 5), lambda task: tube.take(ttr=5)],
        "delay": [
            lambda task: task.release(delay=5),
            lambda task: task.fail("x", delay=5),
            lambda task: tube.snatch(task.id, delay=5),
            lambda task: tube.plow(delay=5),
            lambda task: tube.restart(task.id, delay=5),
        ],
        "pri": [lambda task: task.release(pri=5)],
        "ttl": [lambda task: task.release(ttl=5), lambda task: tube.plow(ttl=5)],
        "lanes": [lambda task: tube.take(lane="a"), lambda task: tube.lanes()],
    }
    tube.put("x")
    task = tube.take()
    for feature in set(calls) - FEATURES[kind]:
        for call in calls[feature]:
            with pytest.raises(UsageError, match="feature"):
                call(task)
    assert task.ack().state == State.DONE


@pytest.mark.parametrize("kind", FEATURES)
def test_every_kind_has_what_needs_no_feature(q, kind):
    tube = q.create_tube(
        "jobs", kind, keep=True, keep_failed=60, max_attempts=2, concurrency=1, history=True, id="required",
        max_payload=100,
    )  # fmt: skip
    tube.put("x", id="a", key="k", put_id="p", keep=True, max_attempts=1)
    tube.put("y", id="b")
    assert tube.take().id == "a"
    assert tube.take() is None
    tube.ack("a")
    assert tube.cancel("b").reason == "cancelled"
    tube.pause()


def test_a_kind_there_is_none_of_is_refused(q):  # cases 7, 257
    with pytest.raises(UsageError, match="unknown kind 'lifo'"):
        q.create_tube("jobs", "lifo")
    assert q.tubes() == []
    with pytest.raises(TubeNotFound):
        q.tube("jobs")


def test_an_option_there_is_none_of_is_refused(q):  # case 18
    with pytest.raises(UsageError, match="if_not_exist"):
        q.create_tube("jobs", if_not_exist=True)
    with pytest.raises(UsageError, match="colour"):
        q.create_tube("jobs").alter(colour="red")


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl"])
def test_without_a_ttr_the_ttl_bounds_a_run_on_the_ttl_kinds(q, clock, kind):  # case 68
    tube = q.create_tube("jobs", kind)
    assert tube.put("x", ttl=5).ttr == 5
    task = tube.take()
    assert task.deadline - task.created_at == task.expires_at - task.created_at


def test_without_a_ttr_a_run_is_not_bounded_on_standard(q):
    tube = q.create_tube("jobs", ttl=5)
    tube.put("x")
    assert tube.take().deadline is None


# -- kinds of one's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [Features(pri=True), {"pri": True}])
def test_a_kind_may_be_a_set_of_features(q, features):
    q.register_kind("urgent", features)
    tube = q.create_tube("calls", "urgent")
    assert tube.kind == "urgent"
    tube.put("slow")
    tube.put("fast", pri=-1)
    assert tube.take().data == "fast"
    with pytest.raises(UsageError, match="ttl"):
        tube.put("x", ttl=5)


def test_a_kind_has_defaults_that_a_tube_may_change(q):
    class Polite(Kind):
        features = Features(lanes=True, ttr=True)
        defaults = {"lane_concurrency": 1, "ttr": 60}

    q.register_kind("polite", Polite)
    assert q.create_tube("a", "polite").options["ttr"] == 60
    options = q.create_tube("b", "polite", ttr=5).options
    assert (options["ttr"], options["lane_concurrency"]) == (5, 1)


@pytest.mark.parametrize("kind", [None, 5, "fifo", object(), object, {"speed": True}])
def test_what_is_no_kind_is_refused(q, kind):  # case 158
    with pytest.raises(UsageError):
        q.register_kind("mine", kind)
    with pytest.raises(UsageError, match="unknown kind"):
        q.create_tube("jobs", "mine")


def test_a_kind_is_registered_once(q):  # case 158
    q.register_kind("mine", Features())
    with pytest.raises(UsageError, match="registered already"):
        q.register_kind("mine", Features(pri=True))
    with pytest.raises(UsageError, match="registered already"):
        q.register_kind("fifo", Features(pri=True))


@pytest.mark.parametrize("hook", ["check_put", "retry_delay", "on_finish"])
def test_a_kind_that_lacks_a_method_is_refused_by_name(q, hook):  # case 160
    broken = type("Broken", (Kind,), {hook: None})
    with pytest.raises(UsageError, match=hook):
        q.register_kind("broken", broken)


class Careful(Kind):
    features = Features(pri=True, ttl=True, ttr=True, delay=True)

    def __init__(self):
        self.finished = []

    def check_put(self, entry):
        if not isinstance(entry.data, dict) or "url" not in entry.data:
            raise UsageError("a crawl needs a url")

    def retry_delay(self, task, failure):
        return None if failure > 2 else 10.0 * failure + task.attempt

    def on_finish(self, task):
        self.finished.append((task.id, task.state.value))


@pytest.fixture
def careful(q):
    kind = Careful()
    q.register_kind("careful", kind)
    return kind


def test_a_kind_may_refuse_what_is_put(q, careful):
    tube = q.create_tube("crawl", "careful")
    with pytest.raises(UsageError, match="needs a url"):
        tube.put("x")
    assert tube.tasks() == []
    good, bad = tube.put_many([{"url": "/"}, Entry({}, pri=1)], errors="return")
    assert good.data == {"url": "/"}
    assert isinstance(bad, UsageError)
    assert [task.id for task in tube.tasks()] == [1]


@pytest.mark.parametrize("by_id", [False, True])
def test_a_kind_may_choose_the_delay_of_a_retry(q, clock, careful, by_id):
    tube = q.create_tube("crawl", "careful", retry=1)
    tube.put({"url": "/"})
    waits = []
    for _ in range(3):
        task = tube.take()
        failed = tube.fail(task.id, "x") if by_id else task.fail("x")
        waits.append((failed.ready_at - failed.created_at).total_seconds() - sum(waits))
        clock.advance(waits[-1])
    assert waits == [11, 22, 1]
    assert tube.take().fail("x", delay=5).state == State.DELAYED


def test_a_kind_is_told_what_was_finished(q, careful):
    tube = q.create_tube("crawl", "careful", retry=1)
    tube.put_many([{"url": "/"}] * 5)
    first, second, third, fourth, fifth = tube.take_many(5)
    first.ack()
    second.release()
    third.bury()
    fourth.fail("x")
    tube.ack_many([fifth])
    assert careful.finished == [(1, "done"), (3, "buried"), (5, "done")]
    tube.ack(tube.take().id)
    tube.bury(tube.put({"url": "/"}).id)
    assert careful.finished[3:] == [(2, "done"), (6, "buried")]


def test_a_kind_is_told_what_ended_because_it_was_given_up(q, careful):
    tube = q.create_tube("crawl", "careful", max_attempts=1)
    tube.put_many([{"url": "/"}] * 3)
    first, second, third = tube.take_many(3)
    tube.cancel(1)
    first.release()
    second.fail("x")
    assert tube.fail(third.id, "x", abort=True).state == State.BURIED
    assert careful.finished == [(1, "done"), (2, "buried"), (3, "buried")]
    assert second.fail("x").state == State.BURIED
    assert len(careful.finished) == 3, "the same answer again is no second end"


def test_a_kind_is_told_when_the_transaction_has_ended_well(bench, q, careful):
    tube = q.create_tube("crawl", "careful")
    tube.put_many([{"url": "/"}] * 3)
    first, second, third = tube.take_many(3)
    with q.transaction() as tx:
        first.ack(transaction=tx)
        tube.ack(second.id, transaction=tx)
        tube.ack_many([third], transaction=tx)
        assert careful.finished == []
    assert careful.finished == [(1, "done"), (2, "done"), (3, "done")]


def test_a_kind_is_not_told_of_what_was_rolled_back(q, careful):
    tube = q.create_tube("crawl", "careful")
    tube.put({"url": "/"})
    task = tube.take()

    def roll_back():
        with q.transaction() as tx:
            task.ack(transaction=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        roll_back()
    assert careful.finished == []
    task.ack()
    assert careful.finished == [(1, "done")]


def test_a_hook_that_fails_is_logged_and_changes_nothing(q, caplog):
    class Broken(Kind):
        def on_finish(self, task):
            raise ZeroDivisionError("in the hook")

    q.register_kind("broken", Broken)
    tube = q.create_tube("jobs", "broken")
    tube.put_many(["a", "b", "c"])
    with tube.take() as task:
        pass
    assert (task.state, task.ack().state) == (State.DONE, State.DONE)
    assert tube.take().bury().state == State.BURIED
    assert [done.state for done in tube.ack_many(tube.take_many(1))] == [State.DONE]
    assert caplog.text.count("on_finish() of kind 'broken' failed") == 3
    assert "in the hook" in caplog.text


def test_a_tube_of_a_kind_with_hooks_appears_when_the_kind_is_registered(bench, q, careful):  # case 159
    tube = q.create_tube("crawl", "careful")
    tube.put({"url": "/"})
    tube.take()
    q.create_tube("plain")
    again = bench.new_run()
    with pytest.raises(UsageError, match="register_kind"):
        again.tube("crawl")
    assert [found.name for found in again.tubes()] == ["plain"]
    assert again.statistics()["crawl"].tasks["ready"] == 1
    again.register_kind("careful", Careful)
    assert [found.name for found in again.tubes()] == ["crawl", "plain"]
    assert again.tube("crawl").take().attempt == 2


def test_a_tube_of_a_kind_without_hooks_needs_no_registration(bench, q):
    q.register_kind("urgent", Features(pri=True))
    q.create_tube("calls", "urgent").put("x", pri=-1)
    assert bench.new_run().tube("calls").take().pri == -1
