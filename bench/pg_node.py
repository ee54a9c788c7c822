"""Peers written for Node: npm installs them into a folder of the virtualenv, and each round is a process of its own."""

from __future__ import annotations

import functools
import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.pg_order import BULK, WARM, Order
from bench.pg_phase import Phase, Phases
from bench.pg_server import Place

CACHE = Path(sys.prefix) / "bench-npm"
SCRIPTS = Path(__file__).with_name("peers")
OLDEST = (22, 18)
"""The oldest Node that both peers run on; where the system's is older, npm brings one."""
NODE = "24.21.0"
PATIENCE = 300.0


@dataclass(frozen=True)
class NodePeer:
    """A package of npm and the script that measures it."""

    NAME: str
    version: str
    script: str

    def missing(self) -> str:
        return _install(self.NAME, self.version) or _node()[1]

    def measure(self, place: Place, order: Order) -> Phases:
        """Run the script where its package is, as that is where Node looks for it."""
        home = CACHE / self.NAME
        for script in SCRIPTS.glob("*.mjs"):
            shutil.copy(script, home)
        asked = {**asdict(order), "url": place.server.url, "schema": place.name, "warm": WARM, "bulk": BULK}
        done = subprocess.run(
            [_node()[0], self.script, json.dumps(asked)],
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * order.limit + 60,
            check=False,
        )
        if done.returncode or not done.stdout.strip():
            raise RuntimeError(f"{self.NAME}: {(done.stderr or done.stdout).strip()[-300:] or 'no answer'}")
        return {name: Phase(**found) for name, found in json.loads(done.stdout.strip().splitlines()[-1]).items()}


@functools.cache
def _install(name: str, version: str) -> str:
    """Have a package in the cache. Why it cannot be had, or nothing; asked once in a run."""
    home = CACHE / name
    if _installed(home, name) == version:
        return ""
    if not shutil.which("npm"):
        return "not present: no npm program"
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", f"{name}@{version}"]
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"not present: npm did not end within {PATIENCE:g} seconds"
    if done.returncode:
        errors = re.findall(r"^npm (?:error|ERR!) (?!code|A complete|In most)(.+)", done.stderr, re.MULTILINE)
        return f"not present: npm: {errors[0] if errors else done.stderr.strip()[-200:]}"
    return ""


def _installed(home: Path, name: str) -> str | None:
    try:
        found = json.loads((home / "node_modules" / name / "package.json").read_text())
    except OSError:
        return None
    return str(found["version"])


@functools.cache
def _node() -> tuple[str, str]:
    """The program, or why there is none that is new enough."""
    if found := shutil.which("node"):
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
        numbers = re.match(r"v(\d+)\.(\d+)", said)
        if numbers and (int(numbers[1]), int(numbers[2])) >= OLDEST:
            return found, ""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    system = platform.system().lower()
    name = f"node-{'bin-' if (system, machine) == ('darwin', 'arm64') else ''}{system}-{machine}"
    why = _install(name, NODE)
    return str(CACHE / name / "node_modules" / name / "bin" / "node"), why and f"Node {OLDEST[0]} or later is {why}"


GRAPHILE = NodePeer("graphile-worker", "0.18.0", "graphile.mjs")
# 12.38 asks for a rrule-temporal that was not in every mirror of npm when this was written.
PGBOSS = NodePeer("pg-boss", "12.35.0", "pgboss.mjs")
NOTES = {
    GRAPHILE.NAME: f"{GRAPHILE.version} on Node, its worker: alone it fetches and deletes one job at a time; a batch "
    "is its local queue of that size with 24 jobs at once and acks sent together. Its take and ack cannot be called "
    "one without the other. A dead worker's jobs come back after four hours; one at a time by named queues; no "
    "fencing, rates or ttl",
    PGBOSS.NAME: f"{PGBOSS.version} on Node: send, insert, fetch and complete, called one after the other, since its "
    "worker rests between polls; completed jobs stay until its maintenance deletes them, which is not counted",
}
