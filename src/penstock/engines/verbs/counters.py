"""Lanes, statistics, history."""

from __future__ import annotations

from penstock.engines.transaction import Transaction
from penstock.engines.verbs.checks import missing
from penstock.model import ops
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.ledger import FORGOTTEN, MOST
from penstock.model.stats import Statistics
from penstock.model.task import HistoryRow


def configure_lane(tx: Transaction, op: ops.ConfigureLane, now: int) -> LaneLimits:
    tube = tx.tube(op.tube)
    if not tube.config.features.lanes:
        raise missing(tube.config, "lane", "lanes")
    tube.settle(now)
    limits = tube.configure_lane(op.lane, op.options, now)
    tx.touched.add(op.tube)
    return limits


def list_lanes(tx: Transaction, op: ops.ListLanes, now: int) -> list[LaneInfo]:
    tube = tx.tube(op.tube)
    if not tube.config.features.lanes:
        raise missing(tube.config, "lanes", "lanes")
    tube.settle(now)
    return tube.lanes(op.limit, op.after, now)


def get_statistics(tx: Transaction, op: ops.GetStatistics, now: int) -> dict[str, Statistics]:
    names = sorted(tx.tube_names()) if op.tube is None else [op.tube]
    result = {}
    for name in names:
        tube = tx.tube(name)
        tube.settle(now)
        result[name] = tube.counters.statistics()
    return result


def read_history(tx: Transaction, op: ops.ReadHistory, now: int) -> list[HistoryRow]:
    return tx.history(op.tube, op.after, op.limit, MOST if op.upto is None else op.upto)


def forget_history(tx: Transaction, op: ops.ForgetHistory, now: int) -> int:
    last = tx.marks(None, 0, op.upto, 0, 1)
    if not last:
        return 0
    # Whoever reads on from before this has missed something, and can be told.
    if tx.written(FORGOTTEN, last[0], last[0]) is None:
        tx.write_notes(FORGOTTEN, last[0], ("",))
        tx.trim_notes(FORGOTTEN, last[0] - 1)
    return tx.forget_history(op.upto)


def mark_history(tx: Transaction, op: ops.MarkHistory, now: int) -> list[int]:
    return tx.marks(op.tube, op.after, MOST if op.upto is None else op.upto, op.every, op.limit)
