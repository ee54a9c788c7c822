"""Making a SQLite store or bringing it up to date, by itself. connect() does the same."""

from __future__ import annotations

from penstock.engines.migrated import Migrated
from penstock.engines.sqlite.database import Database, migrations
from penstock.engines.sqlite.place import Place
from penstock.engines.sqlite.store import SqliteStore
from penstock.model.clock import SystemClock
from penstock.model.errors import NotWritable


def migrate(url: str) -> Migrated:
    """Bring a file up to date; it is made if it is not there."""
    place = Place.parse(url)
    if place.read_only:
        raise NotWritable(f"{place.path} was opened to be read: leave ?mode=ro out to migrate it")
    before = _version(place)
    SqliteStore(place, SystemClock()).close()
    return Migrated(str(place.path), _version(place), before)


def script(url: str) -> str:
    """What brings a file up to date, for the sqlite3 program; a comment if nothing has to be done."""
    place = Place.parse(url)
    before, steps = _version(place), migrations("migrations")
    if before >= len(steps):
        return f"-- {place.path} has version {before}, this Penstock has {len(steps)}: nothing is to be done\n"
    done = f"UPDATE penstock_store SET schema = {len(steps)};"  # noqa: S608
    return "\n".join(["BEGIN IMMEDIATE;", *(text.strip() for text in steps[before:]), done, "COMMIT;"]) + "\n"


def _version(place: Place) -> int:
    """The version a file has; 0 if it is not there, or empty."""
    if not place.path.exists():
        return 0
    database = Database(place.path, "NORMAL", read_only=True)
    try:
        return database.schema_version()
    finally:
        database.close()
