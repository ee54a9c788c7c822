"""The columns of each feed, for Spark and for Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.engines import arrow as batches
from penstock.engines.scan import EVENTS, TASKS
from penstock.model.errors import UsageError

RESULTS = {
    name: TASKS[name]
    for name in (
        *("id", "state", "reason", "lane", "key", "attempt", "created_at", "done_at", "data", "result", "error"),
    )
}
CLAIMS = {**TASKS, "claim": "bigint", "token": "bigint"}
COLUMNS = {"tasks": TASKS, "events": EVENTS, "results": RESULTS, "claims": CLAIMS}
"""
tasks: a snapshot of a tube. `data` is JSON text, `body` the data of tubes with payload="bytes"; one of them is null.
events: every state change of tubes with history=True, in the order of their commits.
results: tasks that ended and are kept, and those that are buried.
claims: tasks as a stream has leased them; `claim` is the number by which an outcome names a row.
"""


def chosen(feed: str, columns: Sequence[str] | None) -> dict[str, str]:
    """The columns that are asked for, all if None."""
    known = COLUMNS[feed]
    for name in columns or ():
        if name not in known:
            raise UsageError(f"feed {feed!r} has no column {name!r}; it has {', '.join(known)}")
    return known if not columns else {name: known[name] for name in columns}


def ddl(feed: str, columns: Sequence[str] | None = None) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"{name} {kind}" for name, kind in chosen(feed, columns).items())


def arrow(feed: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The same for Arrow: every batch is made with this one, because Spark compares only the first."""
    return batches.schema(chosen(feed, columns))
