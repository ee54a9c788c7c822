"""What to say when a package of the extra `metrics` is not installed."""

from __future__ import annotations

from penstock.model.errors import UsageError


def missing(what: str, error: ImportError) -> UsageError:
    """Why a module of metrics cannot be used, and what to do."""
    return UsageError(f"{what} ({error}): pip install 'penstock[metrics]'")
