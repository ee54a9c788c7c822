"""What verbs ask before they change anything: does the option fit, is the task there, whose is it?"""

from __future__ import annotations

from typing import Any

from penstock.engines.transaction import Transaction, TubeStore
from penstock.model import ops
from penstock.model.duration import Delay
from penstock.model.errors import LeaseLost, NotOwner, NotTaken, TaskNotFound, UsageError
from penstock.model.session import Session
from penstock.model.state import State
from penstock.model.task import Record, TaskId
from penstock.model.tube import TubeConfig, lacks


def missing(config: TubeConfig, option: str, feature: str) -> UsageError:
    return lacks(option, feature, f"tube {config.name!r} of kind {config.kind!r}")


def check_delay(config: TubeConfig, delay: Delay | None) -> None:
    if delay is not None and not config.features.delay:
        raise missing(config, "delay", "delay")


def check_ttl(config: TubeConfig, ttl: int | None) -> None:
    if ttl is not None and not config.features.ttl:
        raise missing(config, "ttl", "ttl")


def not_found(tube: TubeStore, task_id: TaskId) -> TaskNotFound:
    return TaskNotFound(f"tube {tube.config.name!r} has no task with the id {task_id!r}")


def existing(tube: TubeStore, task_id: TaskId, now: int) -> Record:
    record = tube.settled(tube.find(task_id), now)
    if record is None:
        raise not_found(tube, task_id)
    return record


def with_update(tube: TubeStore, record: Record, update: Any) -> Record:
    """Other columns of an adopted table, changed in the same transaction."""
    if update is None:
        return record
    return tube.change_columns(record, update)


def leased(tx: Transaction, tube: TubeStore, lease: ops.Lease, session: Session, now: int) -> Record:
    """The task of a lease, or the error that says why it is not the caller's. [rule 6]"""
    record = tube.settled(tube.find(lease.id), now)
    holder = tx.holder(session.uuid)
    owned = record is not None and record.state == State.TAKEN and holder and record.session == holder.number
    if lease.token is not None:
        if record is None or not owned or record.token != lease.token:
            raise _lost(record, lease.id)
        return record
    if record is None:
        raise not_found(tube, lease.id)
    if record.state != State.TAKEN:
        raise NotTaken(f"task {record.id!r} is {record.state}, nobody holds it; take it first")
    if not owned:
        owner = tx.holder_name(record.session) or "a session that is gone"
        raise NotOwner(f"task {record.id!r} is held by {owner}", owner)
    return record


def _lost(record: Record | None, task_id: TaskId) -> LeaseLost:
    if record is None:
        return LeaseLost(f"the lease of task {task_id!r} is over and the task is gone", "gone")
    now = {State.TAKEN: "taken", State.DONE: "finished"}.get(State(record.state), "waiting")
    what = {"taken": "another run holds it", "finished": "it is finished", "waiting": f"it is {record.state}"}[now]
    return LeaseLost(f"the lease of task {task_id!r} is over: {what}; stop working on it", now)
