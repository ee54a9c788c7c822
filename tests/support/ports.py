"""Ports for servers of tests."""

from __future__ import annotations

import secrets
import socket
from typing import Self

# Below the ports that the system gives to clients: a client that calls a stopped server on one of those can be
# given that very port, and so be connected to itself.
PORTS = range(15000, 30000)


class HeldPort:
    """A port of 127.0.0.1 that stays a test's own while no server listens on it: who calls then is refused."""

    def __init__(self) -> None:
        while True:
            self.number = secrets.choice(PORTS)
            self._socket = socket.socket()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                with socket.socket() as probe:  # one that shares is not told that another holds it
                    probe.bind(("127.0.0.1", self.number))
                self._socket.bind(("127.0.0.1", self.number))
            except OSError:
                self._socket.close()
                continue
            return

    def __str__(self) -> str:
        return str(self.number)

    def listening(self) -> socket.socket:
        """A server's socket on it."""
        return socket.create_server(("127.0.0.1", self.number))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
