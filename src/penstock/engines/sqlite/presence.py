"""Who has a store open: two bytes of a lock file.

Byte 0 is held while a process opens or closes the store, byte 1 is shared by all that have it open. Who finds
nobody on byte 1 begins a run. The locks are POSIX record locks: the system drops them at any death of the
process, and a forked child does not inherit them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Presence:
    """This process's place among those that have a store open. One object per process and file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def _gate(self) -> Iterator[None]:
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, 0)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, 0)

    @contextmanager
    def arriving(self) -> Iterator[bool]:
        """Hold the gate; True if nobody else has the store open. Afterwards this process counts as present."""
        with self._gate():
            alone = self._try_alone()
            yield alone
            fcntl.lockf(self._fd, fcntl.LOCK_SH, 1, 1)

    @contextmanager
    def leaving(self) -> Iterator[bool]:
        """Hold the gate; True if this process is the last one. Afterwards it is no longer present."""
        with self._gate():
            yield self._try_alone()
        os.close(self._fd)

    def vanish(self) -> None:
        """Stop being present without a word, as a killed process does."""
        os.close(self._fd)

    def _try_alone(self) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        except OSError:
            return False
        return True
