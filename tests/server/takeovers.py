"""What tests of takeovers ask of a server."""

from __future__ import annotations

import tarantool
from tests.support.serving import Serving


def connected(server: Serving) -> tarantool.Connection:
    return tarantool.Connection("127.0.0.1", server.port, reconnect_delay=0.01)


def serves(server: Serving) -> bool:
    """Whether somebody new can connect and is served."""
    client = connected(server)
    try:
        return bool(client.call("queue.state").data == ["RUNNING"])
    finally:
        client.close()
