"""The decision table for lease ends, row by row, and the examples below it."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, at, moments

from penstock import LeaseLost, Reason, State
from penstock.testing import lose

SESSION = 30
READY, DONE = (State.READY, None), State.DONE


class Scene:
    """A task that a session of its own holds since time 0, now at time 20 or 30."""

    def __init__(self, bench, q, clock):
        self.bench, self.q, self.clock = bench, q, clock
        self.jobs = q.create_tube("jobs", keep=True)

    def begin(self, left, passed, end, cancelled=False, paused=False, **options):
        holder = self.bench.connect(session_ttl=SESSION)
        self.holder = holder
        self.jobs.put("x", ttl=10 if passed else 1000, max_attempts=2 if left else 1, **options)
        self.task = holder.tube("jobs").take(ttr=25 if end == "ttr" else None)
        if cancelled:
            assert self.jobs.cancel(1).state == State.TAKEN
        if paused:
            self.jobs.pause()
        self.clock.advance(20)
        self.events = Events(self.jobs)

    def end(self, how):
        getattr(self, "by_" + how)()
        return self.outcome()

    def outcome(self):
        task = self.jobs.peek(1)
        return task.state, task.reason, self.events.names

    def by_fail(self):
        self.task.fail("no")

    def by_abort(self):
        self.task.fail("no", abort=True)

    def by_ttr(self):
        self.clock.advance(5)

    def by_session(self):
        lose(self.holder)
        self.clock.advance(SESSION)

    def by_release(self):
        self.task.release()

    def by_snatch(self):
        self.jobs.snatch(1)

    def by_release_all(self):
        self.jobs.release_all()

    def by_close(self):
        self.holder.close()

    def by_bury(self):
        self.task.bury()

    def by_ack(self):
        self.task.ack()


@pytest.fixture
def scene(bench, q, clock):
    return Scene(bench, q, clock)


EXPIRED = (DONE, Reason.EXPIRED)
NO_ATTEMPTS = (State.BURIED, Reason.NO_ATTEMPTS)
ABORTED = (State.BURIED, Reason.ABORTED)
LOST = (State.BURIED, Reason.LOST)
ASKED = (State.BURIED, Reason.ASKED)
RELEASES = ("release", "snatch", "release_all", "close")
ENDS = ("fail", "abort", "ttr", "session", *RELEASES, "bury")
EVENT = {"abort": "fail", "session": "release", **dict.fromkeys(RELEASES, "release")}

# how, attempts left, ttl passed: the result
TABLE = [
    ("fail", True, False, READY),
    ("fail", True, True, EXPIRED),
    ("fail", False, False, NO_ATTEMPTS),
    ("fail", False, True, NO_ATTEMPTS),
    *(("abort", left, passed, ABORTED) for left in (True, False) for passed in (True, False)),
    ("ttr", True, False, READY),
    ("ttr", True, True, EXPIRED),
    ("ttr", False, False, LOST),
    ("ttr", False, True, LOST),
    ("session", True, False, READY),
    ("session", True, True, EXPIRED),
    ("session", False, False, LOST),
    ("session", False, True, LOST),
    *((how, left, False, READY) for how in RELEASES for left in (True, False)),
    *((how, left, True, EXPIRED) for how in RELEASES for left in (True, False)),
    *(("bury", left, False, ASKED) for left in (True, False)),
    *(("bury", left, True, EXPIRED) for left in (True, False)),
]


@pytest.mark.parametrize(("how", "left", "passed", "result"), TABLE)
def test_a_lease_ends_as_the_table_says(scene, how, left, passed, result):
    scene.begin(left, passed, how)
    assert scene.end(how) == expected(how, result)


@pytest.mark.parametrize(("how", "left", "passed", "result"), TABLE)
def test_a_lease_ends_as_the_table_says_in_a_paused_tube(scene, how, left, passed, result):
    scene.begin(left, passed, how, paused=True)
    assert scene.end(how) == expected(how, result)


def expected(how, result):
    """The state, the reason and the events of a task whose lease has ended."""
    return (*result, [EVENT.get(how, how), *(["ttl"] if result == EXPIRED else [])])


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("how", ENDS)
def test_a_cancel_that_was_asked_for_decides_unless_it_was_acked(scene, how, left, passed):
    scene.begin(left, passed, how, cancelled=True)
    assert scene.end(how) == (DONE, Reason.CANCELLED, [EVENT.get(how, how), "cancel"])


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("left", [True, False])
def test_ack_is_success_whatever_else_is_true(scene, left, passed, cancelled):
    scene.begin(left, passed, "ack", cancelled=cancelled)
    assert scene.end("ack") == (DONE, Reason.SUCCESS, ["ack"])


def test_ack_of_a_repeating_task_waits_for_its_next_turn(scene, clock):
    scene.begin(True, True, "ack", repeat=60)
    assert scene.end("ack") == (State.DELAYED, None, ["ack"])
    task = scene.jobs.peek(1)
    assert (task.attempt, task.ready_at) == (0, at(clock, 60))


@pytest.mark.parametrize("how", ["release", "snatch"])
def test_a_delay_moves_the_end_of_life(scene, clock, how):
    scene.begin(True, False, how)
    scene.task.release(delay=5) if how == "release" else scene.jobs.snatch(1, delay=5)
    task = scene.jobs.peek(1)
    assert (task.state, task.ready_at, task.expires_at) == (State.DELAYED, at(clock, 5), at(clock, 985))
    assert scene.events.names == ["release"]


@pytest.mark.parametrize("how", ["release", "snatch"])
def test_a_delay_does_not_save_a_task_whose_ttl_has_passed(scene, how):
    scene.begin(True, True, how)
    scene.task.release(delay=5) if how == "release" else scene.jobs.snatch(1, delay=5)
    assert scene.outcome() == (*EXPIRED, ["release", "ttl"])


def test_a_retry_delay_leaves_the_end_of_life(scene, clock):
    scene.begin(True, False, "fail")
    task = scene.task.fail("no", delay=5)
    assert (task.state, task.ready_at, task.expires_at) == (State.DELAYED, at(clock, 5), at(clock, 980))


def test_a_failed_task_dies_in_its_delay_if_its_life_ends_first(scene, clock):
    scene.begin(True, False, "fail")
    scene.task.fail("no", delay=2000)
    clock.advance(980)
    assert scene.outcome() == (*EXPIRED, ["fail", "ttl"])


VERBS = {
    "ack": lambda task: task.ack(),
    "release": lambda task: task.release(),
    "bury": lambda task: task.bury(),
    "fail": lambda task: task.fail("no"),
    "abort": lambda task: task.fail("no", abort=True),
    "touch": lambda task: task.touch(5),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_stale_token_changes_nothing(scene, verb):
    scene.begin(True, False, verb)
    scene.jobs.snatch(1)
    again = scene.jobs.take()
    scene.events.clear()
    with pytest.raises(LeaseLost):
        VERBS[verb](scene.task)
    assert scene.outcome() == (State.TAKEN, None, [])
    assert again.ack().state == State.DONE


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_past_its_deadline_changes_nothing(scene, clock, verb):
    scene.begin(True, False, "ttr")
    clock.advance(5)
    with pytest.raises(LeaseLost):
        VERBS[verb](scene.task)
    assert scene.outcome() == (*READY, ["ttr"])


@pytest.mark.parametrize("verb", VERBS)
def test_a_session_that_ended_holds_nothing(scene, clock, verb):
    scene.begin(True, False, "session")
    lose(scene.holder)
    clock.advance(SESSION)
    with pytest.raises(LeaseLost):
        VERBS[verb](scene.task)
    assert scene.outcome() == (*READY, ["release"])


def test_at_one_moment_ttr_comes_before_the_end_of_the_session(bench, q, clock):
    jobs = q.create_tube("jobs")
    holder = bench.connect(session_ttl=SESSION)
    jobs.put(1, ttr=SESSION, max_attempts=1)
    holder.tube("jobs").take()
    events = Events(jobs)
    lose(holder)
    clock.advance(SESSION)
    assert events == [("ttr", State.BURIED, Reason.LOST)]


# -- the examples --------------------------------------------------------------------------------------


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", history=True)


def test_example_ack_after_the_ttl(jobs, clock):
    jobs.put(1, ttl=10, ttr=20)
    clock.advance(1)
    task = jobs.take()
    clock.advance(14)
    assert task.ack().reason == Reason.SUCCESS


def test_example_ack_after_the_ttr(q, jobs, clock):
    start = at(clock)
    jobs.put(1, ttl=10, ttr=20)
    clock.advance(1)
    task = jobs.take()
    clock.advance(20)
    with pytest.raises(LeaseLost) as caught:
        task.ack()
    assert caught.value.now == "gone"
    assert moments(q, start) == [("put", 0), ("take", 1), ("ttr", 21), ("ttl", 21)]


def test_example_attempts_kick_and_add_retries(q, clock):
    jobs = q.create_tube("jobs", max_attempts=2, retry=[5])
    jobs.put(1)
    task = jobs.take()
    clock.advance(1)
    task.fail("no")
    assert (task.state, task.ready_at) == (State.DELAYED, at(clock, 5))
    clock.advance(5)
    task = jobs.take()
    clock.advance(1)
    assert task.fail("no").reason == Reason.NO_ATTEMPTS
    assert jobs.kick() == 1
    third = jobs.take()
    assert third.attempt == 3
    assert third.fail("no").reason == Reason.NO_ATTEMPTS
    assert jobs.add_retries(2) == 1
    assert (jobs.peek(1).max_attempts, jobs.peek(1).state) == (5, State.READY)


def test_example_a_jump_of_the_clock(q, jobs, clock):
    start = at(clock)
    jobs.put(1, ttr=5, ttl=50)
    jobs.take()
    clock.advance(100)
    assert moments(q, start)[2:] == [("ttr", 5), ("ttl", 50)]


@pytest.mark.parametrize("order", ["skip", "strict"])
@pytest.mark.parametrize("freed", ["kick", "delete"])
def test_example_a_buried_head_of_a_lane(q, order, freed):  # cases 103, 118
    jobs = q.create_tube("jobs", "utube", lane_order=order)
    jobs.put_many([1, 2], lane="a")
    jobs.take().bury()
    if order == "skip":
        assert jobs.take().data == 2
        return
    assert jobs.take() is None
    if freed == "kick":
        jobs.kick()
        assert jobs.take().data == 1
    else:
        jobs.delete(1)
        assert jobs.take().data == 2
