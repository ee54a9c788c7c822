"""Watches of the system run out: a file is opened all the same."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from tests.crash.children import Wire, family

import penstock


def open_without_watches(wire: Wire, path: str) -> None:
    """Use up what the system grants a user, as many programs together may, and open a file."""
    library = ctypes.CDLL(None, use_errno=True)
    while library.inotify_init1(os.O_CLOEXEC) >= 0:
        pass
    before = len(os.listdir("/proc/self/fd"))
    with penstock.connect(path) as q, penstock.connect(path) as other:
        q.create_tube("jobs").put(1)
        wire.say("took", other.tube("jobs").take(timeout=60).data)
    wire.say("leaves open", len(os.listdir("/proc/self/fd")) - before)


def test_a_file_is_opened_where_the_system_has_no_more_watches(tmp_path: Path):
    with family() as children:  # in a process of its own nobody else opens and closes files
        child = children.start(open_without_watches, str(tmp_path / "tasks.db"))
        assert child.line() == ["took", 1]
        assert child.line() == ["leaves open", 0]
        assert child.exit() == 0
