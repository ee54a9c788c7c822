"""Servers that are processes of their own: how they begin and end, and what CPU time they use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TICK = 1e6 / os.sysconf("SC_CLK_TCK")
PATIENCE = 60
"""Seconds in which a server has to end."""
DOORS = {"penstock": ("--port", "0"), "grpc": ("--port", "0", "--grpc-port", "0")}


class Served(NamedTuple):
    """A server that clients can connect to."""

    address: str
    """host:port"""
    pid: int


@contextmanager
def started(command: list[str], home: str, said: str = "", **environment: str) -> Iterator[tuple[str, int]]:
    """A program, from the line that begins with `said` until the end of the context; answers the line and its pid."""
    process = subprocess.Popen(
        command,
        cwd=home,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if line.startswith(said)), None)
            if line is None:
                raise RuntimeError(f"{command[0]}: {process.communicate()[1].strip()[-300:] or 'it did not start'}")
            yield line.strip(), process.pid
        finally:
            process.terminate()
            try:
                process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def served(folder: Path, scheme: str = "penstock") -> Iterator[Served]:
    """A server of ours with a file of its own, as `penstock serve` starts it."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="served-") as home:
        command = [sys.executable, "-m", "penstock", "serve", f"{home}/tasks.db", "--durability", "relaxed"]
        with started([*command, *DOORS[scheme]], home, f"{scheme}://") as (url, pid):
            yield Served(url.removeprefix(f"{scheme}://"), pid)


def cpu_us(pid: int) -> float:
    """Microseconds of CPU that a process has used, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK
