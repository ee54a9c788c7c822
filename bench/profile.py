"""Where the time of one caller's cycles goes: `python -m bench.profile [kind] [count]`."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from pathlib import Path

from bench import ours
from bench.cells import KINDS
from bench.phases import payload


def cycles(folder: Path, kind: str, count: int, profiler: cProfile.Profile) -> None:
    """put, take, ack, over and over; the store is opened and warm before the profiler looks."""
    lane = "a" if kind.startswith("utube") else None
    with ours.tube(folder, kind, count) as tube:
        for n in range(200):
            tube.put(payload(n), lane=lane)
            ours.finish(tube)
        profiler.enable()
        for n in range(count):
            tube.put(payload(n), lane=lane)
            ours.finish(tube)
        profiler.disable()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description="Profile one caller's cycles.")
    parser.add_argument("kind", nargs="?", default="fifo", choices=KINDS)
    parser.add_argument("count", nargs="?", type=int, default=5_000)
    parser.add_argument("--top", type=int, default=30, help="how many functions to print")
    parser.add_argument("--sort", default="tottime", choices=("tottime", "cumulative", "ncalls"))
    asked = parser.parse_args()
    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cycles(Path(folder), asked.kind, asked.count, profiler)
    pstats.Stats(profiler).strip_dirs().sort_stats(asked.sort).print_stats(asked.top)


if __name__ == "__main__":
    main()
