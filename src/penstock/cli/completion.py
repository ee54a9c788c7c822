"""Names that the shell completes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import typer

from penstock.cli import place, settings
from penstock.model.state import State


def tubes(context: typer.Context, incomplete: str) -> list[str]:
    """Tubes of the store that begin so."""
    return _completed(context, incomplete, lambda queue: [tube.name for tube in queue.tubes()])


def states(incomplete: str) -> list[str]:
    return [state.value for state in State if state.startswith(incomplete)]


def schedules(context: typer.Context, incomplete: str) -> list[str]:
    return _completed(context, incomplete, lambda queue: [schedule.name for schedule in queue.schedules()])


def _completed(context: typer.Context, incomplete: str, names: Callable[[Any], list[str]]) -> list[str]:
    """Whatever is wrong, a shell that completes must not be told of it."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with settings.given(_url(context), False), place.opened() as queue:
            return [name for name in names(queue) if name.startswith(incomplete)]
    except Exception:
        return []
    finally:
        logging.disable(before)


def _url(context: typer.Context | None) -> str | None:
    while context is not None:
        if found := context.params.get("url"):
            return str(found)
        context = context.parent  # type: ignore[assignment]
    return None
