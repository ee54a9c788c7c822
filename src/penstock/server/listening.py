"""Sockets to listen on."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

from penstock.model.errors import UsageError

BACKLOG = 4096
"""Connections that wait to be accepted; the kernel has a limit of its own."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The family of an address to listen on, and the address as sockets know it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, OverflowError) as error:
        raise UsageError(f"{host}:{port} is no address to listen on: {error}") from None
    return found[0], found[4]


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; 0 is a free port."""
    family, address = resolve(host, port)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise UsageError(
            f"nobody can listen on {host}:{port} ({error.strerror}); another port, or 0 for a free one, or "
            "--takeover if a server of this store has it"
        ) from None
    return made


FIRST = 3
"""The number of the first descriptor that systemd hands over."""


def activated() -> dict[str, socket.socket]:
    """Sockets that systemd has opened for this process, by FileDescriptorName=, which is port or http_port."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    number = int(os.environ.get("LISTEN_FDS", "0"))
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    found = dict[str, socket.socket]()
    for index in range(number):
        name = names[index] if index < len(names) and names[index] in ("port", "http_port") else "port"
        if name in found:
            raise UsageError("systemd has handed over two sockets for one door: FileDescriptorName= port and http_port")
        os.set_inheritable(FIRST + index, False)
        found[name] = socket.socket(fileno=FIRST + index)
        found[name].setblocking(False)
    return found
