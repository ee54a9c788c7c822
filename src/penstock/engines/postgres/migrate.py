"""`python -m penstock.engines.postgres.migrate URL` makes a schema or brings it up to date.

With `--sql` it changes nothing and prints the script that would, for somebody who runs it with psql.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import psycopg

from penstock.engines.postgres import migrations
from penstock.engines.postgres.connections import full_conninfo
from penstock.engines.postgres.place import Place
from penstock.model.errors import EngineUnavailable, PenstockError


def run(url: str, only_script: bool = False) -> str:
    """Bring the schema of a URL up to date, or answer the script that does."""
    place = Place.parse(url)
    try:
        with psycopg.connect(full_conninfo(place), autocommit=True) as connection:
            connection.execute("set standard_conforming_strings = on")
            if only_script:
                return migrations.script(place.schema, migrations.tubes_of(connection, place.schema))
            before = migrations.migrate(connection, place.schema)
    except psycopg.OperationalError as error:
        raise EngineUnavailable(f"PostgreSQL cannot be reached: {str(error).strip().splitlines()[0]}") from None
    had = f"it had {before}" if before else "it is new"
    return f"schema {place.schema!r} has version {migrations.VERSION}; {had}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.engines.postgres.migrate", description=__doc__)
    parser.add_argument("url", help="postgresql://user@host/database?schema=penstock")
    parser.add_argument("--sql", action="store_true", help="print the script instead of running it")
    given = parser.parse_args(arguments)
    try:
        sys.stdout.write(run(given.url, given.sql))
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return type(error).exit_status()
    return 0


if __name__ == "__main__":
    sys.exit(main())
