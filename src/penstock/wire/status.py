"""Errors over gRPC, both ways: a status, the stable code and all attributes in trailing metadata."""

from __future__ import annotations

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


class NotKnown(errors.AccessDenied):
    """Nobody knows who calls, so nothing is looked at: another status than that of who may not."""


STATUS: dict[type[PenstockError], grpc.StatusCode] = {
    errors.UsageError: Status.INVALID_ARGUMENT,
    errors.EngineUnavailable: Status.UNAVAILABLE,
    errors.SchemaMismatch: Status.FAILED_PRECONDITION,
    errors.AccessDenied: Status.PERMISSION_DENIED,
    NotKnown: Status.UNAUTHENTICATED,
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
    PenstockError: Status.UNKNOWN,
}


def _task(task: Any) -> pb.Task:
    """The task of an error: a record, what a facade shows, or a message already."""
    return task if isinstance(task, pb.Task) else messages.task(getattr(task, "_record", task))


def _item(result: Any) -> pb.Error.Item:
    return pb.Error.Item(error=message(result)) if isinstance(result, PenstockError) else pb.Error.Item()


def _kind(error: PenstockError) -> type[PenstockError]:
    """The class by which an error is known here: its own, or the nearest that it extends."""
    return next(cls for cls in type(error).__mro__ if cls in STATUS)


def message(error: PenstockError) -> pb.Error:
    """An error as a message."""
    kind = _kind(error)
    made = pb.Error(code=kind.code, message=str(error)[:MAX_TEXT])
    if kind.detail:
        setattr(made, kind.detail, getattr(error, kind.detail))
    elif isinstance(error, errors.TaskFailed):
        if error.task is not None:
            made.task.CopyFrom(_task(error.task))
    elif isinstance(error, errors.BatchError):
        made.results.extend(map(_item, error.results))
    return made


def error(found: pb.Error) -> PenstockError:
    """The other way round of message(): the same class, text and attributes."""
    cls = errors.BY_CODE.get(found.code, PenstockError)
    if cls.detail:
        return cls(found.message, getattr(found, cls.detail))
    if cls is errors.TaskFailed:
        return errors.TaskFailed(found.message, found.task if found.HasField("task") else None)
    if cls is errors.BatchError:
        results = [error(item.error) if item.HasField("error") else None for item in found.results]
        return errors.BatchError(found.message, results)
    return cls(found.message)


def trailer(error: PenstockError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Status, text and trailing metadata of a call that is refused."""
    details = message(error)
    if details.ByteSize() > 4 * MAX_TEXT:
        # What does not fit is left out: the task, or the refusals of a batch.
        details = pb.Error(code=details.code, message=details.message, outcome=details.outcome, now=details.now)
    return STATUS[_kind(error)], details.message, ((CODE, details.code), (DETAILS, details.SerializeToString()))


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
