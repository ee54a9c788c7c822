"""A Spark cluster on this machine: a standalone master and two workers that Spark takes for two hosts.

A speculative copy of a task never runs on the host of the first one, so one host would not do.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.spark.conftest import BRIEF, environment

HOSTS = ("127.0.0.1", "127.0.0.2")
PATIENCE = 300.0


@contextmanager
def cluster(folder: Path, home: Path) -> Iterator[str]:
    """The URL of a master with a worker of one core on each of two hosts; all of it ends with the context."""
    started: list[subprocess.Popen[bytes]] = []
    logs: list[IO[bytes]] = []

    def start(host: str, main: str, *arguments: str) -> Path:
        log = folder / f"{main}-{len(started)}.log"
        logs.append(log.open("wb"))
        where = {
            **environment(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": BRIEF,
        }
        program = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
        output = {"stdout": logs[-1], "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen([*program, "--host", host, *arguments], cwd=folder, env=where, **output))  # type: ignore[call-overload]
        return log

    try:
        log = start(HOSTS[0], "master.Master", "--port", "0", "--webui-port", "0")
        url = _await(log, r"Starting Spark master at (spark://\S+:[0-9]+)", started)
        _await(log, "I have been elected leader", started)
        size = ("-c", "1", "-m", "1G", "--webui-port", "0")
        workers = [start(host, "worker.Worker", *size, "-d", str(folder / f"work-{host}"), url) for host in HOSTS]
        for log in workers:
            _await(log, "Successfully registered with master", started)
        yield url
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(PATIENCE)
        for file in logs:
            file.close()


def _await(log: Path, words: str, processes: Sequence[subprocess.Popen[bytes]]) -> str:
    """Come back once a log has a line with these words; what is in parentheses in them, or all."""
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while (found := re.search(f"{words}.*\n", said := log.read_text(errors="replace"))) is None:
        assert time.monotonic() < end and all(one.poll() is None for one in processes), (
            f"no {words!r} in {said[-2000:]}"
        )
        pause.wait(0.05)
    return found[found.re.groups]
