"""Handlers that fleets of tests run, on executors: they leave word in files."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import penstock

PATIENCE = 900.0


def square(n: int) -> int:
    return n * n


async def square_later(n: int) -> int:
    await asyncio.sleep(0)
    return n * n


def fussy(n: int, run: penstock.Run) -> int:
    """Odd numbers fail the first time, multiples of five always."""
    if n % 5 == 0 or (n % 2 and run.attempt == 1):
        raise ValueError(f"{n} in attempt {run.attempt}")
    return n


def fragile(n: int, run: penstock.Run) -> int:
    """The first attempt at 3 kills Spark's Python process, and every one at 4."""
    if n == 4 or (n == 3 and run.attempt == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def hold(folder: str, run: penstock.Run) -> None:
    """Says that it has begun, and ends when it is told to."""
    (Path(folder) / f"{run.task.id}-{run.attempt}").touch()
    run.wait(PATIENCE)
    run.check()


def late(n: int, run: penstock.Run) -> str:
    """The first attempt lasts until somebody wants it to end, and has an answer then."""
    if run.attempt == 1:
        run.wait(PATIENCE)
        return "too late"
    return "in time"


def long(seconds: float, run: penstock.Run) -> str:
    """Lasts this long, unless its lease is over before."""
    return "cut off" if run.wait(seconds) else "whole"


def outlived(folder: str, run: penstock.Run) -> None:
    """The first attempt at the first task says which machine it is on, and waits for its end."""
    from tests.spark.faulty import leave, machine_of

    if run.task.id == 1 and run.attempt == 1:
        leave(Path(folder) / "0", str(machine_of(os.getpid())))
        run.wait(PATIENCE)


def spread(n: int, run: penstock.Run) -> None:
    """Puts what comes after it, once."""
    after = [2 * n, 2 * n + 1, n]
    run.tube.put_many([penstock.Entry(m, key=str(m), put_id=str(m)) for m in after if m < 50])


class Shop:
    """A program with a queue in memory, whose handlers are used on another store."""

    q = penstock.connect("memory:crews")


@Shop.q.handler("orders", max_attempts=2, keep=True)
def order(n: int) -> str:
    return f"order {n}"


@Shop.q.handler("squares", attempt_limit=5)
def square_order(n: int) -> int:
    return n * n


@Shop.q.middleware
async def noted(run, go_on):  # type: ignore[no-untyped-def]
    done = await go_on()
    return f"{done}, noted" if isinstance(done, str) else done
