"""Servers over the network: one client program, Tarantool's own net.box, drives Penstock and tarantool/queue alike.

Servers and the client are processes of their own on this machine. A new server with new files every round.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench import tarantool
from bench.cell import Bound, Cell, Figures, Opener, Subject
from bench.scale import Scale
from bench.served import cpu_us, served, started

NAME = "penstock"
SCRIPT = Path(__file__).with_name("net.lua")
SECTION = "over the network: net.box, 50 connections, put, take and ack in turn, relaxed"
FIGURES = ("put p50 ms", "server us", "client us", "cycle/s")
NOTES = {
    "net": "server us, client us: CPU time of the processes for a cycle, all threads together; put p50 is of one "
    "connection alone. Tarantool has three threads, wal_mode=write (no fsync); Penstock is SQLite, relaxed",
}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def drive(pid: int, port: int, kind: str, callers: int, count: int, limit: float) -> Figures:
    """Let the client program do its work on a server."""
    asked = {"mode": "drive", "port": port, "kind": kind, "callers": callers, "count": count, "limit": limit}
    before = cpu_us(pid)
    done = subprocess.run(
        ["tarantool", str(SCRIPT), json.dumps(asked)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * limit + 30,
        check=False,
    )
    used = cpu_us(pid) - before
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"net.box: {(done.stderr or done.stdout).strip()[-300:] or 'no answer'}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {
        "put p50 ms": answer["put_ms"],
        "server us": used / answer["cycles"],
        "client us": 1e6 * answer["cpu"] / answer["done"],
        "cycle/s": answer["rate"],
    }


def ours(folder: Path, kind: str, callers: int, count: int, limit: float) -> Figures:
    with served(folder) as server:
        return drive(server.pid, int(server.address.rpartition(":")[2]), kind, callers, count, limit)


def theirs(folder: Path, kind: str, callers: int, count: int, limit: float) -> Figures:
    module = Path(os.environ["TARANTOOL_QUEUE_PATH"]).resolve()
    path = f"{module}/?.lua;{module}/?/init.lua;;"
    with tempfile.TemporaryDirectory(dir=folder, prefix="tarantool-") as home:
        port = free_port()
        command = ["tarantool", str(SCRIPT), json.dumps({"mode": "serve", "port": port})]
        with started(command, home, LUA_PATH=path) as (_, pid):
            return drive(pid, port, kind, callers, count, limit)


def opener(kind: str) -> Opener:
    def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
        rest = (folder, kind, scale.callers, 2 * scale.concurrent, scale.limit)
        why = tarantool.missing()
        driver = "" if "no tarantool program" not in why else why
        return [
            Subject(NAME, None if driver else partial(ours, *rest), driver),
            Subject(tarantool.NAME, None if why else partial(theirs, *rest), why),
        ]

    return subjects


CELLS = tuple(
    Cell(
        f"net-{kind}",
        SECTION,
        opener(kind),
        FIGURES,
        (Bound("cycle/s", 1.2, of=tarantool.NAME), Bound("put p50 ms", most=1)),
    )
    for kind in ("fifo", "fifottl")
)
