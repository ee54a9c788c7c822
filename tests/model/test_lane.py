"""The rate of a lane: the generic cell rate algorithm."""

from __future__ import annotations

import random

import pytest

from penstock.model.duration import SECOND
from penstock.model.lane import LaneLimits, opens_at, tat_after_grant


def grants(limits, asked):
    """When grants happen if one is asked for at each of these moments."""
    tat, granted = 0, []
    for now in asked:
        if now >= opens_at(limits, tat):
            granted.append(now)
            tat = tat_after_grant(limits, tat, now)
    return granted


def test_the_interval_is_rounded_up_so_that_the_rate_is_never_exceeded():
    assert LaneLimits(rate=2).interval == 500_000
    assert LaneLimits(rate=3).interval == 333_334
    assert LaneLimits(rate=1e6).interval == 1


def test_one_at_once_after_any_idle_time():  # case 322
    start = 10**9
    assert grants(LaneLimits(rate=2), [start, start, start + 1, start + 499_999]) == [start]
    assert grants(LaneLimits(rate=2), [start, start + 500_000]) == [start, start + 500_000]


def test_a_burst_passes_at_once_then_the_rate_counts():
    start = 10**9
    limits = LaneLimits(rate=1, burst=3)
    assert len(grants(limits, [start] * 5)) == 3
    assert grants(limits, [start] * 5 + [start + SECOND - 1, start + SECOND, start + SECOND])[3:] == [start + SECOND]


@pytest.mark.parametrize("seed", range(5))
def test_no_window_holds_more_than_the_burst_and_the_rate(seed):  # case 321
    draw = random.Random(seed)
    limits = LaneLimits(rate=draw.uniform(0.5, 50), burst=draw.randint(1, 5))
    now, asked = 10**9, []
    for _ in range(3000):
        now += draw.choice((0, 1, 1000, 20_000, 3 * SECOND if draw.random() < 0.01 else 5000))
        asked.append(now)
    granted = grants(limits, asked)
    assert len(granted) > 10
    for i, first in enumerate(granted):
        for j in range(i, len(granted)):
            assert j - i + 1 <= limits.burst + (granted[j] - first) // limits.interval
