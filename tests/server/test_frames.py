"""Frames of Tarantool's protocol: what is answered to those that are right, and to those that are not."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tests.server.raw import AUTH, CALL, CALL_16, EVAL, ID, PING, SELECT, Raw, call, frame, framed, packed
from tests.support.servers import Running

from penstock.server.settings import Limits


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with Running("memory:", limits=Limits(frame=1 << 20)) as running:
        yield running


@pytest.fixture
def raw(server: Running) -> Iterator[Raw]:
    with Raw(server.server.port()) as made:
        yield made


def test_the_greeting_is_two_lines_of_64_bytes(server: Running) -> None:
    with Raw(server.server.port()) as one, Raw(server.server.port()) as other:
        first, second = one.greeting[:64], one.greeting[64:]
        assert first.startswith(b"Tarantool 2.6.0 (Binary) ")
        assert len(first.split()[3]) == 36
        assert first.endswith(b" \n")
        assert second.endswith(b" \n")
        assert len(base64.b64decode(second)) == 32
        assert second != other.greeting[64:]  # each has a salt of its own
        assert first == other.greeting[:64]


def test_an_answer_has_the_bytes_that_clients_count_on(raw: Raw) -> None:
    raw.send(frame(PING, 7))
    assert raw._take(5 + 24) == bytes.fromhex("ce00000018 8300ce00000000 01cf0000000000000007 05ce00000001 80")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9], ids=lambda size: f"{size} bytes")
def test_a_length_may_be_packed_in_any_way(raw: Raw, size: int) -> None:
    content = packed({0: PING, 1: 5})
    lengths = {1: "B", 2: "xB", 3: "xH", 5: "xI", 9: "xQ"}
    prefix = bytearray(struct.pack(f">{lengths[size]}", len(content)))
    if size > 1:
        prefix[0] = {2: 0xCC, 3: 0xCD, 5: 0xCE, 9: 0xCF}[size]
    answer = raw.ask(bytes(prefix) + content)
    assert (answer.code, answer.sync, answer.body) == (0, 5, {})


def test_a_number_is_64_bits_and_comes_back(raw: Raw) -> None:
    for sync in (0, 1, 127, 128, 1 << 32, (1 << 64) - 1):
        assert raw.ask(frame(PING, sync)).sync == sync
    assert raw.ask(framed(packed({0: PING}))).sync == 0


def test_every_answer_has_the_same_schema_version(raw: Raw) -> None:
    asked = [frame(PING, 1), call(1, "no.such"), frame(99, 1), frame(SELECT, 1, {0x10: 281, 0x12: 1, 0x20: []})]
    assert {raw.ask(content).header[5] for content in asked} == {1}


MAP = packed({0: CALL, 1: 9})
HEADER, BODY = "Invalid MsgPack - packet header", "Invalid MsgPack - packet body"
MALFORMED: dict[str, tuple[bytes, int, str, int]] = {
    "unknown type": (packed({0: 99, 1: 9}), 48, "Unknown request type 99", 9),
    "type of a later version": (packed({0: 74, 1: 9}), 48, "Unknown request type 74", 9),
    "no type": (packed({1: 9}), 48, "Unknown request type 0", 9),
    "type is text": (packed({0: "x", 1: 9}), 20, HEADER, 9),
    "nothing": (b"", 20, HEADER, 0),
    "header is an array": (packed([1, 2]), 20, HEADER, 0),
    "header is garbage": (b"\xc1\xc1\xc1", 20, HEADER, 0),
    "header is cut": (b"\x82\x00", 20, HEADER, 0),
    "negative number": (packed({0: PING, 1: -1}), 20, HEADER, 0),
    "number is text": (packed({0: PING, 1: "x"}), 20, HEADER, 0),
    "unknown key in header": (packed({0: PING, 1: 9, 0x2F: 1}), 20, HEADER, 9),
    "text key in header": (packed({0: PING, 1: 9, "x": 1}), 20, HEADER, 9),
    "body is an array": (MAP + packed([]), 20, BODY, 9),
    "body is a number": (MAP + packed(1), 20, BODY, 9),
    "body is garbage": (MAP + b"\xc1", 20, BODY, 9),
    "body is cut": (MAP + packed({0x22: "queue.state", 0x21: []})[:-1], 20, BODY, 9),
    "bytes behind the body": (MAP + packed({0x22: "queue.state", 0x21: []}) + b"\x00", 20, BODY, 9),
    "text key in body": (MAP + packed({0x22: "queue.state", 0x21: [], "x": 1}), 20, BODY, 9),
    "arguments are no array": (MAP + packed({0x22: "queue.state", 0x21: 5}), 20, BODY, 9),
    "name is binary": (MAP + packed({0x22: b"queue.state", 0x21: []}), 20, BODY, 9),
    "name is a number": (MAP + packed({0x22: 5, 0x21: []}), 20, BODY, 9),
    "an array of four thousand millions": (MAP + b"\x82\x22\xa1x\x21\xdd\xff\xff\xff\xff", 20, BODY, 9),
    "a thousand arrays of a million": (MAP + b"\x82\x22\xa1x\x21" + b"\xdd\x00\x10\x00\x00" * 1000, 20, BODY, 9),
    "very deep": (MAP + b"\x82\x22\xa1x\x21" + b"\x91" * 100_000 + b"\x90", 20, BODY, 9),
    "a key that is an array": (MAP + b"\x81\x90\x01", 20, BODY, 9),
    "no body": (MAP, 20, "Invalid MsgPack - missing request body", 9),
    "no name": (MAP + packed({0x21: []}), 69, "Missing mandatory field 'function name' in request", 9),
    "eval without text": (packed({0: EVAL, 1: 9}) + packed({0x21: []}), 69, "Missing mandatory field", 9),
    "select without limit": (packed({0: SELECT, 1: 9}) + packed({0x10: 281, 0x20: []}), 69, "'limit'", 9),
    "select without key": (packed({0: SELECT, 1: 9}) + packed({0x10: 281, 0x12: 1}), 69, "'key'", 9),
    "select without space": (packed({0: SELECT, 1: 9}) + packed({0x12: 1, 0x20: []}), 69, "'space id'", 9),
    "select of no such space": (
        packed({0: SELECT, 1: 9}) + packed({0x10: 9999, 0x12: 1, 0x20: []}),
        36,
        "Space '9999' does not exist",
        9,
    ),
    "login without a user": (packed({0: AUTH, 1: 9}) + packed({0x21: []}), 69, "'user name'", 9),
    "login without a proof": (packed({0: AUTH, 1: 9}) + packed({0x23: "u"}), 69, "'tuple'", 9),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_is_answered_and_the_connection_goes_on(raw: Raw, case: str) -> None:
    content, code, text, sync = MALFORMED[case]
    answer = raw.ask(framed(content))
    assert (answer.error, answer.sync) == (code, sync)
    assert text in answer.text
    stack = answer.body[0x52][0][0]
    assert (stack[3], stack[5]) == (answer.text, code)
    assert raw.ask(frame(PING, 3)).code == 0


def test_unknown_keys_of_a_body_are_overlooked_and_arguments_may_be_missing(raw: Raw) -> None:
    assert raw.ask(frame(CALL, 1, {0x22: "queue.state", 0x21: [], 0x7E: 1})).data == ["RUNNING"]
    assert raw.ask(frame(CALL, 1, {0x22: "queue.state"})).data == ["RUNNING"]


def test_the_keys_of_a_header_come_in_any_order_with_others_that_are_known(raw: Raw) -> None:
    header = {5: 0, 0x0A: 3, 1: 4, 0: CALL}
    assert raw.ask(framed(packed(header) + packed({0x21: [], 0x22: "queue.state"}))).data == ["RUNNING"]


@pytest.mark.parametrize("prefix", [b"\xff", b"\xa1x", b"\x90", b"\xc0", b"\xcb" + bytes(8)], ids=lambda b: b.hex())
def test_a_length_that_is_none_ends_the_connection(raw: Raw, prefix: bytes) -> None:
    raw.send(prefix + frame(PING, 1))
    answer = raw.answer()
    assert (answer.error, answer.sync, answer.text) == (20, 0, "Invalid MsgPack - packet length")
    assert raw.is_closed()


@pytest.mark.parametrize("prefix", [b"\xce\x00\x10\x00\x01", b"\xce\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8])
def test_a_frame_that_is_too_long_is_refused_by_its_length(raw: Raw, prefix: bytes) -> None:
    answer = raw.ask(prefix)  # not a byte of it was sent
    assert answer.error == 20
    assert "limit of 1048576 bytes" in answer.text
    assert raw.is_closed()


def test_a_frame_as_long_as_it_may_be_is_read(raw: Raw) -> None:
    content = packed({0: CALL, 1: 1}) + packed({0x22: "queue.state", 0x21: [b""]})
    room = (1 << 20) - len(content) - 3
    content = packed({0: CALL, 1: 1}) + packed({0x22: "queue.state", 0x21: [b"x" * room]})
    assert len(content) == 1 << 20
    assert raw.ask(framed(content)).data == ["RUNNING"]


def test_text_that_is_no_utf8_is_let_in(raw: Raw) -> None:
    body = b"\x82\x22\xabqueue.state\x21\x91\xa2\xff\xfe"
    assert raw.ask(framed(packed({0: CALL, 1: 1}) + body)).data == ["RUNNING"]
    body = b"\x82\x22\xa2\xff\xfe\x21\x90"
    answer = raw.ask(framed(packed({0: CALL, 1: 1}) + body))
    assert answer.error == 33


def test_frames_may_come_in_pieces_and_many_at_once(raw: Raw) -> None:
    content = b"".join(call(sync, "queue.state") for sync in range(300))
    for start in range(0, len(content), 7):
        raw.send(content[start : start + 7])
    assert [raw.answer().sync for _ in range(300)] == list(range(300))
    raw.send(content)
    answers = [raw.answer() for _ in range(300)]
    assert [answer.sync for answer in answers] == list(range(300))
    assert all(answer.data == ["RUNNING"] for answer in answers)


def test_what_one_connection_asks_for_in_a_row_is_performed_in_this_order(tmp_path: Path) -> None:
    with Running(str(tmp_path / "tasks.db")) as server, Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "order", "fifo")
        asked = []
        for number in range(50):
            asked += [
                call(number, "queue.tube.order:take", 0),
                call(number, "queue.tube.order:put", number),
                call(number, "queue.tube.order:take", 0),
            ]
        raw.send(b"".join(asked))
        answers = [raw.answer().data for _ in asked]
        assert answers[0::3] == [[]] * 50  # there is nothing before it is put
        assert [answer[0][2] for answer in answers[2::3]] == list(range(50))


def test_functions_that_are_called_the_old_way_answer_rows(raw: Raw) -> None:
    raw.call("queue.create_tube", "old", "fifo", {"if_not_exists": True})
    shaped: dict[str, Any] = {}
    for name, *args in (("queue.state",), ("queue.tube.old:put", "x"), ("queue.tube.old:kick", 1), ("queue.tube",)):
        shaped[name] = raw.ask(call(1, name, *args, kind=CALL_16)).data
    assert shaped["queue.state"] == [["RUNNING"]]
    assert shaped["queue.tube.old:put"][0][1:] == ["r", "x"]
    assert shaped["queue.tube.old:kick"] == [[0]]
    assert shaped["queue.tube"] == [["old"]]
    assert raw.ask(call(1, "queue.tube.old:truncate", kind=CALL_16)).data == []
    raw.call("queue.tube.old:drop")


def test_the_schema_is_empty_and_later_features_are_none(raw: Raw) -> None:
    for space in (277, 280, 281, 288, 289):
        asked = {0x10: space, 0x11: 0, 0x14: 2, 0x13: 0, 0x12: 4294967295, 0x20: []}
        assert raw.ask(frame(SELECT, 1, asked)).data == []
    answer = raw.ask(frame(ID, 1, {0x54: 6, 0x55: [0, 1, 2, 3]}))
    assert answer.body[0x55] == []


def test_without_logins_whoever_logs_in_is_let_in(raw: Raw) -> None:
    assert raw.ask(frame(AUTH, 1, {0x23: "guest", 0x21: []})).code == 0
    assert raw.ask(frame(AUTH, 1, {0x23: "anybody", 0x21: ["chap-sha1", bytes(20)]})).code == 0
    assert raw.ask(frame(PING, 1)).code == 0


def test_the_connector_of_python_gets_along(server: Running) -> None:
    connection = tarantool.Connection("127.0.0.1", server.server.port(), user="u", password="p")
    try:
        assert connection.ping() >= 0
        assert list(connection.call("queue.state")) == ["RUNNING"]
        with pytest.raises(tarantool.DatabaseError) as caught:
            connection.call("no.such.function")
        assert caught.value.args == (33, "Procedure 'no.such.function' is not defined")
        with pytest.raises(tarantool.DatabaseError, match="Space '512' does not exist"):
            connection.select(512, 1)
    finally:
        connection.close()
