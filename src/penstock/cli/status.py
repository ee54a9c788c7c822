"""Exit statuses that no error of the library has; those are in penstock.model.errors, 64 and more."""

from __future__ import annotations

NOTHING_THERE = 1
"""The command did what it should and there was nothing: no task to take, none that matches."""
INTERRUPTED = 130
TERMINATED = 143
PIPE_CLOSED = 141


class Terminated(KeyboardInterrupt):
    """SIGTERM came; what is held goes back as with Ctrl-C."""
