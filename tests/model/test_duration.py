"""Time as whole microseconds."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from penstock import UsageError
from penstock.model import duration
from penstock.model.clock import ManualClock, SystemClock, next_epoch
from penstock.model.duration import FOREVER, SECOND, At


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1, SECOND),
        (0.1, 100_000),
        (1e-7, 0),
        (timedelta(milliseconds=1.5), 1500),
        (math.inf, FOREVER),
        (15_768_000_000_000_000, FOREVER),  # case 74
        (-math.inf, -FOREVER),
    ],
)
def test_seconds_become_microseconds(value, expected):
    assert duration.micros(value, "ttl") == expected


@pytest.mark.parametrize("value", ["1", None, True, math.nan, [1]])
def test_what_is_no_number_of_seconds_is_refused_by_name(value):
    with pytest.raises(UsageError, match="ttl"):
        duration.micros(value, "ttl")


def test_a_length_may_be_absent_but_not_negative():
    assert duration.length(None, "ttr") is None
    with pytest.raises(UsageError, match="must not be negative"):
        duration.length(-0.5, "ttr")


def test_a_delay_in_the_past_is_now():
    assert duration.delay(-5) == 0
    assert duration.resolve(duration.delay(datetime(2020, 1, 1, tzinfo=UTC)), 10**18) == 0


def test_a_delay_given_as_a_date_is_counted_from_now():
    moment = duration.delay(datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC))
    assert moment == At(9 * SECOND)
    assert duration.resolve(moment, 4 * SECOND) == 5 * SECOND


def test_a_naive_date_is_refused():
    with pytest.raises(UsageError, match="aware"):
        duration.delay(datetime(2030, 1, 1))


def test_a_timeout_of_less_than_nothing_is_nothing():  # case 22
    assert duration.timeout(-1) == 0
    assert duration.timeout(None) is None
    assert duration.timeout(math.inf) is None


def test_what_never_comes_has_no_moment():
    assert duration.after(5, FOREVER) is None
    assert duration.after(5, None) is None
    assert duration.after(None, 5) is None
    assert duration.after(5, 6) == 11


def test_moments_and_dates_are_each_other():
    date = duration.date(1_800_000_000 * SECOND + 1)
    assert date is not None and date.tzinfo is UTC
    assert duration.moment(date, "x") == 1_800_000_000 * SECOND + 1
    assert duration.date(10**20) is None


def test_durations_go_out_as_seconds():
    assert duration.seconds(1_500_000) == 1.5
    assert duration.seconds(FOREVER) == math.inf
    assert duration.seconds(None) is None


def test_the_clock_never_goes_back(monkeypatch):
    clock = SystemClock()
    first = clock.now()
    monkeypatch.setattr("time.time_ns", lambda: (first - 5 * SECOND) * 1000)
    assert clock.now() == first


def test_a_manual_clock_stands_still_and_never_goes_back():
    clock = ManualClock()
    start = clock.now()
    assert clock.now() == start
    clock.advance(1.5)
    clock.advance(-10)
    assert clock.now() == start + 1_500_000


def test_an_epoch_is_above_the_last_and_at_least_the_seconds_of_the_real_clock():
    assert next_epoch(10**12) == 10**12 + 1
    assert next_epoch(0) > 0
