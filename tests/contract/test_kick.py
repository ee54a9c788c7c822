"""kick, dig and plow."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, at, refused

from penstock import Reason, State, TaskNotFound, UsageError, WrongState


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.fixture
def grave(jobs):
    """Five buried tasks; the last two are more urgent."""
    for n, pri in enumerate((0, 0, 0, -1, -1), start=1):
        jobs.put(n, pri=pri)
        jobs.bury(n)
    return jobs


def states(jobs):
    return "".join(task.state.letter for task in jobs.tasks())


def test_kick_revives_at_most_what_is_buried(jobs):  # case 48
    jobs.bury(jobs.put(1).id)
    assert jobs.kick(100500) == 1
    assert states(jobs) == "r"


def test_kick_alone_revives_one(grave):  # case 49
    assert grave.kick() == 1
    assert states(grave) == "!!!r!"


def test_kick_of_nothing_does_nothing(jobs):  # case 50
    jobs.put(1)
    events = Events(jobs)
    assert jobs.kick(3) == 0
    assert events == []
    assert jobs.statistics().calls["kick"] == 0


@pytest.mark.parametrize("kind", ["fifo", "utube", "utubettl"])
def test_kick_of_nothing_leaves_every_kind_usable(q, kind):  # case 50
    tube = q.create_tube("other", kind)
    assert tube.kick(3) == 0
    tube.put(1)
    assert tube.take().data == 1


@pytest.mark.parametrize("n", [-5, 1.5, True, "2", None])
def test_a_bad_number_is_refused(grave, n):  # case 51
    refused(n, lambda: grave.kick(n))
    assert states(grave) == "!!!!!"


def test_kick_goes_by_pri_then_age(grave):  # cases 218, 223
    assert grave.kick(3) == 3
    assert states(grave) == "r!!rr"


def test_a_kicked_task_has_the_attempts_it_had(jobs):
    jobs.put(1, max_attempts=2)
    jobs.take().release()
    jobs.take().fail("no")
    assert jobs.peek(1).reason == Reason.NO_ATTEMPTS
    jobs.kick()
    task = jobs.peek(1)
    assert (task.attempt, task.reason, task.error) == (2, None, "no")
    assert jobs.take().fail("again").reason == Reason.NO_ATTEMPTS


def test_kick_starts_a_life_that_has_passed_again(jobs, clock):
    jobs.put(1, ttl=10)
    jobs.take().fail("no")
    clock.advance(100)
    jobs.kick()
    assert jobs.peek(1).expires_at == at(clock, 10)


def test_kick_leaves_a_life_that_goes_on_alone(jobs, clock):
    put = jobs.put(1, ttl=10)
    jobs.bury(1)
    clock.advance(4)
    jobs.kick()
    assert jobs.peek(1).expires_at == put.expires_at


def test_dig_revives_the_one_task(grave):  # case 219
    task = grave.dig(2)
    assert (task.id, task.state) == (2, State.READY)
    assert states(grave) == "!r!!!"


def test_dig_with_delay_and_ttl(grave, clock):  # case 221
    task = grave.dig(2, delay=1, ttl=5)
    assert (task.state, task.ready_at, task.expires_at) == (State.DELAYED, at(clock, 1), at(clock, 6))
    clock.advance(1)
    assert grave.take().id == 2


def test_a_delay_of_dig_moves_the_end_of_life(jobs, clock):
    jobs.put(1, ttl=10)
    jobs.bury(1)
    assert jobs.dig(1, delay=5).expires_at == at(clock, 15)


@pytest.mark.parametrize("state", ["ready", "taken", "delayed", "done"])
def test_dig_wants_a_buried_task(jobs, state):
    jobs.put(1, delay=5 if state == "delayed" else None)
    if state in ("taken", "done"):
        task = jobs.take()
        if state == "done":
            task.ack(keep=True)
    with pytest.raises(WrongState, match=f"task 1 is {state}"):
        jobs.dig(1)
    assert jobs.peek(1).state == state


def test_dig_of_a_missing_task_is_told(jobs):
    with pytest.raises(TaskNotFound, match="77"):
        jobs.dig(77)


@pytest.mark.parametrize("n", [None, float("inf")])
def test_plow_revives_all(grave, n):  # case 222
    assert grave.plow(n) == 5
    assert states(grave) == "rrrrr"


def test_plow_with_a_number_delay_and_ttl(grave, clock):
    assert grave.plow(2, delay=3, ttl=4) == 2
    assert states(grave) == "!!!~~"
    assert {task.expires_at for task in grave.tasks("delayed")} == {at(clock, 7)}


@pytest.mark.parametrize("option", ["delay", "ttl"])
def test_options_that_the_kind_lacks_are_refused(q, option):
    tube = q.create_tube("fifo", "fifo")
    tube.bury(tube.put(1).id)
    for call in (lambda: tube.dig(1, **{option: 5}), lambda: tube.plow(**{option: 5})):
        with pytest.raises(UsageError, match=f"'{option}'"):
            call()
    assert states(tube) == "!"


@pytest.mark.parametrize(("option", "value"), [("delay", "x"), ("delay", float("nan")), ("ttl", -1)])
def test_bad_options_are_refused(grave, option, value):
    refused(value, lambda: grave.dig(1, **{option: value}))
    refused(value, lambda: grave.plow(1, **{option: value}))
    assert states(grave) == "!!!!!"


@pytest.mark.parametrize("verb", ["kick", "dig", "plow"])
def test_a_revived_task_serves_who_waits(q, grave, waiter, verb):  # case 217
    taker = waiter(q, lambda: grave.take(None))
    getattr(grave, verb)(1)
    assert taker.result().id == (1 if verb == "dig" else 4)


@pytest.mark.parametrize("verb", ["kick", "dig", "plow"])
def test_every_revival_is_a_kick(grave, verb):
    events = Events(grave)
    getattr(grave, verb)(1)
    assert events == [("kick", State.READY, None)]
