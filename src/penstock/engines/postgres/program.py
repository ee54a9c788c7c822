"""What the programs of this engine share. It is imported where the driver is missing, so it must not need it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from penstock.model.errors import PenstockError, UsageError


def missing_driver(error: ImportError) -> UsageError:
    return UsageError(f"PostgreSQL needs psycopg ({error}): pip install 'penstock[postgres]'")


def without_driver(module: str, error: ImportError) -> NoReturn:
    """psycopg is not installed: a program says so and ends, a module that is imported raises."""
    refusal = missing_driver(error)
    if module != "__main__":
        raise refusal from None
    sys.exit(told(refusal))


def reported(call: Callable[[], int]) -> int:
    """The exit status of a program; what is refused is one line on stderr."""
    try:
        return call()
    except PenstockError as error:
        return told(error)


def told(error: PenstockError) -> int:
    sys.stderr.write(f"{' '.join(str(error).split())}\n")
    return type(error).exit_status()
