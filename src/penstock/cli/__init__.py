"""The command line: `penstock --help`."""

from __future__ import annotations

import sys


def main() -> None:
    """The program `penstock`; what it needs beyond the base install is named when it is missing."""
    try:
        from penstock.cli.app import run

        run()
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"penstock: the command line needs {error.name}: pip install 'penstock[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
