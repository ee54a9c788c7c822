"""Counters for Graphite, pushed each second as lines of `name value time`, over TCP or UDP."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from penstock.metrics.reading import Reader
from penstock.model.duration import SECOND, Seconds, length
from penstock.model.errors import UsageError, shown
from penstock.worker import Tally, Worker

log = logging.getLogger("penstock.metrics")
DATAGRAM = 1400
"""Bytes that fit into one packet on nearly every network."""
PATIENCE = 5.0
"""Seconds that an endpoint may take to connect or to read."""


class Pusher:
    """Sends the counters of a queue, and of a worker if it is given, again and again until it is closed.

    A thread of its own does it. An endpoint that is down, slow or restarted costs some lines and nothing else: it is
    tried again at each interval.

    address: host:port
    transport: tcp or udp
    prefix: what all names begin with
    interval: seconds from one push to the next

    >>> import penstock
    >>> with Pusher(penstock.connect("memory:"), "127.0.0.1:2003", transport="udp") as pusher:
    ...     pusher
    <Pusher to 127.0.0.1:2003 over udp>
    """

    def __init__(
        self,
        queue: Any,
        address: str,
        transport: str = "tcp",
        prefix: str = "penstock",
        interval: Seconds = 1.0,
        worker: Worker | None = None,
    ) -> None:
        if transport not in WAYS:
            raise UsageError(f"transport must be 'tcp' or 'udp', got {shown(transport)}")
        if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", prefix):
            raise UsageError(f"prefix must be names of letters, digits, _ and - with dots between, got {shown(prefix)}")
        self._interval = (length(interval, "interval") or 0) / SECOND
        if self._interval <= 0:
            raise UsageError(f"interval must be above 0 seconds, got {shown(interval)}")
        self._shown = f"{address} over {transport}"
        self._way = WAYS[transport](*_parsed(address))
        self._prefix = prefix
        self._reader = Reader(queue, oldest=False)
        self._worker = worker
        self._in_trouble = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock graphite", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Pusher to {self._shown}>"

    def __enter__(self) -> Pusher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send no more. Closing twice does nothing."""
        self._closing.set()
        self._thread.join(2 * PATIENCE)

    def _work(self) -> None:
        due = time.monotonic()
        while not self._closing.wait(max(0.0, due - time.monotonic())):
            try:
                self._push()
            except Exception:
                log.exception("counters could not be pushed to %s", self._shown)
            # One that was missed is not made up for.
            due = max(due + self._interval, time.monotonic())
        self._way.close()

    def _push(self) -> None:
        counters = list(self._counters())
        now = int(time.time())
        lines = [f"{name} {value} {now}\n".encode() for name, value in counters]
        try:
            self._way.send(lines)
        except OSError as error:
            self._way.close()
            if not self._in_trouble:
                log.warning("Graphite at %s cannot be reached, trying again: %s", self._shown, error)
            self._in_trouble = True
        else:
            if self._in_trouble:
                log.info("Graphite at %s is reached again", self._shown)
            self._in_trouble = False

    def _counters(self) -> Iterator[tuple[str, int | float]]:
        if self._worker is not None:
            yield from _of_worker(self._prefix, self._worker.tally)
        for tube, statistics in (self._reader.read(max(1.0, self._interval)).statistics or {}).items():
            stem = f"{self._prefix}.{named(tube)}"
            for state, number in statistics.tasks.items():
                yield f"{stem}.{state}", number
            for event, number in statistics.calls.items():
                yield f"{stem}.calls.{event}", number


def _of_worker(prefix: str, tally: Tally) -> Iterator[tuple[str, int | float]]:
    for tube, runs in dict(tally.tubes).items():
        stem = f"{prefix}.{named(tube)}.worker"
        yield f"{stem}.busy", runs.busy
        yield f"{stem}.ok", runs.ok
        yield f"{stem}.trouble", runs.trouble
        yield f"{stem}.seconds", round(runs.seconds, 6)


def named(tube: str) -> str:
    """A tube's name as one part of a name in Graphite, where dots are between parts.

    >>> named("shop.mails")
    'shop_mails'
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", tube)


def _parsed(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.path:
        raise UsageError(f"Graphite's address is host:port, such as 127.0.0.1:2003, got {shown(address)}")
    return host, port


class Tcp:
    """One connection, made anew when it is gone."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def send(self, lines: list[bytes]) -> None:
        if self._socket is not None and _is_over(self._socket):
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(self._address, PATIENCE)
        self._socket.sendall(b"".join(lines))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_over(connection: socket.socket) -> bool:
    """Whether the other side has closed; a send alone would notice it one push too late."""
    connection.setblocking(False)
    try:
        return connection.recv(1024) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(PATIENCE)


class Udp:
    """Packets of whole lines."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def send(self, lines: list[bytes]) -> None:
        if self._socket is None:
            self._socket = self._connected()
        for packet in packets(lines):
            try:
                self._socket.send(packet)
            except ConnectionRefusedError:
                # Told about an earlier packet, maybe of before a restart: this one has not been sent yet.
                self._socket.send(packet)

    def _connected(self) -> socket.socket:
        found = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        with contextlib.ExitStack() as stack:
            stack.callback(made.close)
            made.settimeout(PATIENCE)
            made.connect(address)
            stack.pop_all()
        return made

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def packets(lines: list[bytes]) -> Iterator[bytes]:
    """Lines in as few packets as they fit into.

    >>> [len(packet) for packet in packets([b"x" * 1000, b"y" * 300, b"z" * 200])]
    [1300, 200]
    """
    packet = b""
    for line in lines:
        if packet and len(packet) + len(line) > DATAGRAM:
            yield packet
            packet = b""
        packet += line
    if packet:
        yield packet


WAYS: dict[str, type[Tcp] | type[Udp]] = {"tcp": Tcp, "udp": Udp}
