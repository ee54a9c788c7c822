"""Each checker accepts a good history and finds what is wrong in a bad one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.crash import checkers
from tests.crash.checkers import History

A, B = ("jobs", 1), ("jobs", 2)
PUTS = [["asked", "jobs", "a"], ["put", "jobs", 1, "a"], ["asked", "jobs", "b"], ["put", "jobs", 2, "b"]]


def history(*lines: list[Any]) -> History:
    made = History()
    made.add([*PUTS, *lines])
    return made


def took(task: int, token: int, at: int, lane: str | None = "x") -> list[Any]:
    return ["took", "jobs", task, "ab"[task - 1], lane, token, at]


def acked(token: int, at: int) -> list[list[Any]]:
    return [["ending", "jobs", token, "ack"], ["ended", "jobs", token, "acked", at]]


GOOD = history(
    took(1, 10, 100),
    ["ending", "jobs", 10, "release"],
    ["ended", "jobs", 10, "released", 110],
    took(1, 11, 110),
    *acked(11, 120),
    took(2, 12, 120),
    *acked(12, 130),
)


def test_a_good_history_passes_every_checker():
    checkers.check(GOOD, {})


def test_a_history_with_an_unanswered_put_and_an_unanswered_ack_is_good():
    seen = history(["asked", "jobs", "c"], took(1, 10, 100), ["ending", "jobs", 10, "ack"])
    checkers.check(seen, {B: "b"})
    checkers.check(seen, {A: "a", B: "b", ("jobs", 3): "c"})


def test_a_lease_that_was_lost_may_overlap_the_next():
    seen = history(took(1, 10, 100), took(1, 11, 105), ["ended", "jobs", 10, "lost", None], *acked(11, 120))
    checkers.check(seen, {B: "b"})


def test_a_task_that_is_nowhere_is_found():
    with pytest.raises(AssertionError, match="lost"):
        checkers.check_no_loss(history(took(1, 10, 100)), {B})


def test_a_released_task_that_is_nowhere_is_found():
    seen = history(took(1, 10, 100), ["ending", "jobs", 10, "release"], ["ended", "jobs", 10, "released", 110])
    with pytest.raises(AssertionError, match="lost"):
        checkers.check_no_loss(seen, {B})


def test_an_acked_task_that_is_still_there_is_found():
    with pytest.raises(AssertionError, match="still there"):
        checkers.check_no_return(GOOD, {A})


def test_an_acked_task_that_is_granted_again_is_found():
    with pytest.raises(AssertionError, match="granted again"):
        checkers.check_no_return(history(took(1, 10, 100), *acked(10, 110), took(1, 11, 120)), set())


@pytest.mark.parametrize(
    "left",
    [
        {("jobs", 3): "never asked for"},
        {("jobs", 3): "a"},
        {A: "something else"},
    ],
    ids=["unknown", "twice", "changed"],
)
def test_a_task_that_nobody_put_is_found(left):
    with pytest.raises(AssertionError, match=r"never asked for|data changed"):
        checkers.check_no_phantom(GOOD, left)


def test_a_token_that_is_granted_twice_is_found():
    with pytest.raises(AssertionError, match="granted twice"):
        checkers.check_tokens(history(took(1, 10, 100), took(2, 10, 101)))


def test_a_token_that_falls_is_found():
    with pytest.raises(AssertionError, match="rise"):
        checkers.check_tokens(history(took(1, 11, 100), took(1, 10, 101)))


def test_a_task_that_two_hold_at_once_is_found():
    seen = history(took(1, 10, 100), took(1, 11, 105), *acked(10, 110))
    with pytest.raises(AssertionError, match="held twice"):
        checkers.check_one_lease(seen)


def overlapping(serial: bool, released_at: int) -> History:
    """The holder of token 10 releases the task; the next take began at time 1 and returns at time 7."""
    made = History(serial=serial)
    ending = [["ending", "jobs", 10, "release", released_at], ["ended", "jobs", 10, "released", 130]]
    made.add([*PUTS, [*took(1, 10, 100), 2, 3], *ending, [*took(1, 11, 90), 1, 7]])
    return made


def test_timestamps_out_of_order_are_allowed_on_a_concurrent_store():
    good = overlapping(serial=False, released_at=6)
    checkers.check_tokens(good)
    checkers.check_one_lease(good)
    checkers.check_lanes(good)
    for check, words in ((checkers.check_tokens, "rise"), (checkers.check_one_lease, "held twice")):
        with pytest.raises(AssertionError, match=words):
            check(overlapping(serial=True, released_at=6))


def test_release_after_the_next_take_returned_is_found_on_a_concurrent_store():
    bad = overlapping(serial=False, released_at=8)
    for check in (checkers.check_one_lease, checkers.check_lanes):
        with pytest.raises(AssertionError, match="held twice"):
            check(bad)


def test_token_granted_before_a_lower_one_is_found_on_a_concurrent_store():
    bad = History(serial=False)
    bad.add([*PUTS, [*took(1, 10, 100), 8, 9], [*took(1, 11, 110), 6, 7]])
    with pytest.raises(AssertionError, match="rise"):
        checkers.check_tokens(bad)


def test_a_lane_that_two_hold_at_once_is_found():
    seen = history(took(1, 10, 100), took(2, 11, 105), *acked(10, 110), *acked(11, 112))
    with pytest.raises(AssertionError, match="held twice"):
        checkers.check_lanes(seen)
    other = history(took(1, 10, 100, "x"), took(2, 11, 105, "y"), *acked(10, 110), *acked(11, 112))
    checkers.check_lanes(other)


def test_a_lane_whose_tokens_fall_is_found():
    with pytest.raises(AssertionError, match="rise"):
        checkers.check_lanes(history(took(1, 11, 100), took(2, 10, 101)))


def test_a_task_that_overtakes_in_its_lane_is_found():
    seen = history(took(2, 10, 100), *acked(10, 105), took(1, 11, 106), *acked(11, 107))
    with pytest.raises(AssertionError, match="overtaken"):
        checkers.check_fifo(seen)
