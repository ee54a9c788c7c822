"""Clients that do not read: what is written for them takes room."""

from __future__ import annotations

import asyncio
import logging

from penstock.server.settings import Limits

log = logging.getLogger("penstock.server")


class Slowness:
    """Cuts a connection off that reads nothing for a while, although there is much for it to read.

    Much at once is no fault of the client's: it has asked for it, and may be reading as fast as it can.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, limits: Limits, address: str
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._limits = limits
        self._address = address
        self._written = 0
        """Bytes that there were for it to read when it began to be slow, and since."""
        self._read = 0
        """How many of them had been read at the last look."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """There is much for it to read."""
        self._written, self._read = self._transport.get_write_buffer_size(), 0
        self.wrote(0)

    def wrote(self, size: int) -> None:
        """There is more; if it is too much by now, look after a while whether it is read."""
        self._written += size
        if self._timer is None and self._transport.get_write_buffer_size() > self._limits.unsent:
            self._look_later()

    def _look_later(self) -> None:
        self._read = self._written - self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._limits.slow_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        left = self._transport.get_write_buffer_size()
        if left <= self._limits.unsent:
            return
        if self._written - left > self._read:
            self._look_later()
            return
        log.warning("%s does not read its answers and was cut off", self._address)
        self._transport.abort()

    def stop(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
