"""Penstock: a persistent task queue in a file beside your program, in PostgreSQL, or in memory."""

from penstock.aio import AsyncHandler, AsyncLane, AsyncQueue, AsyncTask, AsyncTube, aconnect
from penstock.blocking import Handler, Lane, Queue, Task, Tube, connect
from penstock.calls import Entry
from penstock.engines.bridge import AsyncTransactor as AsyncTransaction
from penstock.engines.transactor import Transactor as Transaction
from penstock.history import HistoryEvent
from penstock.model.errors import (
    AccessDenied,
    BatchError,
    DuplicateKey,
    EngineUnavailable,
    LeaseLost,
    NotOwner,
    NotTaken,
    NotWritable,
    PayloadTooLarge,
    PenstockError,
    SchemaMismatch,
    SessionExpired,
    TaskFailed,
    TaskNotFound,
    TubeBusy,
    TubeExists,
    TubeFull,
    TubeNotFound,
    UsageError,
    WaitTimeout,
    WrongState,
)
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.retry import Exponential
from penstock.model.state import Event, Reason, State
from penstock.model.stats import Statistics
from penstock.model.tube import Features, Kind
from penstock.outcomes import Abort, Bury, Cancelled, Release
from penstock.schedules import Schedule
from penstock.worker import Hooks, Run, Tally, Worker, current_run

__version__ = "0.1.0"
__all__ = [
    "Abort",
    "AccessDenied",
    "AsyncHandler",
    "AsyncLane",
    "AsyncQueue",
    "AsyncTask",
    "AsyncTransaction",
    "AsyncTube",
    "BatchError",
    "Bury",
    "Cancelled",
    "DuplicateKey",
    "EngineUnavailable",
    "Entry",
    "Event",
    "Exponential",
    "Features",
    "Handler",
    "HistoryEvent",
    "Hooks",
    "Kind",
    "Lane",
    "LaneInfo",
    "LaneLimits",
    "LeaseLost",
    "NotOwner",
    "NotTaken",
    "NotWritable",
    "PayloadTooLarge",
    "PenstockError",
    "Queue",
    "Reason",
    "Release",
    "Run",
    "Schedule",
    "SchemaMismatch",
    "SessionExpired",
    "State",
    "Statistics",
    "Tally",
    "Task",
    "TaskFailed",
    "TaskNotFound",
    "Transaction",
    "Tube",
    "TubeBusy",
    "TubeExists",
    "TubeFull",
    "TubeNotFound",
    "UsageError",
    "WaitTimeout",
    "Worker",
    "WrongState",
    "aconnect",
    "connect",
    "current_run",
]
