"""How long a task put by one process takes to reach a take that waits in another, through a SQLite file."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles

import penstock
from bench import ours
from bench.cell import Figures

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ("p99 ms", "p50 ms")


def measure(folder: Path, count: int, durability: ours.Durability) -> Figures:
    """Puts at random moments; the clock runs from before put() is called until take() has answered."""
    path = ours.file(folder)
    with penstock.connect(path, durability=durability) as queue:
        tube = queue.create_tube("wake", "fifo")
        command = [sys.executable, "-m", "bench.wake", path, str(count), durability]
        waiter = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert waiter.stdout is not None
            waiter.stdout.readline()
            for _ in range(count):
                time.sleep(random.uniform(0.005, 0.03))
                tube.put(time.monotonic_ns())
            output, _ = waiter.communicate(timeout=30)
        finally:
            if waiter.poll() is None:
                waiter.kill()
            waiter.wait(5)
    waits = json.loads(output)
    if len(waits) != count:
        raise RuntimeError(f"{len(waits)} of {count} tasks arrived")
    cut = quantiles(waits[len(waits) // 20 :], n=100)
    return {"p99 ms": cut[98], "p50 ms": cut[49]}


def wait(path: str, count: int, durability: ours.Durability) -> None:
    """The other process: takes tasks as they come and prints how old each was."""
    found: list[float] = []
    with penstock.connect(path, durability=durability) as queue:
        tube = queue.tube("wake")
        print("waiting", flush=True)
        while len(found) < count and (task := tube.take(timeout=10)):
            found.append((time.monotonic_ns() - task.data) / 1e6)
            task.ack()
    print(json.dumps(found))


if __name__ == "__main__":
    wait(sys.argv[1], int(sys.argv[2]), "strict" if sys.argv[3] == "strict" else "relaxed")
