"""Tubes: make, find, change, remove."""

from __future__ import annotations

from dataclasses import replace

from penstock.engines.transaction import Transaction
from penstock.model import ops
from penstock.model.errors import TubeBusy, TubeExists, UsageError
from penstock.model.state import State
from penstock.model.tube import TubeConfig


def create_tube(tx: Transaction, op: ops.CreateTube, now: int) -> TubeConfig:
    name = op.config.name
    if tx.has_tube(name):
        config = tx.tube(name).config
        if not op.if_not_exists:
            raise TubeExists(f"tube {name!r} exists already; pass if_not_exists=True to use it")
        if differences := config.differences(op.config.kind, op.config.temporary, op.given or {}):
            raise UsageError(f"tube {name!r} exists with other settings: {'; '.join(differences)}")
        return config
    tx.create_tube(op.config)
    return op.config


def get_tube(tx: Transaction, op: ops.GetTube, now: int) -> TubeConfig:
    return tx.tube(op.tube).config


def list_tubes(tx: Transaction, op: ops.ListTubes, now: int) -> list[TubeConfig]:
    return [tx.tube(name).config for name in sorted(tx.tube_names())]


def alter_tube(tx: Transaction, op: ops.AlterTube, now: int) -> TubeConfig:
    tube = tx.tube(op.tube)
    config = tube.config.altered(op.options)
    tube.settle(now)
    tx.configure_tube(config, now)
    tx.touched.add(op.tube)
    return config


def pause_tube(tx: Transaction, op: ops.PauseTube, now: int) -> TubeConfig:
    tube = tx.tube(op.tube)
    config = replace(tube.config, paused=op.paused)
    tx.configure_tube(config, now)
    tx.touched.add(op.tube)
    return config


def truncate_tube(tx: Transaction, op: ops.TruncateTube, now: int) -> int:
    tube = tx.tube(op.tube)
    tube.settle(now)
    number = tube.truncate()
    tx.emptied(op.tube)
    return number


def drop_tube(tx: Transaction, op: ops.DropTube, now: int) -> None:
    tube = tx.tube(op.tube)
    tube.settle(now)
    held, waiting = tube.counters.rows(State.TAKEN), tx.waiting(op.tube)
    if (held or waiting) and not op.force:
        tasks = "1 task is" if held == 1 else f"{held} tasks are"
        takers = "1 taker waits" if waiting == 1 else f"{waiting} takers wait"
        raise TubeBusy(
            f"tube {op.tube!r} cannot be dropped: {tasks} taken and {takers}; finish them or pass force=True"
        )
    tx.drop_tube(op.tube)
    tx.emptied(op.tube)


def adopt_table(tx: Transaction, op: ops.AdoptTable, now: int) -> TubeConfig:
    if tx.has_tube(op.asked.name):
        raise TubeExists(f"tube {op.asked.name!r} exists already; adopt the table under another name")
    return tx.adopt(op.asked, now)
