"""tarantool/queue, when both the program and the module are there. A new process with new files every round."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench import phases
from bench.cell import Figures, Subject

NAME = "tarantool"
SCRIPT = Path(__file__).with_name("tarantool.lua")
NOTE = (
    "tarantool/queue in Tarantool's own process, memtx, wal_mode=write (no fsync): nothing crosses a process border; "
    "no attempts, keys, results or batches"
)
READY_BUFFER = "ready_buffer"


def missing() -> str:
    """Why there is nothing to compare with, or nothing."""
    folder = os.environ.get("TARANTOOL_QUEUE_PATH", "")
    if not shutil.which("tarantool"):
        return "not present: no tarantool program"
    if not folder:
        return "not present: TARANTOOL_QUEUE_PATH is not set"
    if not (Path(folder) / "queue" / "init.lua").is_file():
        return "not present: no queue/init.lua in TARANTOOL_QUEUE_PATH"
    return ""


def ask(folder: Path, limit: float, **asked: Any) -> dict[str, Any]:
    """Run the script in a folder of its own and read the line it prints."""
    module = Path(os.environ["TARANTOOL_QUEUE_PATH"]).resolve()
    path = f"{module}/?.lua;{module}/?/init.lua;;"
    with tempfile.TemporaryDirectory(dir=folder, prefix="tarantool-") as home:
        done = subprocess.run(
            ["tarantool", str(SCRIPT), json.dumps({"limit": limit, **asked})],
            cwd=home,
            env={**os.environ, "LUA_PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * limit + 20,
            check=False,
        )
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"tarantool: {(done.stderr or done.stdout).strip()[-300:] or 'no answer'}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def cycles(
    folder: Path, kind: str, count: int, callers: int, lanes: int, storage_mode: str | None, limit: float
) -> Figures:
    asked = {"kind": kind, "count": count, "callers": callers, "lanes": lanes, "storage_mode": storage_mode}
    answer = ask(folder, limit, **asked)
    return phases.figures(answer["put"], answer["take"])


def busy(folder: Path, lanes: int, each: int, limit: float) -> Figures:
    """The module's own busy_utubes case: ready_buffer, a fiber for every lane, a yield before each ack."""
    asked = {"kind": "utube", "count": lanes * each, "callers": lanes, "lanes": lanes, "storage_mode": READY_BUFFER}
    answer = ask(folder, limit, busy=True, **asked)
    return {"us/task": 1e6 / answer["take"], "take+ack/s": answer["take"]}


def subject(folder: Path, kind: str, count: int, callers: int, limit: float, lanes: int = 0, mode: str = "") -> Subject:
    """One kind of tube; `mode` is utube's storage mode."""
    words = [NAME, *([mode] if mode else []), *([f"{callers} fibers"] if callers > 1 else [])]
    why = missing()
    run = partial(cycles, folder, kind, count, callers, lanes, mode or None, limit)
    return Subject(" ".join(words), None if why else run, why)
