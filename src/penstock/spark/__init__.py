"""Penstock on Spark: bulk loading, reading, streaming and fleets of workers.

Needs the extra: pip install 'penstock[spark]', and Java 17 or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.fleets import Counts, Fleet, fleet
    from penstock.spark.outcomes import attempt, settle
    from penstock.spark.registration import register

_HOMES = {
    "attempt": "penstock.spark.outcomes",
    "Counts": "penstock.spark.fleets",
    "Fleet": "penstock.spark.fleets",
    "fleet": "penstock.spark.fleets",
    "register": "penstock.spark.registration",
    "settle": "penstock.spark.outcomes",
}


def __getattr__(name: str) -> Any:
    """Each part is loaded when it is used: a worker on an executor needs no more than its own."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


__all__ = ["attempt", "Counts", "Fleet", "fleet", "register", "settle"]
