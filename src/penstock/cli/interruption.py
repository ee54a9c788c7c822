"""Ctrl-C and SIGTERM, which must not cut in two what belongs together."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from penstock.cli.status import Terminated

RAISED: dict[int, type[KeyboardInterrupt]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


class Signals:
    """As a context, both signals raise; those that come inside of held() do when it is over."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._held = False
        self._told: type[KeyboardInterrupt] | None = None

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._tell) for number in RAISED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        # Who asks twice means it.
        if self._told is not None or not self._held:
            raise RAISED[number]
        self._told = RAISED[number]

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done in here is done to its end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._told is not None:
            raise self._told
