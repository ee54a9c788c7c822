"""Real processes for tests: started clean, talked to over pipes, killed or ended by the test that made them.

They are forked by a server process that has imported Penstock and has opened nothing, so each starts in
milliseconds and shares nothing with the test.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.engines import store

PATIENCE = 200.0
"""Seconds after which a child that says nothing is taken for stuck."""
_context = multiprocessing.get_context("forkserver")
_ENGINES = ["penstock.engines.sqlite.store", "penstock.engines.postgres.store"]
_context.set_forkserver_preload(["penstock", "penstock.testing", *_ENGINES])


class Wire:
    """The child's side: says lines that survive its death, hears orders."""

    def __init__(self, out: Any, orders: Any) -> None:
        self._out = out
        self._orders = orders

    def say(self, *values: Any) -> None:
        os.write(self._out.fileno(), json.dumps(values).encode() + b"\n")

    def hear(self) -> Any:
        """The next order; an EOFError ends a child whose test is gone."""
        return self._orders.recv()


class Child:
    """The test's side of one process that runs role(wire, *args)."""

    def __init__(self, role: Callable[..., None], *args: Any) -> None:
        self._reader, out = _context.Pipe(duplex=False)
        orders, self._orders = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_run, args=(role, out, orders, args), daemon=True)
        self._process.start()
        out.close()
        orders.close()
        self._rest = b""
        self._lines: list[Any] = []

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def fileno(self) -> int:
        return self._reader.fileno()

    def tell(self, order: Any) -> None:
        self._orders.send(order)

    def read(self) -> bool:
        """Take in what was said; blocks until there is something. False at the end."""
        ready, _, _ = select.select([self._reader], [], [], PATIENCE)
        assert ready, "a child says nothing"
        chunk = os.read(self._reader.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._lines += map(json.loads, lines)
        return bool(chunk)

    def said(self) -> list[Any]:
        """Everything taken in and not asked for yet."""
        lines, self._lines = self._lines, []
        return lines

    def line(self) -> Any:
        """The next thing that the child says."""
        while not self._lines:
            assert self.read(), f"the child has ended with {self.exit()}"
        return self._lines.pop(0)

    def exit(self) -> int | None:
        """Wait for the end; the exit status, negative for a signal."""
        self._process.join(PATIENCE)
        return self._process.exitcode

    def kill(self) -> list[Any]:
        """SIGKILL; answers what the child had still said."""
        self._process.kill()
        return self.rest()

    def rest(self) -> list[Any]:
        """Wait for the end; answers what was said until then."""
        while self.read():
            pass
        self.exit()
        return self.said()

    def close(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._reader.close()
        self._orders.close()


def _run(role: Callable[..., None], out: Any, orders: Any, args: tuple[Any, ...]) -> None:
    store.FORK_PATIENCE = PATIENCE  # a machine may stand still for longer than a program waits before it forks
    role(Wire(out, orders), *args)


class Children:
    """All children of a test."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def start(self, role: Callable[..., None], *args: Any) -> Child:
        child = Child(role, *args)
        self._all.append(child)
        return child

    def forget(self, child: Child) -> None:
        self._all.remove(child)
        child.close()

    def close(self) -> None:
        for child in self._all:
            child.close()


@contextmanager
def family() -> Iterator[Children]:
    children = Children()
    try:
        yield children
    finally:
        children.close()
