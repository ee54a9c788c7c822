"""Names, options and kinds."""

from __future__ import annotations

import pytest

from penstock import Features, UsageError
from penstock.model.duration import FOREVER, SECOND
from penstock.model.tube import KINDS, OPTIONS, TubeConfig, check_name, check_text, new_tube, parse_lane_options


def tube(kind="standard", **options):
    return new_tube("jobs", KINDS[kind], False, options)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 64])
def test_good_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "\u00e9", "a/b", "a\n", None, 5])
def test_bad_names_are_refused(name):
    with pytest.raises(UsageError, match="1 to 64"):
        check_name(name)


def test_lanes_and_keys_are_text_numbers_become_text_and_empty_is_none():  # case 111
    assert check_text(1, "lane") == check_text("1", "lane") == "1"
    assert check_text("", "key") is None
    assert check_text("a/b \u00e9", "lane") == "a/b \u00e9"


@pytest.mark.parametrize("value", ["x" * 256, "\u00e9" * 128, "a\0b", "\ud800", True, 1.5, b"x"])
def test_bad_lanes_and_keys_are_refused(value):
    with pytest.raises(UsageError):
        check_text(value, "lane")


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("fifo", {"ttl": 1}),
        ("fifo", {"pri": 1}),
        ("fifo", {"retry": 1}),
        ("fifottl", {"capacity": 1}),
        ("fifottl", {"lane_rate": 1}),
        ("utube", {"ttr": 1}),
    ],
)
def test_an_option_of_a_missing_feature_is_refused_by_name(kind, option):
    with pytest.raises(UsageError, match=next(iter(option))):
        tube(kind, **option)


@pytest.mark.parametrize(
    "option",
    [
        {"if_not_exist": True},
        {"ttl": -1},
        {"pri": 1.5},
        {"pri": 1 << 63},
        {"capacity": -1},
        {"max_attempts": 0},
        {"lane_rate": 0},
        {"lane_burst": 0},
        {"lane_order": "loose"},
        {"lane_pick": "random"},
        {"keep": None},
        {"payload": "pickle"},
        {"max_payload": 0},
        {"history": 1},
        {"id": "random"},
        {"ttl": "derived"},
    ],
)
def test_wrong_options_are_refused(option):  # case 18
    with pytest.raises(UsageError):
        tube(**option)


def test_utube_kinds_serve_one_at_a_time_in_order_and_share_a_lane():
    config = tube("utube")
    assert (config.lane_concurrency, config.lane_pick) == (1, "order")
    assert (config.lane_of(None), config.lane_of("a")) == ("", "a")
    assert (tube().lane_of(None), tube("fifo").lane_of(None)) == (None, None)


def test_no_capacity_and_capacity_0_are_unlimited():  # case 93
    assert tube(capacity=0).capacity is tube(capacity=None).capacity is tube().capacity is None


def test_keep_is_nothing_for_ever_or_seconds():
    assert [tube(keep=keep).keep for keep in (False, True, 5)] == [0, FOREVER, 5 * SECOND]


def test_a_stored_configuration_comes_back_equal():
    config = tube(ttl=5, retry=[1, 2], keep=True, lane_rate=0.5, max_attempts=3)
    assert TubeConfig.from_json(config.to_json()) == config


def test_what_is_fixed_cannot_be_altered():
    for name, value in {"payload": "bytes", "id": "uuid", "kind": "fifo", "temporary": True}.items():
        with pytest.raises(UsageError, match="fixed"):
            tube().altered({name: value})


def test_differences_are_listed():
    assert tube(ttl=5).differences("standard", False, {"ttl": 5}) == []
    (difference,) = tube(ttl=5).differences("standard", False, {"ttl": 6})
    assert difference == "ttl: it has 5.0, asked for 6.0"
    assert tube(keep=True).differences("standard", True, {"keep": False}) == [
        "keep: it has True, asked for False",
        "temporary: it has False, asked for True",
    ]


def test_another_kind_is_the_difference_whatever_its_options():
    assert tube("fifo").differences("standard", False, {"ttl": 5}) == ["kind: it has 'fifo', asked for 'standard'"]


def test_options_are_shown_as_they_were_written():
    shown = tube(ttl=5, keep=1.5).shown()
    assert (shown["ttl"], shown["keep"]) == (5.0, 1.5)
    assert set(OPTIONS) < set(shown)


def test_unknown_lane_options_are_refused():
    assert parse_lane_options({"rate": 2, "burst": None}) == {"rate": 2.0, "burst": None}
    with pytest.raises(UsageError, match="speed"):
        parse_lane_options({"speed": 1})


def test_the_kinds_have_the_features_of_the_contract():
    assert KINDS["fifo"].features == Features()
    assert all(KINDS["standard"].features)
    assert KINDS["limfifottl"].features.capacity and not KINDS["fifottl"].features.capacity
