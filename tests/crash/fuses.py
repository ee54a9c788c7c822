"""Points at which a process can be made to kill itself: before any statement, or before any write to a file.

Nothing of the product is changed: statements are seen by apsw's execution trace, writes by a VFS on top of
the real one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import apsw


class Fuse:
    """Counts points once it is lit; at the chosen one the process is gone."""

    def __init__(self, point: int) -> None:
        self._point = point
        self.count = 0
        self.lit = False

    def burn(self) -> None:
        if self.lit:
            self.count += 1
            if self.count == self._point:
                os.kill(os.getpid(), signal.SIGKILL)


def before_statements(fuse: Fuse) -> None:
    """Every statement of every connection opened from now on is a point."""

    def trace(cursor: Any, sql: str, values: Any) -> bool:
        fuse.burn()
        return True

    apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(trace))


class _File(apsw.VFSFile):
    def __init__(self, fuse: Fuse, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._fuse = fuse

    def xWrite(self, data: Any, offset: int) -> None:
        self._fuse.burn()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._fuse.burn()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        self._fuse.burn()
        super().xTruncate(size)


class _Files(apsw.VFS):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__("penstock-fuse", "unix", makedefault=True)
        self._fuse = fuse

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._fuse, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self._fuse.burn()
        super().xDelete(name, sync)


_kept: list[Any] = []


def before_writes(fuse: Fuse) -> None:
    """Every write, sync, truncation and removal of a file is a point."""
    _kept.append(_Files(fuse))


LEVELS: dict[str, Callable[[Fuse], None]] = {"statement": before_statements, "write": before_writes}
