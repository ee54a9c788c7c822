"""Data: what comes back equal, and what is refused."""

from __future__ import annotations

import decimal
import uuid
from datetime import UTC, datetime
from enum import IntEnum, StrEnum

import pytest

from penstock import PayloadTooLarge, State, UsageError


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.fixture
def raw(q):
    return q.create_tube("raw", payload="bytes")


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


GOOD = [
    None,
    True,
    False,
    0,
    -1,
    -(1 << 63),
    (1 << 63) - 1,
    (1 << 64) - 1,
    1.0,
    -0.5,
    5e-324,
    1.7976931348623157e308,
    0.1,
    "",
    "text",
    "ä€😀\u2028\t\n\\\"'",
    "\x01\x7f",
    [],
    {},
    [[], {}, [None]],
    {"b": 1, "a": {"ä": [1, 2.5, None, True]}, "": 0},
    nested(64),
]


@pytest.mark.parametrize("data", GOOD, ids=range(len(GOOD)))
def test_data_comes_back_equal_and_of_its_type(jobs, data):
    jobs.put(data)
    for task in (jobs.peek(1), jobs.take()):
        assert (task.data, type(task.data)) == (data, type(data))


def test_a_dict_keeps_its_order(jobs):
    jobs.put({"z": 1, "a": 2, "m": 3})
    assert list(jobs.take().data) == ["z", "a", "m"]


def test_data_comes_back_after_a_restart(bench, jobs):
    for data in GOOD:
        jobs.put(data)
    again = bench.new_run().tube("jobs")
    assert [task.data for task in again.take_many(100)] == GOOD


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


BAD = [
    float("nan"),
    float("inf"),
    -float("inf"),
    1 << 64,
    -(1 << 63) - 1,
    "a\0b",
    "\ud800",
    b"bytes",
    bytearray(b"x"),
    (1, 2),
    {1, 2},
    {1: "number"},
    {None: 1},
    {"a\0": 1},
    {"\udfff": 1},
    datetime(2030, 1, 1, tzinfo=UTC),
    decimal.Decimal("1.5"),
    uuid.UUID(int=1),
    Colour.RED,
    Number.ONE,
    object(),
    ...,
    len,
    nested(65),
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"k": [x]}], ids=["bare", "list", "dict"])
def test_data_that_would_not_come_back_equal_is_refused(jobs, data, wrap):
    with pytest.raises(UsageError, match="data"):
        jobs.put(wrap(data))
    assert jobs.tasks() == []


def test_a_tuple_is_refused_with_advice(jobs):
    with pytest.raises(UsageError, match=r"tuple: \(1, 2\); make it a list"):
        jobs.put((1, 2))


@pytest.mark.parametrize("make", [list, dict])
def test_data_that_holds_itself_is_refused(jobs, make):
    data = make()
    data.append(data) if isinstance(data, list) else data.update(self=data)
    with pytest.raises(UsageError, match="64 deep"):
        jobs.put({"data": data})


def test_the_length_counts_bytes(q):
    jobs = q.create_tube("small", max_payload=10)
    assert jobs.put("x" * 8).outcome == "new"
    assert jobs.put("ä" * 4).outcome == "new"
    with pytest.raises(PayloadTooLarge, match=r"11 bytes.*at most 10"):
        jobs.put("x" * 9)
    with pytest.raises(PayloadTooLarge, match="12 bytes"):
        jobs.put("ä" * 5)
    assert len(jobs.tasks()) == 2


def test_one_mebibyte_is_the_limit(jobs):
    jobs.put("x" * ((1 << 20) - 2))
    assert len(jobs.take().data) == (1 << 20) - 2
    with pytest.raises(PayloadTooLarge):
        jobs.put("x" * ((1 << 20) - 1))


# -- bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\x00\xff\xfe", bytes(range(256)), bytearray(b"abc"), memoryview(b"xyz")])
def test_bytes_come_back_as_bytes(raw, data):
    raw.put(data)
    task = raw.take()
    assert (task.data, type(task.data)) == (bytes(data), bytes)


@pytest.mark.parametrize("data", ["text", None, 5, ["x"]])
def test_a_tube_of_bytes_takes_nothing_else(raw, data):
    with pytest.raises(UsageError, match="payload='bytes'"):
        raw.put(data)
    assert raw.tasks() == []


def test_bytes_come_back_after_release_and_restart(bench, raw):
    raw.put(b"\x00one")
    raw.take().release(data=b"\x00two")
    assert bench.new_run().tube("raw").take().data == b"\x00two"


def test_a_task_of_bytes_has_a_result_of_data(raw):
    raw.put(b"x")
    raw.take().ack(result={"n": 1}, keep=True)
    assert raw.peek(1).result == {"n": 1}


def test_bytes_have_a_limit_too(q):
    tube = q.create_tube("small", payload="bytes", max_payload=4)
    assert tube.put(b"1234").state == State.READY
    with pytest.raises(PayloadTooLarge, match="5 bytes"):
        tube.put(b"12345")
