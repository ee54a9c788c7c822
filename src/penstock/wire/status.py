"""Errors over gRPC, both ways: a status, the stable code and all attributes in trailing metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from penstock.model import errors
from penstock.model.errors import PenstockError
from penstock.wire import messages
from penstock.wire._generated import penstock_pb2 as pb

CODE = "penstock-code"
DETAILS = "penstock-error-bin"
MAX_TEXT = 1000
"""Characters of an error's text: all trailing metadata of a call must fit into 8 KiB."""
Status = grpc.StatusCode
STATUS: dict[type[PenstockError], grpc.StatusCode] = {
    errors.UsageError: Status.INVALID_ARGUMENT,
    errors.EngineUnavailable: Status.UNAVAILABLE,
    errors.SchemaMismatch: Status.FAILED_PRECONDITION,
    errors.AccessDenied: Status.PERMISSION_DENIED,
    errors.TubeNotFound: Status.NOT_FOUND,
    errors.NotWritable: Status.FAILED_PRECONDITION,
    errors.PayloadTooLarge: Status.INVALID_ARGUMENT,
    errors.DuplicateKey: Status.ALREADY_EXISTS,
    errors.TubeFull: Status.RESOURCE_EXHAUSTED,
    errors.TaskNotFound: Status.NOT_FOUND,
    errors.NotTaken: Status.FAILED_PRECONDITION,
    errors.NotOwner: Status.PERMISSION_DENIED,
    errors.LeaseLost: Status.ABORTED,
    errors.WrongState: Status.FAILED_PRECONDITION,
    errors.TubeExists: Status.ALREADY_EXISTS,
    errors.TubeBusy: Status.FAILED_PRECONDITION,
    errors.TaskFailed: Status.FAILED_PRECONDITION,
    errors.WaitTimeout: Status.DEADLINE_EXCEEDED,
    errors.SessionExpired: Status.ABORTED,
    errors.BatchError: Status.INVALID_ARGUMENT,
}
CLASSES: dict[str, type[PenstockError]] = {PenstockError.code: PenstockError} | {cls.code: cls for cls in errors.ALL}
_MORE: dict[type[PenstockError], Callable[[Any], dict[str, Any]]] = {
    errors.EngineUnavailable: lambda error: {"outcome": error.outcome},
    errors.NotOwner: lambda error: {"owner": error.owner},
    errors.LeaseLost: lambda error: {"now": error.now},
    errors.TaskFailed: lambda error: {"task": _record(error.task)},
    errors.BatchError: lambda error: {"results": [_item(result) for result in error.results]},
}
_BACK: dict[type[PenstockError], Callable[[pb.Error], tuple[Any, ...]]] = {
    errors.EngineUnavailable: lambda found: (found.outcome,),
    errors.NotOwner: lambda found: (found.owner,),
    errors.LeaseLost: lambda found: (found.now,),
    errors.TaskFailed: lambda found: (found.task if found.HasField("task") else None,),
    errors.BatchError: lambda found: (
        [error(item.error) if item.HasField("error") else None for item in found.results],
    ),
}


def _record(task: Any) -> pb.Task | None:
    """The task of an error: a record, what a facade shows, or a message already."""
    if task is None or isinstance(task, pb.Task):
        return task
    return messages.task(getattr(task, "_record", task))


def _item(result: Any) -> pb.Error.Item:
    return pb.Error.Item(error=message(result)) if isinstance(result, PenstockError) else pb.Error.Item()


def message(error: PenstockError) -> pb.Error:
    """An error as a message."""
    kind = next(cls for cls in type(error).__mro__ if cls in STATUS or cls is PenstockError)
    more = _MORE[kind](error) if kind in _MORE else {}
    return pb.Error(code=kind.code, message=str(error)[:MAX_TEXT], **more)


def error(found: pb.Error) -> PenstockError:
    """The other way round of message(): the same class, text and attributes."""
    cls = CLASSES.get(found.code, PenstockError)
    return cls(found.message, *_BACK[cls](found)) if cls in _BACK else cls(found.message)


def trailer(error: PenstockError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Status, text and trailing metadata of a call that is refused."""
    details = message(error)
    if details.ByteSize() > 4 * MAX_TEXT:
        # What does not fit is left out: the task, or the refusals of a batch.
        details = pb.Error(code=details.code, message=details.message, outcome=details.outcome, now=details.now)
    status = STATUS.get(type(error), Status.UNKNOWN)
    return status, details.message, ((CODE, details.code), (DETAILS, details.SerializeToString()))


def error_of(failed: Any) -> PenstockError:
    """What a grpc.RpcError of a client means; one that Penstock has not sent is EngineUnavailable.

    Without an answer nobody knows whether a call was performed, unless it has never left.
    """
    for name, value in failed.trailing_metadata() or ():
        if name == DETAILS:
            return error(pb.Error.FromString(value))
    code, text = failed.code(), failed.details()
    if code in (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED):
        return errors.AccessDenied(str(text))
    return errors.EngineUnavailable(f"the server did not answer: {code.name}, {text}", "unknown")
