"""What a client of tarantool/queue is told when it is refused: Tarantool's number, and words that it looks for."""

from __future__ import annotations

import logging

from penstock.model.errors import (
    AccessDenied,
    DuplicateKey,
    LeaseLost,
    NotOwner,
    NotTaken,
    NotWritable,
    PayloadTooLarge,
    PenstockError,
    TubeNotFound,
    shown,
)
from penstock.wire.iproto import ACCESS_DENIED, NO_SUCH_PROC, PROC_LUA, IprotoError

TUPLE_FOUND, READ_ONLY, KEY_TYPE, KEY_COUNT, FIELD_TYPE, FIELD_MISSING, TOO_LARGE = 3, 7, 18, 19, 23, 39, 110
"""Codes of Tarantool's that the queue's functions answer with."""
log = logging.getLogger("penstock.server")


class Refusal(IprotoError):
    """An error of a function; those of the queue's module itself have one code, and clients look at the text."""

    def __init__(self, text: str, code: int = PROC_LUA, kind: str = "", **fields: str) -> None:
        super().__init__(code, text, kind or ("LuajitError" if code == PROC_LUA else "ClientError"), **fields)


def not_defined(function: str) -> Refusal:
    """No function has this name; neither has a tube that it is one of."""
    return Refusal(f"Procedure '{function}' is not defined", NO_SUCH_PROC)


def not_taken() -> Refusal:
    """Whatever the reason: the caller does not hold the task."""
    return Refusal("Task was not taken")


def not_found(task_id: object) -> Refusal:
    """The tube has no such task."""
    return Refusal(f"Task {task_id} not found") if isinstance(task_id, int) else no_id(task_id, 0)


def no_id(value: object, part: int) -> Refusal:
    """Ids are numbers, unless the tube was created with others; `part`: of the index that would be looked at."""
    text = f"Supplied key type of part {part} does not match index part type: expected unsigned"
    return Refusal(f"{text}; got {shown(value)}", KEY_TYPE)


def refusal(error: BaseException, function: str, login: str) -> IprotoError:
    """An error of the queue's, as a client of Tarantool's knows it."""
    if isinstance(error, IprotoError):
        return error
    if isinstance(error, TubeNotFound):
        return not_defined(function)
    if isinstance(error, NotTaken | NotOwner | LeaseLost):
        return not_taken()
    if isinstance(error, AccessDenied):
        text = f"Execute access to function '{function}' is denied for user '{login}': {error}"
        fields = {"object_type": "function", "object_name": function, "access_type": "Execute"}
        return Refusal(text, ACCESS_DENIED, "AccessDeniedError", **fields)
    if isinstance(error, PayloadTooLarge):
        return Refusal(f"tuple is too large: {error}", TOO_LARGE)
    if isinstance(error, DuplicateKey):
        return Refusal(f"Duplicate key exists: {error}", TUPLE_FOUND)
    if isinstance(error, NotWritable):
        return Refusal(f"Can't modify data because this instance is in read-only mode: {error}", READ_ONLY)
    if isinstance(error, PenstockError):
        return Refusal(str(error))
    log.error("%s failed", function, exc_info=error)
    return Refusal(f"{function} failed in the server: {type(error).__name__}; its log says more")
