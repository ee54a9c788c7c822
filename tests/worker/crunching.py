"""Handlers for processes: a process finds them here by name."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import penstock
from penstock import Abort, Bury, Release, Run, current_run

q = penstock.connect("memory:")
calls: list[Any] = []


@dataclass
class Order:
    do: str
    with_: Any = None


def stop() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say_goodbye() -> None:
    os._exit(3)


def wait_for(path: str) -> None:
    """Until there is a file of that name."""
    pause = threading.Event()
    while not os.path.exists(path):
        pause.wait(0.005)


def leave_one_behind() -> None:
    """A process that outlives this one, and has its pipes."""
    if os.fork() == 0:
        threading.Event().wait(3)
        os._exit(0)
    os._exit(4)


def throw(error: BaseException) -> None:
    raise error


def wrapped() -> None:
    raise RuntimeError("outer") from Abort("no such page")


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


DEEDS: dict[str, Callable[[Any], Any]] = {
    "return": lambda value: value,
    "pid": lambda value: os.getpid(),
    "count": lambda value: calls.append(value) or len(calls),  # type: ignore[func-returns-value]
    "wait": lambda path: wait_for(path),
    "object": lambda value: object(),
    "coroutine": lambda value: nap(),
    "raise": lambda value: throw(ValueError("odd ä\0\ud800")),
    "odd": lambda value: throw(Odd()),
    "exit": lambda value: sys.exit(3),
    "interrupt": lambda value: throw(KeyboardInterrupt()),
    "abort": lambda value: throw(Abort("no such page")),
    "wrapped": lambda value: wrapped(),
    "bury": lambda value: throw(Bury("needs \ud800 a look")),
    "group": lambda value: throw(ExceptionGroup("one", [Bury("in a group")])),
    "release": lambda value: throw(Release(timedelta(hours=1))),
    "until": lambda value: throw(Release(datetime.now(UTC) + timedelta(hours=1))),
    "never": lambda value: throw(Release("never")),  # type: ignore[arg-type]
    "kill": lambda value: stop(),
    "quit": lambda value: say_goodbye(),
    "fork": lambda value: leave_one_behind(),
    "ack": lambda value: current_run().task.ack(),
}


async def nap() -> None: ...


def act(order: Order, run: Run) -> Any:
    """Do what the task says."""
    return DEEDS[order.do](order.with_)


def facts(data: Any, run: Run) -> dict[str, Any]:
    task = current_run().task
    return {
        "same": run is current_run(),
        "task": [task.id, task.tube, task.data, task.lane, task.key, task.pri, task.max_attempts],
        "attempt": [run.attempt, run.last_attempt, run.cancelled],
        "token": task.token,
        "left": run.time_left,
        "facts": run.facts,
        "argv": sys.argv,
        "path": "PYTHONPATH" in os.environ,
    }


def blob(data: bytes) -> int:
    return len(data)


def spin(pid_file: str) -> None:
    with open(pid_file, "w") as file:
        file.write(str(os.getpid()))
    while True:
        pass


def total(numbers: list[int]) -> int:
    return sum(numbers)


@q.handler("one", process=True, keep=True)
def same(data: Any) -> str:
    return "one"


first = same


@q.handler("two", process=True, keep=True)
def same(data: Any) -> str:  # type: ignore[no-redef]
    return "two"


def louder(function: Any) -> Any:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args).upper()

    return wrapper


@louder
@q.handler("hidden", process=True, keep=True)
def hidden(data: Any) -> str:
    return "found"


class Shelf:
    @staticmethod
    def static(data: Any) -> str:
        return "static"

    @classmethod
    def of_class(cls, data: Any) -> str:
        return cls.__name__

    def method(self, data: Any) -> None: ...


def leave_behind(pid_file: str) -> None:
    """Wait for a process that it has started, for ever."""
    child = os.fork()
    if child == 0:
        threading.Event().wait()
    with open(pid_file, "w") as file:
        file.write(f"{os.getpid()} {child}")
    os.waitpid(child, 0)
