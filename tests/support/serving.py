"""Servers as processes of their own: started by the command line, ended by signals, followed through takeovers."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.cli.running import Stream
from tests.cli.shell import PROGRAM, Shell, started
from tests.support.forks import Fork
from tests.worker.bench import until

PATIENCE = 200.0


@functools.cache
def runtime() -> str:
    """A folder for sockets, whose names must be short."""
    made = tempfile.mkdtemp(prefix="penstock")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


class Serving:
    """`with Serving(folder, "tasks.db") as server:`; leaving kills it, and whoever has taken over from it.

    It is a fork; those that take over on SIGHUP are not.
    """

    def __init__(self, folder: Path, store: str, *words: str, **environment: str) -> None:
        words = words if "--port" in words else (*words, "--port", "0")
        if "XDG_RUNTIME_DIR" not in environment:
            environment["XDG_RUNTIME_DIR"] = runtime()
        self.runtime = Path(environment["XDG_RUNTIME_DIR"])
        self._command = (folder, store, words, environment)
        self.environment = Shell(store, folder).environment(**environment)
        self.process = self._started(["serve", store, "--json", *words], folder)
        self.out, self.err = Stream(self.process.stdout), Stream(self.process.stderr)
        self._successors, self._heirs = list[int](), list[Serving]()
        self.document: dict[str, Any] = {}

    def _started(self, words: list[str], folder: Path) -> Any:
        return Fork(words, folder, self.environment)

    def ready(self) -> Self:
        """Come back when clients can connect."""
        self.document = json.loads(self.out.said('"pid"'))
        return self

    def next(self) -> dict[str, Any]:
        """What the process says that has taken over, once it serves."""
        try:
            found: dict[str, Any] = json.loads(self.out.said('"pid"', after=1 + len(self._successors)))
        except AssertionError:
            raise AssertionError(f"nobody has taken over: {self.err.lines}") from None
        self._successors.append(found["pid"])
        return found

    def successor(self) -> Serving:
        """The same command, to take over as on SIGHUP, but as a fork: it is there in a fraction of the time.

        It ends with this one, and is not ready yet.
        """
        folder, store, words, environment = self._command
        words = (*(word for word in words if word != "--takeover"), "--takeover")
        made = Serving(folder, store, *words, **{**environment, "PENSTOCK_CONTROL": os.fspath(self.control)})
        self._heirs.append(made)
        return made

    @property
    def control(self) -> Path:
        """Where it can be asked to hand over."""
        return self.runtime / "penstock" / f"127.0.0.1-{self.port}.sock"

    @property
    def url(self) -> str:
        url: str = self.document["urls"]["port"]
        return url

    @property
    def port(self) -> int:
        port: int = self.document["port"]
        return port

    def http(self, path: str) -> str:
        """Where something is told over HTTP."""
        return f"{self.document['urls']['http_port']}{path}"

    def waited_at(self, number: int) -> None:
        """Come back when so many calls wait there; it has to have a port for metrics."""

        def counted() -> bool:
            with urllib.request.urlopen(self.http("/metrics"), timeout=PATIENCE) as answer:
                return f"\npenstock_server_waiting {number}.0\n" in answer.read().decode()

        until(counted)

    def kill(self) -> None:
        """As power cuts and the kernel do it."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def ended(self) -> int:
        """Its exit status."""
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        """End it in order; answers its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def __enter__(self) -> Self:
        return self.ready()

    def __exit__(self, *_: object) -> None:
        for heir in self._heirs:
            heir.__exit__()
        for pid in self._successors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.kill()
        self.out.end()
        self.err.end()


class FreshServing(Serving):
    """The program as a shell starts it, from nothing."""

    def _started(self, words: list[str], folder: Path) -> Any:
        return started(
            [*PROGRAM, *words],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
