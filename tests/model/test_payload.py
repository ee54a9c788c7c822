"""Data to text and back."""

from __future__ import annotations

import math

import pytest

from penstock import UsageError, payload


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        0,
        -(1 << 63),
        (1 << 64) - 1,
        1.5,
        -0.0,
        1e308,
        "",
        "text \u00e9 \U0001f600",
        [],
        [1, [2, [None]]],
        {"b": 1, "a": {"": []}},
    ],
)
def test_what_is_put_comes_back_equal_and_of_the_same_type(data):
    back = payload.decode(payload.encode(data))
    assert back == data and type(back) is type(data)


def test_keys_keep_their_order():
    assert list(payload.decode(payload.encode({"z": 1, "a": 2, "m": 3}))) == ["z", "a", "m"]


@pytest.mark.parametrize(
    "data",
    [
        math.nan,
        math.inf,
        1 << 64,
        -(1 << 63) - 1,
        "\ud800",
        "a\0b",
        {1: 2},
        {"a": {"\0": 1}},
        (1, 2),
        {1, 2},
        b"bytes",
        object(),
        [[object()]],
    ],
)
def test_what_would_not_come_back_equal_is_refused(data):  # case 259
    with pytest.raises(UsageError):
        payload.encode(data)


def nested(depth):
    data = []
    for _ in range(depth - 1):
        data = [data]
    return data


def test_data_may_be_64_deep_and_not_deeper():
    assert payload.decode(payload.encode(nested(64))) == nested(64)
    with pytest.raises(UsageError, match="64 deep"):
        payload.encode(nested(65))


def test_a_bytes_tube_takes_bytes_alone():
    assert payload.decode(payload.encode(bytearray(b"\0\xff"), "bytes")) == b"\0\xff"
    with pytest.raises(UsageError, match="takes bytes"):
        payload.encode("text", "bytes")


def test_an_error_is_stored_as_text_with_the_end_of_its_trace():
    try:
        raise ValueError("bad \0 value")
    except ValueError as error:
        text = payload.error_text(error)
    assert text is not None
    assert text.startswith("ValueError: bad \ufffd value\n") and "test_payload.py" in text


def test_error_texts_are_cut():
    assert len(payload.error_text("x" * 10**6) or "") == payload.MAX_ERROR
    assert len(payload.error_text(ValueError("x" * 10**6)) or "") <= 2 * payload.MAX_ERROR + 1


def test_no_error_is_no_text():
    assert payload.error_text(None) is None
    assert payload.encode_result(None) is None
