"""Ports that are given once: no other process of tests is given one, not even while its server is stopped."""

from __future__ import annotations

import os
import secrets
import socket
import sys

# Below the ports that the system gives to clients: a client that calls a stopped server on one of those can be
# given that very port, and so be connected to itself.
PORTS = range(15000, 30000)
_held: dict[int, int] = {}
"""Sockets whose names other processes find taken for as long as this one lives, by port."""


def free_port() -> int:
    """One that is for this process alone, whether something listens on it or not."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                _hold(port)
            except OSError:
                continue
            return port


def _hold(port: int) -> None:
    """OSError if another has it."""
    if sys.platform != "linux":  # names without a file are a thing of Linux
        return
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0port {port} of penstock's tests")
    except OSError:
        name.close()
        raise
    _held[port] = name.detach()  # nobody closes it but the end of the process


def give_back(port: int) -> None:
    """Nothing will listen on it any more; for tests that there are thousands of."""
    if port in _held:
        os.close(_held.pop(port))
