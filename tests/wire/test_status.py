"""Errors over gRPC that are of no class in the tree itself."""

from __future__ import annotations

import grpc
import pytest

from penstock.model import errors, staging
from penstock.wire import codec, status
from penstock.wire._generated import penstock_pb2 as pb


class Mine(errors.LeaseLost):
    """Somebody's own."""

    code = "mine"


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (staging.Lost("gone", "not_done"), errors.EngineUnavailable, grpc.StatusCode.UNAVAILABLE),
        (Mine("over", "taken"), errors.LeaseLost, grpc.StatusCode.ABORTED),
        (status.NotKnown("who?"), errors.AccessDenied, grpc.StatusCode.UNAUTHENTICATED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_has_the_status_of_what_it_extends(error, kind, expected):
    code, text, trailing = status.trailer(error)
    assert code is expected
    assert text == str(error)
    back = status.error(pb.Error.FromString(dict(trailing)["penstock-error-bin"]))
    assert type(back) is kind
    assert getattr(back, kind.detail, None) == getattr(error, kind.detail, None)


def test_a_class_without_a_code_of_its_own_is_sent_as_what_it_extends():
    back = codec.decode_error(codec.encode_error(Mine("over", "taken")))
    assert (type(back), str(back), back.now) == (errors.LeaseLost, "over", "taken")


@pytest.mark.parametrize("cls", errors.ALL, ids=lambda cls: cls.code)
def test_what_an_error_says_more_is_an_attribute_of_it(cls):
    if cls.detail:
        assert getattr(cls("text", "more"), cls.detail) == "more"
    assert errors.BY_CODE[cls.code] is cls
