"""`python -m penstock.engines.postgres.migrate URL` makes a schema or brings it up to date.

With `--force` it makes all functions anew, whatever is there. With `--sql` it changes nothing and prints the script
that would, for somebody who runs it with psql.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.engines.migrated import Migrated
from penstock.engines.postgres import program

try:
    from penstock.engines.postgres import migrations
    from penstock.engines.postgres.connections import Connection, check_server, visit
    from penstock.engines.postgres.place import Place
except ImportError as error:
    program.without_driver(__name__, error)


def run(url: str, only_script: bool = False, force: bool = False) -> str:
    """Bring the schema of a URL up to date, or answer the script that does."""
    return script(url) if only_script else f"{migrate(url, force)}\n"


def migrate(url: str, force: bool = False) -> Migrated:
    """Bring the schema of a URL up to date."""
    place = Place.parse(url)
    with _visit(place) as connection:
        before = migrations.migrate(connection, place.schema, force)
    return Migrated(f"schema {place.schema!r}", migrations.VERSION, before)


def script(url: str) -> str:
    """What brings the schema of a URL up to date."""
    place = Place.parse(url)
    with _visit(place) as connection:
        return migrations.script(place.schema, migrations.tubes_of(connection, place.schema))


@contextmanager
def _visit(place: Place) -> Iterator[Connection]:
    with visit(place) as connection:
        check_server(connection)
        connection.execute("set standard_conforming_strings = on")
        yield connection


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.engines.postgres.migrate",
        description="Makes the schema of a queue on PostgreSQL, or brings it up to date",
    )
    parser.add_argument("url", help="postgresql://user@host/database?schema=penstock")
    parser.add_argument("--force", action="store_true", help="make all functions anew, also if nothing has changed")
    parser.add_argument("--sql", action="store_true", help="print the script instead of running it")
    given = parser.parse_args(arguments)
    sys.stdout.write(run(given.url, given.sql, given.force))
    return 0


if __name__ == "__main__":
    sys.exit(program.reported(main))
