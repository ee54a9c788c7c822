"""Memory and disk of many stored tasks, seen from a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import penstock
from bench import growth, ours
from bench.cell import Figures
from bench.phases import payload

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ("file MB", "reopened MB", "filling MB")


def measure(folder: Path, count: int, limit: float) -> Figures:
    """Fill a file in one process, then work a little on it in another."""
    path = ours.file(folder)
    filling = _run("fill", path, count, limit)
    if filling["stored"] != count:
        raise RuntimeError(f"only {filling['stored']:,.0f} of {count:,} tasks were stored within {limit:g} seconds")
    files = sum(each.stat().st_size for each in Path(path).parent.glob(Path(path).name + "*") if each.is_file())
    reopened = _run("work", path, 1000, limit)
    return {"file MB": files / 1e6, "reopened MB": reopened["MB"], "filling MB": filling["MB"]}


def _run(what: str, path: str, count: int, limit: float) -> Figures:
    command = [sys.executable, "-m", "bench.size", what, path, str(count), str(limit)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=limit + 60, check=True)
    answer: Figures = json.loads(done.stdout)
    return answer


def peak() -> float:
    """The most memory this process has had, in MB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("the kernel does not tell VmHWM")


def fill(path: str, count: int, limit: float) -> int:
    with penstock.connect(path, durability="relaxed") as queue:
        queue.create_tube("growth", "fifottl", ttl=3600)
    return growth.ready(path, count, limit)


def work(path: str, count: int) -> int:
    with penstock.connect(path, durability="relaxed") as queue:
        tube = queue.tube("growth")
        for n in range(count):
            tube.put(payload(n))
            ours.finish(tube)
        tube.statistics()
    return count


if __name__ == "__main__":
    number = int(sys.argv[3])
    stored = fill(sys.argv[2], number, float(sys.argv[4])) if sys.argv[1] == "fill" else work(sys.argv[2], number)
    print(json.dumps({"stored": stored, "MB": peak()}))
