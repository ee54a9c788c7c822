"""How long a failed task waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Exponential, UsageError
from penstock.model import retry
from penstock.model.duration import FOREVER, SECOND


def delays(policy, failures):
    return [retry.base_delay(policy, k) / SECOND for k in range(1, failures + 1)]


def test_no_policy_waits_not_at_all():
    assert delays(None, 2) == [0, 0]


def test_a_number_is_the_same_after_every_failure():  # case 274
    assert delays(retry.parse(10), 3) == [10, 10, 10]
    assert delays(retry.parse(timedelta(minutes=1)), 1) == [60]


def test_a_list_goes_on_with_its_last():  # case 275
    assert delays(retry.parse([60, 300]), 4) == [60, 300, 300, 300]


def test_an_exponential_grows_to_its_limit():
    assert delays(Exponential(base=1, factor=2, max=10), 6) == [1, 2, 4, 8, 10, 10]
    assert delays(Exponential(), 5000)[-1] == 3600


@pytest.mark.parametrize("ever", [10**400, float("inf"), timedelta.max])
def test_an_exponential_without_a_limit_ends_at_never(ever):
    policy = Exponential(base=1, factor=10, max=ever)
    assert retry.base_delay(policy, 3) == 100 * SECOND
    assert retry.base_delay(policy, 10**9) == FOREVER
    assert retry.from_json(retry.to_json(policy)) == policy
    assert retry.base_delay(Exponential(base=0, factor=10), 10**9) == 0


def test_jitter_stays_within_its_share():
    policy = Exponential(base=10, jitter=0.5)
    found = {retry.jittered_delay(policy, 1) for _ in range(200)}
    assert len(found) > 1
    assert all(5 * SECOND <= delay <= 15 * SECOND for delay in found)


def test_without_jitter_every_delay_is_the_same():
    assert {retry.jittered_delay(Exponential(base=3), 2) for _ in range(20)} == {6 * SECOND}


@pytest.mark.parametrize("failures", [0, 1, 2, 3, 7, 40])
@pytest.mark.parametrize(
    "policy",
    [
        None,
        5.0,
        (1.0,),
        (1.0, 2.0, 4.0),
        *(
            Exponential(base, factor, most)
            for base in (0, 0.1, 3, 90)
            for factor in (0, 0.5, 1, 1.3, 2)
            for most in (0, 60)
        ),
    ],
    ids=repr,
)
def test_delays_are_added_up_without_looking_at_each(policy, failures):
    apart = sum(retry.base_delay(policy, k) for k in range(1, failures + 1))
    assert retry.total_delay(policy, failures) == pytest.approx(apart, abs=failures + 1), "each one is rounded"


@pytest.mark.parametrize(
    "policy", [None, 5.0, (1.0, 2.0), Exponential(factor=1.0000001), Exponential(factor=0.9999999)]
)
def test_any_number_of_delays_can_be_added_up(policy):
    total = retry.total_delay(policy, 1 << 62)
    assert (total > 0) == (policy is not None)


@pytest.mark.parametrize("value", ["5", [], -1, [1, -2], object()])
def test_what_is_no_policy_is_refused(value):
    with pytest.raises(UsageError):
        retry.parse(value)


@pytest.mark.parametrize(
    "options",
    [
        {"jitter": 2},
        {"jitter": "x"},
        {"jitter": float("nan")},
        {"jitter": True},
        {"base": -1},
        {"base": "1"},
        {"factor": timedelta(seconds=2)},
        {"factor": -1},
        {"factor": 10**400},
        {"max": None},
    ],
)
def test_a_wrong_exponential_is_refused(options):
    with pytest.raises(UsageError, match=r"Exponential\."):
        Exponential(**options)


@pytest.mark.parametrize("policy", [None, 5.0, (1.0, 2.0), Exponential(base=2, jitter=0.1)])
def test_a_stored_policy_comes_back_equal(policy):
    assert retry.from_json(retry.to_json(policy)) == policy
