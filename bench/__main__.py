"""`python -m bench [--quick] [--only NAME]... [--json]`."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import report, runner
from bench.cell import Cell, Row
from bench.cells import CELLS, NOTES
from bench.scale import FULL, QUICK, Scale


def chosen(wanted: list[str], quick: bool) -> list[Cell]:
    """Cells by name or pattern; all if none is named."""
    if not wanted:
        return [cell for cell in CELLS if cell.quick or not quick]
    found = [cell for cell in CELLS if any(fnmatch.fnmatch(cell.name, each) for each in wanted)]
    if not found:
        sys.exit(f"no cell is called {', '.join(wanted)}; there are {', '.join(cell.name for cell in CELLS)}")
    return found


def measure(cells: list[Cell], scale: Scale, folder: Path | None, console: Console) -> report.Measured:
    measured: list[tuple[Cell, list[Row]]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(cells))
        for cell in cells:

            def say(what: str, cell: Cell = cell) -> None:
                progress.update(bar, description=f"{cell.name}: {what}")

            try:
                found = runner.measure(cell, scale, folder, say)
            except Exception as error:
                found = [Row("penstock", note=f"failed: {type(error).__name__}: {error}"[:300])]
            measured.append((cell, found))
            progress.advance(bar)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure speed beside the peers.")
    parser.add_argument("--quick", action="store_true", help="smaller counts, under 90 seconds")
    parser.add_argument("--only", action="append", default=[], metavar="CELL", help="a cell's name or pattern")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure on (default: the system's temporary)")
    asked = parser.parse_args()
    cells = chosen(asked.only, asked.quick)
    console = report.console(to_stderr=asked.json)
    machine = report.machine()
    measured = measure(cells, QUICK if asked.quick else FULL, asked.dir, console)
    text = report.as_json(measured, machine, asked.quick, NOTES)
    if asked.json:
        print(text, end="")
    else:
        report.show(console, measured, NOTES)
        if report.source() != machine["source"]:
            console.print(
                "[red]the source was changed while it was measured: these figures are of no one version[/red]"
            )
    where = report.save(text)
    if not asked.json:
        console.print(f"written to {where.relative_to(Path.cwd()) if where.is_relative_to(Path.cwd()) else where}")
    return any(not found[0].figures for _, found in measured)


if __name__ == "__main__":
    sys.exit(main())
