"""A connection to one SQLite file, opened the way a queue needs it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import apsw

from penstock.engines.sqlite.statements import named
from penstock.model.errors import EngineUnavailable, SchemaMismatch, UsageError

OLDEST = (3, 51, 3)
"""Older libraries can corrupt a WAL file that several processes write to."""
BUSY_SECONDS = 30.0
STATEMENTS = 512
PAGE = 2048
"""Smaller than SQLite's usual 4096: a verb changes a few short rows, and a commit writes whole pages."""
Level = Literal["OFF", "NORMAL", "FULL"]
LEVELS: dict[Level, int] = {"OFF": 0, "NORMAL": 1, "FULL": 2}
Row = tuple[Any, ...]


class Database:
    """One connection. Errors of SQLite become errors of Penstock."""

    def __init__(self, path: Path, level: Level, read_only: bool = False) -> None:
        check_library(apsw.sqlite_lib_version())
        self.path = path
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if not read_only and not path.exists():
            _create_private(path)
        try:
            self.connection = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS)
            self.connection.set_busy_handler(_Patience())
            self.execute = self.connection.execute
            self._level: Level = level
            self._set_up(level, read_only)
        except apsw.CantOpenError as error:
            raise EngineUnavailable(
                f"cannot open {path}: {error}; does its folder exist, and may you write there?"
            ) from error
        except apsw.NotADBError as error:
            raise UsageError(f"{path} is not a SQLite database; name another file, a new one is made") from error
        except apsw.Error as error:
            raise unavailable(path, error) from error

    @classmethod
    def over(cls, path: Path, connection: apsw.Connection) -> Database:
        """A connection that somebody else has opened and will close."""
        database = cls.__new__(cls)
        database.path, database.connection = path, connection
        database.execute = connection.execute
        return database

    def _set_up(self, level: Level, read_only: bool) -> None:
        connection = self.connection
        # Plans that do not depend on bound values: else SQLite prepares a statement anew when a value changes.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if not read_only:
            connection.pragma("page_size", PAGE)
            mode = connection.pragma("journal_mode", "wal")
            if mode != "wal":
                raise EngineUnavailable(
                    f"{self.path} cannot use a write-ahead log (it says {mode}); is it on a network disk?"
                )
            connection.pragma("wal_autocheckpoint", 2000)
            connection.pragma("journal_size_limit", 64 << 20)
        connection.pragma("trusted_schema", False)
        connection.pragma("cell_size_check", True)
        connection.pragma("cache_size", -65536)
        connection.pragma("temp_store", "memory")
        connection.pragma("synchronous", level)
        if connection.pragma("synchronous") != LEVELS[level]:
            raise EngineUnavailable(f"{self.path} does not take synchronous={level}, so nothing could be promised")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return self.execute(sql, values).fetchone()

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def require(self, level: Level) -> None:
        """Make the next commit as durable as this."""
        if level != self._level:
            self.connection.execute(f"PRAGMA synchronous={level}")
            self._level = level

    def migrate(self, folder: str) -> None:
        """Bring the schema up to date, one numbered file after the other, in one transaction each."""
        steps = migrations(folder)
        version = self.schema_version()
        if version > len(steps):
            raise SchemaMismatch(
                f"{self.path} has schema {version}, this library knows {len(steps)}: upgrade penstock to open it"
            )
        for number, text in enumerate(steps[version:], version + 1):
            with self.connection:
                self.execute(text)
                self.execute(named("store.sql")["save_schema"], (number,))

    def schema_version(self) -> int:
        """The last migration that was made; 0 for a file without our tables. Its user_version is the user's."""
        sql = named("store.sql")
        return int(self.value(sql["load_schema"])) if self.value(sql["has_store"]) else 0

    def check_integrity(self) -> None:
        """Refuse a damaged file rather than serve wrong data from it."""
        found = self.rows("PRAGMA quick_check(3)")
        if found != [("ok",)]:
            raise EngineUnavailable(f"{self.path} is damaged: {'; '.join(str(row[0]) for row in found)}")

    def close(self) -> None:
        self.connection.close()

    def disown(self) -> None:
        """Close in a forked child what the parent goes on using: touch neither the log nor any lock."""
        self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.connection.close(True)


def migrations(folder: str) -> list[str]:
    """The texts of the numbered files, oldest first."""
    found = sorted(files(__package__).joinpath(folder).iterdir(), key=lambda file: file.name)
    return [file.read_text() for file in found if file.name.endswith(".sql")]


def check_library(version: str) -> None:
    """Refuse a SQLite library that is too old."""
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST:
        need = ".".join(map(str, OLDEST))
        raise EngineUnavailable(
            f"SQLite {version} can corrupt a shared file; penstock needs {need} or later: upgrade apsw"
        )


def unavailable(path: Path, error: apsw.Error) -> EngineUnavailable:
    """What SQLite says, as our error. A failed commit is rolled back, so nothing of it was done."""
    hint = {
        apsw.BusyError: "another process holds the write lock for too long",
        apsw.FullError: "the disk is full",
        apsw.IOError: "the disk did not do what was asked",
        apsw.CorruptError: "the file is damaged",
        apsw.ReadOnlyError: "the file can only be read",
    }.get(type(error), "SQLite refused")
    return EngineUnavailable(f"{path}: {hint} ({error})", "not_done")


def _create_private(path: Path) -> None:
    """Tasks may be secret: the file belongs to its owner alone."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:
        raise EngineUnavailable(f"cannot create {path}: its folder does not exist") from None
    except PermissionError:
        raise EngineUnavailable(f"cannot create {path}: you may not write in its folder") from None


class _Patience:
    """Waits for another process's transaction: briefly and often, so that nobody is left behind for long."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, count: int) -> bool:
        if count == 0:
            self._since = time.monotonic()
        time.sleep(0.0002 if count < 20 else 0.001)
        return time.monotonic() - self._since < BUSY_SECONDS
