"""What may be put, and how."""

from __future__ import annotations

import decimal
import uuid

import pytest
from tests.server.facade.kinds import KINDS, TIMED
from tests.worker.bench import until


@pytest.mark.parametrize(
    "data",
    [None, True, 0, -5, 2**64 - 1, -(2**63), 1.5, "", "é\u20ac", [], {}, [1, None, {"x": []}], {"a": {"b": None}}],
    ids=repr,
)
def test_data_comes_back_as_it_was_put(client, data):
    number = client.call("queue.tube.fifo:put", data)[0][0]
    for answer in (client.call("queue.tube.fifo:take", 0), client.call("queue.tube.fifo:ack", number)):
        assert answer[0][2] == data and type(answer[0][2]) is type(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({1: 2}, "keys in data must be text, got 1"),
        ({"a": {None: 2}}, "keys in data must be text, got None"),
        (b"ab", 'a tube with payload="bytes" takes bytes as they are'),
        ([b"ab"], "not bytes: b'ab'"),
        (float("nan"), "numbers in data must be finite"),
        ("a\0b", "NUL"),
        (uuid.UUID(int=5), "data may hold None, bool, int"),
        ([decimal.Decimal("1.5")], "data may hold None, bool, int"),
    ],
    ids=repr,
)
def test_what_json_cannot_say_is_refused_by_name(client, data, words):
    code, text = client.refused("queue.tube.fifo:put", data)
    assert code == 32 and words in text
    assert client.call("queue.statistics", "fifo")[0]["tasks"]["total"] == 0


def test_strings_that_are_no_text_are_refused_or_kept_as_bytes(client, connect):
    raw = connect(encoding=None)
    code, text = raw.refused("queue.tube.fifo:put", {"a": b"\xff\xfe"})
    assert code == 32 and "must be UTF-8, got b'\\xff\\xfe'" in text and 'payload="bytes"' in text
    client.call("queue.create_tube", "blobs", "fifo", {"payload": "bytes"})
    first = raw.call("queue.tube.blobs:put", b"\xff\x00")[0]
    second = client.call("queue.tube.blobs:put", "text")[0]
    assert (first[2], second[2]) == (b"\xff\x00", b"text")
    assert client.call("queue.tube.blobs:take", 0) == [[first[0], "t", b"\xff\x00"]]
    assert client.call("queue.tube.blobs:ack", first[0]) == [[first[0], "-", b"\xff\x00"]]
    assert "takes bytes, got dict" in client.refused("queue.tube.blobs:put", {})[1]


def test_data_that_is_too_large_is_refused(client):
    code, text = client.refused("queue.tube.fifo:put", "x" * (1 << 20))
    assert code == 110 and "tuple is too large" in text
    assert client.call("queue.tube.fifo:put", "x" * 1_000_000)[0][1] == "r"


@pytest.mark.parametrize(("kind", "field"), [("fifo", 3), ("fifottl", 8), ("utube", 4), ("utubettl", 9)])
def test_put_needs_data(client, kind, field):
    text = f"Tuple field {field} required by space format is missing"
    assert client.refused(f"queue.tube.{kind}:put") == (39, text)


@pytest.mark.parametrize("kind", TIMED)
def test_options_of_put(client, clock, kind):
    tube = f"queue.tube.{kind}:"
    client.call(tube + "put", "late", {"pri": 5, "utube": "a"})
    client.call(tube + "put", "early", {"pri": 1.0, "utube": "b"})
    client.call(tube + "put", "first", {"pri": -1, "utube": 7})
    short = client.call(tube + "put", "short", {"ttl": 2, "pri": 3, "utube": "c"})[0]
    delayed = client.call(tube + "put", "delayed", {"delay": 1.5, "ttl": 10, "utube": "d"})[0]
    assert (short[1], delayed[1]) == ("r", "~")
    assert [client.call(tube + "take", 0)[0][2] for _ in range(2)] == ["first", "early"]
    clock.advance(2)
    assert client.refused(tube + "peek", short[0]) == (32, f"Task {short[0]} not found")
    assert client.call(tube + "take", 0) == [[delayed[0], "t", "delayed"]]
    assert client.call(tube + "take", 0)[0][2] == "late"


def test_kinds_without_times_overlook_options_of_times(client):  # case 6
    options = {"ttl": 0, "ttr": 1, "pri": "x", "delay": 5}
    for tube in ("queue.tube.fifo:", "queue.tube.utube:"):
        number = client.call(tube + "put", "x", options)[0][0]
        assert client.call(tube + "take", 0) == [[number, "t", "x"]]


@pytest.mark.parametrize("options", [None, [], {}, {"ttl": None, "pri": None}, {"nosuch": 1}], ids=repr)
def test_no_options_come_in_many_forms(client, options):
    for kind in KINDS:
        number = client.call(f"queue.tube.{kind}:put", "x", options, "more", 5)[0][0]
        client.call(f"queue.tube.{kind}:take", 0)
        assert client.call(f"queue.tube.{kind}:release", number, options)[0][1] == "r"


def test_bad_options_are_refused_and_nothing_is_put(client):
    put = "queue.tube.fifottl:put"
    assert client.refused(put, "x", {"pri": 1.5})[0] == 23
    assert client.refused(put, "x", {"pri": "1"})[0] == 23
    for options in ({"ttl": "abc"}, {"ttr": "5"}, {"delay": []}, {"ttl": True}):
        code, text = client.refused(put, "x", options)
        assert code == 32 and text.startswith("attempt to compare"), options
    assert "NaN" in client.refused(put, "x", {"ttl": float("nan")})[1]
    assert "options must be a map" in client.refused(put, "x", "ttl")[1]
    assert "utube must be text" in client.refused("queue.tube.utube:put", "x", {"utube": {}})[1]
    assert client.call("queue.statistics", "fifottl")[0]["tasks"]["total"] == 0


def test_a_negative_ttl_is_none_at_all_and_a_huge_one_is_for_ever(client, clock):
    client.call("queue.tube.fifottl:put", "gone", {"ttl": -1})
    number = client.call("queue.tube.fifottl:put", "stays", {"ttl": 1e18})[0][0]
    clock.advance(1e8)
    assert client.call("queue.tube.fifottl:take", 0) == [[number, "t", "stays"]]


def test_a_full_tube_answers_nil_at_once_or_after_the_timeout(server, client, connect, clock):  # cases 91, 96
    client.call("queue.create_tube", "lim", "limfifottl", {"capacity": 3})
    tube = "queue.tube.lim:"
    numbers = [client.call(tube + "put", n)[0][0] for n in range(3)]
    assert client.call(tube + "put", 3) == [None]
    assert client.call(tube + "put", 3, {"timeout": 0}) == [None]
    late = connect().later(tube + "put", 3, {"timeout": 0.1})
    until(lambda: server.server.core.engine.store.waiters == 1)
    clock.advance(0.1)
    assert late.result() == [None]
    assert client.call("queue.statistics", "lim")[0]["tasks"]["total"] == 3
    patient = connect().later(tube + "put", 3, {"timeout": 60})
    until(lambda: server.server.core.engine.store.waiters == 1)
    client.call(tube + "delete", numbers[0])
    assert patient.result()[0][1:] == ["r", 3]
