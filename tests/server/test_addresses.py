"""Addresses that nobody can listen on."""

from __future__ import annotations

import pytest
from tests.support.servers import Running

from penstock.model.errors import UsageError


@pytest.mark.parametrize("door", ["port", "grpc_port", "http_port"])
def test_a_host_that_is_none_is_named(door: str) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.invalid:0 is no address to listen on"):
        Running("memory:", host="nowhere.invalid", **{"port": None, door: 0})
