"""Staged rows: stored, but no tasks yet. A job stages parts from many processes and makes tasks of them at once."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import EngineUnavailable, UsageError


class Promoted(NamedTuple):
    """What became of the rows of a job."""

    new: int
    existing: int = 0
    """Rows whose key a live task had: nothing was stored for them."""
    replaced: int = 0
    restarted: int = 0


class StagedJob(NamedTuple):
    """A job that has staged rows, and not yet discarded them."""

    job: str
    tube: str
    parts: int
    at: int
    """When it staged last."""


class Lost(EngineUnavailable):
    """A part is not as it was staged. It will not be when it is asked for again either."""


def check_tube(job: str, tube: str, staged_for: str | None) -> None:
    """A job is of the tube that it staged for first: who may put there has no say elsewhere."""
    if staged_for is not None and staged_for != tube:
        raise UsageError(f"job {job!r} has staged rows for another tube than {tube!r}")


def lost(job: str, part: str, expected: int, found: int) -> Lost:
    """The refusal of a part that is not as it was staged."""
    return Lost(
        f"part {part!r} of job {job!r} has {found} staged rows, and {expected} were staged: they were discarded, or "
        "lost in a crash of the store; nothing was put, so run the job again"
    )
