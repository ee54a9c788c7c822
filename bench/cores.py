"""Keep the processor's cores awake while something is measured.

One fiber of tarantool/queue was measured slower on a virtual machine with idle cores than on the same
one with something spinning at the lowest priority; one caller of Penstock was as fast either way. The likely reason is
that each change waits for another thread, so for a core to wake up. Compare both ways: neither alone is the truth.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIFE = 900
Times = tuple[int, int]
SPIN = """
import os, sys, time
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
print("awake", flush=True)
while os.getppid() == parent and time.monotonic() < until:
    for _ in range(100_000):
        pass
"""


def times() -> Times:
    """All the time the cores have had, and what of it nobody used (Linux)."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def busy(before: Times, after: Times) -> float:
    """The share of the cores in use between two moments."""
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


@contextmanager
def awake() -> Iterator[None]:
    """A process for every core that runs only when nobody else wants to; it ends with us, or after a while."""
    command = [sys.executable, "-c", SPIN, str(os.getpid()), str(LIFE)]
    spinners = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)]
    try:
        for each in spinners:
            assert each.stdout is not None
            if each.stdout.readline() != b"awake\n":
                raise RuntimeError("a core could not be kept awake: no SCHED_IDLE on this system")
        yield
    finally:
        for each in spinners:
            each.kill()
            each.wait(5)
            assert each.stdout is not None
            each.stdout.close()
