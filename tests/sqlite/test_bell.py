"""Watches of the system run out: a file is opened all the same."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock


@pytest.fixture
def no_watches() -> Iterator[None]:
    """Use up what the system grants a user, as many programs together may."""
    library = ctypes.CDLL(None, use_errno=True)
    taken = []
    while (handle := library.inotify_init1(os.O_CLOEXEC)) >= 0:
        taken.append(handle)
    yield
    for handle in taken:
        os.close(handle)


def test_a_file_is_opened_where_the_system_has_no_more_watches(tmp_path: Path, no_watches: None):
    before = len(os.listdir("/proc/self/fd"))
    with penstock.connect(tmp_path / "tasks.db") as q, penstock.connect(tmp_path / "tasks.db") as other:
        q.create_tube("jobs").put(1)
        assert other.tube("jobs").take(timeout=30).data == 1
    assert len(os.listdir("/proc/self/fd")) == before
