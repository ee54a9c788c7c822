"""The stores that this process works on, opened once and kept: a process serves many partitions."""

from __future__ import annotations

import atexit
import os
import socket
from pathlib import Path

from penstock.engines import Engine, engine_name, open_engine, store_name
from penstock.model.errors import UsageError

_open: dict[tuple[int, str], Engine] = {}


def store(url: str) -> Engine:
    """The engine of a URL, for ops that hold no leases. It is closed with the process."""
    known = _open.get((os.getpid(), url))
    if known is None or not known.usable:
        make_room(url)
        known = _open[os.getpid(), url] = open_engine(url, None, "strict")
    return known


def make_room(url: str) -> None:
    """A process that Spark uses again may have the place open with other parameters: those of the last query count."""
    name = store_name(url)
    for (pid, other), engine in list(_open.items()):
        if pid == os.getpid() and other != url and store_name(other) == name:
            engine.close()
            del _open[pid, other]


@atexit.register
def close_all() -> None:
    """Let go of every store."""
    for (pid, _), engine in list(_open.items()):
        if pid == os.getpid():
            engine.close()
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


def check_machine(url: str, planned_on: str) -> None:
    """A SQLite file is for processes of its own machine."""
    if engine_name(url) == "sqlite" and planned_on != machine():
        raise UsageError(
            f"{url} is a file on {planned_on.split()[0]}, and this executor runs on {socket.gethostname()}: "
            "SQLite needs all executors on the machine of the driver; use PostgreSQL on a cluster of several"
        )
