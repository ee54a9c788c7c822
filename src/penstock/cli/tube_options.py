"""The options of a tube, for create and alter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from penstock.cli import values

PANEL = "Options of the tube (`none` goes back to none)"


def _flag(text: str) -> bool:
    if text in values.YES or text in values.NO:
        return text in values.YES
    raise typer.BadParameter(f"{text!r} is neither yes nor no")


def _word(text: str) -> str:
    return text


READ: dict[str, Callable[[str], Any]] = {
    "ttl": values.life,
    "ttr": values.seconds,
    "pri": values.whole,
    "capacity": values.whole,
    "max_attempts": values.whole,
    "retry": values.retry,
    "keep": values.keep,
    "keep_failed": values.keep,
    "concurrency": values.whole,
    "lane_concurrency": values.whole,
    "lane_rate": values.real,
    "lane_burst": values.whole,
    "lane_order": _word,
    "lane_pick": _word,
    "max_payload": values.whole,
    "history": _flag,
    "history_data": _flag,
}


def _option(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=PANEL)


@dataclass(frozen=True)
class TubeOptions:
    """As they were written; `given` reads them."""

    ttl: Annotated[str | None, _option("TIME|derived", "How long tasks may live.")] = None
    ttr: Annotated[str | None, _option("TIME", "How long one run of a task may last.")] = None
    pri: Annotated[str | None, _option("N", "The priority of tasks put without one.")] = None
    capacity: Annotated[str | None, _option("N", "How many tasks it holds.")] = None
    max_attempts: Annotated[str | None, _option("N", "How many times a task is tried.")] = None
    retry: Annotated[
        str | None,
        _option("TIMES", "Waits after failures: 30, or 1,5,30, or exponential:base=1,factor=2,max=1h,jitter=0.1"),
    ] = None
    keep: Annotated[str | None, _option("yes|no|TIME", "How long tasks stay when they are done.")] = None
    keep_failed: Annotated[str | None, _option("yes|no|TIME", "The same for expired and cancelled tasks.")] = None
    concurrency: Annotated[str | None, _option("N", "How many of its tasks may be taken at once.")] = None
    lane_concurrency: Annotated[str | None, _option("N", "How many of a lane may be taken at once.")] = None
    lane_rate: Annotated[str | None, _option("N", "How many of a lane a second.")] = None
    lane_burst: Annotated[str | None, _option("N", "How many of a lane at once after idling.")] = None
    lane_order: Annotated[
        str | None, _option("skip|strict", "Whether delayed and buried tasks hold up their lane.")
    ] = None
    lane_pick: Annotated[str | None, _option("turns|order", "How the next of the open lanes is chosen.")] = None
    max_payload: Annotated[str | None, _option("BYTES", "How long the data of a task may be.")] = None
    history: Annotated[str | None, _option("yes|no", "Write down every change.")] = None
    history_data: Annotated[str | None, _option("yes|no", "With the data of the task.")] = None

    def given(self) -> dict[str, Any]:
        """Those that were given, as create_tube takes them."""
        return {name: values.option(name, text, READ[name]) for name, text in asdict(self).items() if text is not None}
