"""Every verb, over any store. Same order as model/ops.py; a test checks that VERBS covers ops.ALL.

A verb raises before it writes: whoever groups several verbs in one transaction can let the others stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.engines.transaction import Transaction
from penstock.engines.verbs.counters import (
    configure_lane,
    forget_history,
    get_statistics,
    list_lanes,
    mark_history,
    read_history,
)
from penstock.engines.verbs.leases import ack, bury, check_take, fail, release, take, touch
from penstock.engines.verbs.ledger import last_notes, list_ledgers, read_ledger, trim_ledger, write_ledger
from penstock.engines.verbs.putting import check_draft, load, put
from penstock.engines.verbs.revival import (
    add_retries,
    cancel,
    delete,
    dig,
    get_extent,
    kick,
    list_tasks,
    peek,
    release_all,
    restart,
    snatch,
    switch,
    watch,
)
from penstock.engines.verbs.sessions import (
    end_session,
    get_moment,
    get_state,
    identify,
    keep_alive,
    list_leases,
    open_session,
    tick,
)
from penstock.engines.verbs.staging import discard, list_staged, promote, stage
from penstock.engines.verbs.tubes import (
    adopt_table,
    alter_tube,
    create_tube,
    drop_tube,
    get_tube,
    list_tubes,
    pause_tube,
    truncate_tube,
)
from penstock.model import ops

R = TypeVar("R")


def execute(tx: Transaction, op: ops.Op[R], now: int) -> R:
    """Perform one op; sessions that are over end first."""
    tx.settle_sessions(now)
    result: R = VERBS[type(op)](tx, op, now)
    return result


Verb = Callable[[Any, Any, int], Any]
VERBS: dict[type[ops.Op[Any]], Verb] = {
    ops.CreateTube: create_tube,
    ops.GetTube: get_tube,
    ops.ListTubes: list_tubes,
    ops.AlterTube: alter_tube,
    ops.PauseTube: pause_tube,
    ops.TruncateTube: truncate_tube,
    ops.DropTube: drop_tube,
    ops.AdoptTable: adopt_table,
    ops.Put: put,
    ops.Load: load,
    ops.Take: take,
    ops.Ack: ack,
    ops.Release: release,
    ops.Bury: bury,
    ops.Fail: fail,
    ops.Touch: touch,
    ops.Peek: peek,
    ops.Watch: watch,
    ops.Kick: kick,
    ops.Dig: dig,
    ops.Delete: delete,
    ops.ReleaseAll: release_all,
    ops.Snatch: snatch,
    ops.Switch: switch,
    ops.Restart: restart,
    ops.Cancel: cancel,
    ops.AddRetries: add_retries,
    ops.ListTasks: list_tasks,
    ops.GetExtent: get_extent,
    ops.ConfigureLane: configure_lane,
    ops.ListLanes: list_lanes,
    ops.GetStatistics: get_statistics,
    ops.ReadHistory: read_history,
    ops.ForgetHistory: forget_history,
    ops.MarkHistory: mark_history,
    ops.WriteLedger: write_ledger,
    ops.ReadLedger: read_ledger,
    ops.LastNotes: last_notes,
    ops.TrimLedger: trim_ledger,
    ops.ListLedgers: list_ledgers,
    ops.Stage: stage,
    ops.Promote: promote,
    ops.Discard: discard,
    ops.ListStaged: list_staged,
    ops.OpenSession: open_session,
    ops.Identify: identify,
    ops.KeepAlive: keep_alive,
    ops.EndSession: end_session,
    ops.ListLeases: list_leases,
    ops.Tick: tick,
    ops.GetState: get_state,
    ops.GetMoment: get_moment,
}


__all__ = ["VERBS", "ack", "check_draft", "check_take", "execute"]
