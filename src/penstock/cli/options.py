"""Arguments and options that several commands have."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any

import typer

from penstock.cli import completion, values

TubeName = Annotated[str, typer.Argument(metavar="TUBE", help="The tube's name.", autocompletion=completion.tubes)]
Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Ids as they are printed; text that looks like a number is '\"7\"'."),
]
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids as they are printed.")]
SessionUuid = Annotated[
    str | None,
    typer.Option(
        "--session", envvar="PENSTOCK_SESSION", metavar="UUID", help="The session that holds the tasks: take prints it."
    ),
]
Delay = Annotated[
    Any,
    typer.Option(
        parser=values.delay, metavar="TIME", help="Not before this time has passed (30, 10m, 2h), or this date."
    ),
]
Ttl = Annotated[
    Any, typer.Option(parser=values.life, metavar="TIME", help="How long it may live, from when it is ready.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many, change nothing.")]


class OnConflict(Enum):
    """What becomes of a put whose key a live task has."""

    error = "error"
    ignore = "ignore"
    replace = "replace"
    restart = "restart"


@dataclass(frozen=True)
class PutOptions:
    """Options of the tasks that are put."""

    pri: Annotated[int | None, typer.Option(help="Lower comes first.")] = None
    ttl: Ttl = None
    ttr: Annotated[Any, typer.Option(parser=values.seconds, metavar="TIME", help="How long one run may last.")] = None
    delay: Delay = None
    lane: Annotated[str | None, typer.Option(help="The sub-queue it stands in.")] = None
    key: Annotated[str | None, typer.Option(help="Text that one live task of the tube may have.")] = None
    on_conflict: Annotated[
        OnConflict,
        typer.Option(metavar="WHAT", help="error, ignore, replace or restart, when a live task has the key."),
    ] = OnConflict.error
    put_id: Annotated[str | None, typer.Option(help="A put that is repeated with the same one stores nothing new.")] = (
        None
    )
    id: Annotated[str | None, typer.Option(help="The task's id, where the tube's ids are the caller's.")] = None
    max_attempts: Annotated[int | None, typer.Option(help="How many times it is tried before it is buried.")] = None
    keep: Annotated[
        Any, typer.Option(parser=values.keep, metavar="yes|no|TIME", help="How long it stays when it is done.")
    ] = None
    repeat: Annotated[
        Any, typer.Option(parser=values.seconds, metavar="TIME", help="Ready again this long after each ack.")
    ] = None

    def given(self) -> dict[str, Any]:
        """Those that were given, as Tube.put takes them."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        if self.id is not None:
            found["id"] = values.task_id(self.id)
        return {**found, "on_conflict": self.on_conflict.value}
