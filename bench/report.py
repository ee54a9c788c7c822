"""What was measured, as a table to read and as JSON to keep."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock
from bench.cell import Cell, Row

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
Measured = list[tuple[Cell, list[Row]]]
COLOURS = {"ok": "green", "short": "red"}


def machine() -> dict[str, Any]:
    """Where the figures come from: they mean little elsewhere."""
    return {
        "source": source(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {name: _version(name) for name in ("penstock", "apsw", "huey", "litequeue", "persist-queue")},
        "tarantool": _program("tarantool", "--version"),
        "beanstalkd": _program("beanstalkd", "-v"),
    }


def source() -> str:
    """A fingerprint of the package that is measured, wherever it was imported from."""
    home = Path(penstock.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(each for each in home.rglob("*") if each.suffix in (".py", ".sql")):
        digest.update(str(file.relative_to(home)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _program(name: str, option: str) -> str | None:
    if not shutil.which(name):
        return None
    done = subprocess.run([name, option], capture_output=True, text=True, timeout=10, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def as_json(measured: Measured, before: dict[str, Any], quick: bool, notes: dict[str, str]) -> str:
    cells = [
        {"name": cell.name, "section": cell.section, "ratio of": cell.main, "rows": [asdict(row) for row in found]}
        for cell, found in measured
    ]
    whole = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": before,
        "source after": source(),
        "load after": round(os.getloadavg()[0], 2),
        "cells": cells,
        "notes": notes,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def save(text: str) -> Path:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    return RESULTS


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(console: Console, measured: Measured, notes: dict[str, str]) -> None:
    """A table for every section, then what the peers do not do."""
    sections: dict[str, Measured] = {}
    for cell, found in measured:
        sections.setdefault(cell.section, []).append((cell, found))
    for title, cells in sections.items():
        console.print(_table(title, cells))
    for name, note in notes.items():
        console.print(f"[bold]{name}[/bold]: {note}", highlight=False)


def _table(title: str, cells: Measured) -> Table:
    names = list(dict.fromkeys(name for cell, _ in cells for name in sorted(cell.figures, key=_order)))
    ratios = any(row.ratio is not None for _, found in cells for row in found)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("cell", no_wrap=True)
    table.add_column("who", no_wrap=True)
    for name in (*names, "rounds", "spread", "busy", *(["ratio"] if ratios else []), "target"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for cell, found in cells:
        for row in found:
            ratio = [f"{row.ratio:.2f}x" if row.ratio is not None else ""] if ratios else []
            verdicts = " ".join(f"[{COLOURS[verdict]}]{verdict}[/]" for verdict in row.verdicts)
            table.add_row(
                cell.name if row is found[0] else "",
                row.subject,
                *(number(row.figures.get(name)) for name in names),
                str(row.rounds or ""),
                "" if row.spread is None else f"{row.spread:.0%}",
                "" if row.busy is None else f"{row.busy:.0%}",
                *ratio,
                ", ".join(row.targets),
                " ".join(filter(None, (verdicts, row.note[:60].replace("[", "(")))),
            )
        table.add_section()
    return table


def _order(name: str) -> int:
    """Columns as a reader expects them."""
    order = ["put/s", "take+ack/s", "cycle/s", "us/task", "p50 ms", "p99 ms"]
    return order.index(name) if name in order else len(order)


def console(to_stderr: bool) -> Console:
    """Wide enough for the tables when nobody tells the width."""
    made = Console(file=sys.stderr if to_stderr else sys.stdout)
    return made if made.is_terminal else Console(file=made.file, width=130)
