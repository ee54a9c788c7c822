"""The stores that this process works on, opened once and kept: a process serves many partitions.

What only stages rows, plans or commits borrows one. A store that nobody has borrowed for a while is closed: Spark keeps
its processes for longer than its jobs, and each store has a thread that looks at it every second.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.engines import Engine, engine_name, open_engine, store_name
from penstock.model.errors import EngineUnavailable, UsageError

IDLE = 10.0
"""Seconds that a store which was given back stays open: the next partition or batch often wants it."""


@dataclass(eq=False)
class _Held:
    engine: Engine
    borrowers: int = 0
    stays: bool = False
    """True if somebody uses it who does not say when that ends."""
    closing: threading.Timer | None = None


_open: dict[tuple[int, str], _Held] = {}
_lock = threading.RLock()


def _renew() -> None:
    """In a child that was forked: the thread that had the lock is not there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def store(url: str) -> Engine:
    """The engine of a URL, for ops that hold no leases. It is closed with the process."""
    with _lock:
        held = _held(url)
        held.stays = True
    return held.engine


@contextmanager
def borrowed(url: str) -> Iterator[Engine]:
    """The same for a while."""
    with _lock:
        held = _held(url)
        held.borrowers += 1
    try:
        yield held.engine
    finally:
        with _lock:
            held.borrowers -= 1
            if not held.borrowers and not held.stays:
                held.closing = threading.Timer(IDLE, _close_idle, (url, held))
                held.closing.daemon = True
                held.closing.start()


def _held(url: str) -> _Held:
    held = _open.get((os.getpid(), url))
    if held is None or not held.engine.usable:
        make_room(url)
        held = _open[os.getpid(), url] = _Held(open_engine(url, None, "strict"))
    if held.closing is not None:
        held.closing.cancel()
        held.closing = None
    return held


def _close_idle(url: str, held: _Held) -> None:
    with _lock:
        # A timer that was cancelled too late finds another one, or none, in its place.
        if held.closing is threading.current_thread() and _open.get((os.getpid(), url)) is held:
            del _open[os.getpid(), url]
            held.engine.close()


def make_room(url: str) -> None:
    """A process that Spark uses again may have the place open with other parameters: those of the last query count."""
    name = store_name(url)
    with _lock:
        for (pid, other), held in list(_open.items()):
            if pid == os.getpid() and other != url and store_name(other) == name:
                held.engine.close()
                del _open[pid, other]


@atexit.register
def close_all() -> None:
    """Let go of every store."""
    with _lock:
        for (pid, _), held in list(_open.items()):
            if pid == os.getpid():
                held.engine.close()
        _open.clear()


def machine() -> str:
    """What tells this machine from others, and from itself before its last start."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


def absolute(url: str) -> str:
    """The same place whatever the working directory of the process that opens it; memory is refused."""
    engine = engine_name(url)
    if engine == "memory":
        raise UsageError(f"{url!r} is in the memory of one process, and Spark works in many; name a file or PostgreSQL")
    if engine == "sqlite":
        from penstock.engines.sqlite.place import Place

        return str(Place.parse(url).name)
    return url


def check_there(url: str) -> None:
    """A wrong name makes no file: tubes are made before Spark uses them."""
    if engine_name(url) == "sqlite":
        from penstock.engines.sqlite.place import Place

        path = Place.parse(url).path
        if not path.exists():
            raise EngineUnavailable(
                f"there is no file {path}; `penstock create TUBE --url {path}` makes it, with a tube"
            )


def check_machine(url: str, planned_on: str) -> None:
    """A SQLite file is for processes of its own machine."""
    if engine_name(url) == "sqlite" and planned_on != machine():
        raise UsageError(
            f"{url} is a file on {planned_on.split()[0]}, and this executor runs on {socket.gethostname()}: "
            "SQLite needs all executors on the machine of the driver; use PostgreSQL on a cluster of several"
        )
