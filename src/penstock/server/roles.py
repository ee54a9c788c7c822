"""Which role an op needs: one table over all ops."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from penstock.model import ops


class Role(StrEnum):
    """What a login may do on a tube."""

    READ = "read"
    PUT = "put"
    TAKE = "take"
    ADMIN = "admin"
    """Everything, so the other three as well."""


class Need(NamedTuple):
    """What somebody must be to do something."""

    roles: tuple[Role, ...]
    """One of these is enough; none: every login may."""
    verb: str
    anywhere: bool = False
    """True if the role on some tube will do, because the op is about none."""


READ, PUT, TAKE, ADMIN = Role
ANY = tuple(Role)
NEEDS: dict[type[ops.Op[Any]], Need] = {
    ops.CreateTube: Need((ADMIN,), "create"),
    ops.GetTube: Need(ANY, "open"),
    ops.ListTubes: Need((READ,), "list tubes"),
    ops.AlterTube: Need((ADMIN,), "alter"),
    ops.PauseTube: Need((ADMIN,), "pause"),
    ops.TruncateTube: Need((ADMIN,), "truncate"),
    ops.DropTube: Need((ADMIN,), "drop"),
    ops.AdoptTable: Need((ADMIN,), "adopt"),  # any table of the database may become a tube so, hence all tubes
    ops.Put: Need((PUT,), "put"),
    ops.Load: Need((PUT,), "load"),
    ops.Take: Need((TAKE,), "take"),
    ops.Ack: Need((TAKE,), "ack"),
    ops.Release: Need((TAKE,), "release"),
    ops.Bury: Need((TAKE,), "bury"),
    ops.Fail: Need((TAKE,), "fail"),
    ops.Touch: Need((TAKE,), "touch"),
    ops.Peek: Need((READ,), "peek"),
    ops.Watch: Need((READ,), "wait"),
    ops.Kick: Need((ADMIN,), "kick"),
    ops.Dig: Need((ADMIN,), "dig"),
    ops.Delete: Need((ADMIN,), "delete"),
    ops.ReleaseAll: Need((ADMIN,), "release_all"),
    ops.Snatch: Need((ADMIN,), "snatch"),
    ops.Switch: Need((ADMIN,), "switch"),
    ops.Restart: Need((ADMIN,), "restart"),
    ops.Cancel: Need((PUT,), "cancel"),
    ops.AddRetries: Need((ADMIN,), "add_retries"),
    ops.ListTasks: Need((READ,), "list tasks"),
    ops.GetExtent: Need((READ,), "list tasks"),
    ops.ConfigureLane: Need((ADMIN,), "configure a lane"),
    ops.ListLanes: Need((READ,), "list lanes"),
    ops.GetStatistics: Need((READ,), "read statistics"),
    ops.ReadHistory: Need((READ,), "read history"),
    ops.ForgetHistory: Need((ADMIN,), "forget history"),
    ops.MarkHistory: Need((READ,), "read history"),
    # Ledgers are notes that jobs and streams keep about their own work; they belong to no tube.
    ops.WriteLedger: Need((PUT, TAKE), "write a ledger", anywhere=True),
    ops.ReadLedger: Need((READ, PUT, TAKE), "read a ledger", anywhere=True),
    ops.LastNotes: Need((READ, PUT, TAKE), "read a ledger", anywhere=True),
    ops.TrimLedger: Need((PUT, TAKE), "trim a ledger", anywhere=True),
    ops.ListLedgers: Need((READ,), "list ledgers"),
    ops.Stage: Need((PUT,), "stage"),
    ops.Promote: Need((PUT,), "promote"),
    ops.Discard: Need((PUT,), "discard a job", anywhere=True),
    ops.ListStaged: Need((ADMIN,), "list jobs"),
    # Whoever knows the uuid of a session may use it; the doors see to it that a connection uses its own.
    ops.OpenSession: Need((), "open a session"),
    ops.Identify: Need((), "identify"),
    ops.KeepAlive: Need((), "keep a session"),
    ops.EndSession: Need((), "end a session"),
    ops.ListLeases: Need((), "list leases"),
    # What is due happens anyway, and time and state are nobody's secret.
    ops.Tick: Need((), "tick"),
    ops.GetState: Need((), "read the state"),
    ops.GetMoment: Need((), "read the time"),
}
"""Ops that name no tube, or None for all, need the role on every tube."""
FACADE: dict[type[ops.Op[Any]], Need] = {
    ops.Delete: Need((TAKE, ADMIN), "delete"),
    ops.Kick: Need((TAKE, ADMIN), "kick"),
    ops.Snatch: Need((TAKE, ADMIN), "bury"),  # what another one holds
}
"""What differs for clients of tarantool/queue, where who may take may also do these."""

BY_ID: dict[type[ops.Op[Any]], Need] = {
    ops.Bury: Need((ADMIN,), "bury what its session does not hold"),
    ops.Touch: Need((ADMIN,), "touch what its session does not hold"),
}
"""Ops that change tasks that nobody holds as well, if they name no lease. [ADR 6]"""

DISCARD = Need((PUT,), "discard a job")
"""On the tube that the job stages for; whoever has it on every tube need not be asked which."""
LISTEN = Need((READ,), "listen")
"""To be told of every change of a tube's tasks, with their data."""
TRANSACT = Need((PUT, TAKE), "begin a transaction", anywhere=True)
"""While one is open nobody else writes to a file, so it is not for those who write nothing."""


def need(op: type[ops.Op[Any]], facade: bool = False) -> Need:
    """What somebody must be for an op of this type."""
    return (FACADE.get(op) if facade else None) or NEEDS[op]


def tube_of(op: ops.Op[Any]) -> str | None:
    """The tube that an op is about; None: all of them, or none."""
    if isinstance(op, ops.CreateTube):
        return op.config.name
    tube: str | None = getattr(op, "tube", None)
    return tube
