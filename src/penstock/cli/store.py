"""`penstock migrate` and `penstock doctor`: the store itself, whatever is in it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from penstock.cli import output, settings
from penstock.cli.command import command
from penstock.engines import engine_name, store_name
from penstock.engines.finding import exit_status, shown, summary
from penstock.model.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    command(app, "migrate", panel="Store", examples=["penstock migrate", "penstock migrate --sql"])(migrate)
    command(app, "doctor", panel="Store", examples=["penstock doctor", "penstock doctor --all --json"])(doctor)


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing: print the script that would.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="PostgreSQL: make all functions anew, whatever is there.")
    ] = False,
) -> None:
    """Make the tables of a queue, or bring them up to date.

    The first process that connects does the same. This is for when it may not, or should not be the one.
    """
    engine, url = _place("migrate")
    if engine == "sqlite" and force:
        raise UsageError("--force makes the functions of PostgreSQL anew; a SQLite file has none")
    work = _part(engine, "migrate")
    if sql:
        sys.stdout.write(work.script(url))
        return
    done = work.migrate(url, force) if engine == "postgresql" else work.migrate(url)
    if output.as_json():
        output.json_line(done._asdict())
    else:
        output.line(str(done))


def doctor(everything: Annotated[bool, typer.Option("--all", help="Print what is well, too.")] = False) -> int:
    """Look for what a store suffers from, or will; the worst comes first, each with what to do next.

    Nothing is changed. The exit status is 0, 1 or 2 as the worst finding is ok, warn or bad.
    """
    engine, url = _place("examine")
    work = _part(engine, "doctor")
    with output.progress("examining"):  # every page of a file is read
        findings = work.examine(url)
    if output.as_json():
        told = [finding._asdict() for finding in findings if everything or finding.level != "ok"]
        output.json_line({"place": work.named(url), "status": exit_status(findings), "findings": told})
    else:
        sys.stdout.write(summary(work.named(url), findings) + shown(findings, everything))
    return exit_status(findings)


def _place(verb: str) -> tuple[str, str]:
    """The engine and the URL."""
    url = settings.url()
    engine = engine_name(url)
    if engine == "memory":
        raise UsageError(f"there is nothing to {verb} in memory: such a queue is new in every process")
    if engine == "remote":
        raise UsageError(f"{store_name(url)} is a server: {verb} its store where the server runs")
    return engine, url


def _part(engine: str, name: str) -> Any:
    """A module of an engine; what it needs is imported only now."""
    return import_module(f"penstock.engines.{'postgres' if engine == 'postgresql' else engine}.{name}")
