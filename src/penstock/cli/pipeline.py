"""`penstock pipeline`: the history lake, its report, and back."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, settings, values
from penstock.cli.command import command, epilog
from penstock.cli.options import TubeName
from penstock.cli.place import check_store
from penstock.cli.signals import in_order
from penstock.cli.status import NOTHING_THERE
from penstock.model.errors import UsageError
from penstock.model.tube import check_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.lake import Lake

PANEL = "Pipeline"
Directory = Annotated[
    str, typer.Argument(metavar="LAKE", help="The lake: a directory that all of Spark's machines share.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Where Spark runs. If left out, spark-submit says, or it is here.")
]
URL = "PENSTOCK_URL"


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(rich_markup_mode="rich", epilog=epilog(["penstock pipeline run lake"]))
    group.callback(invoke_without_command=True)(pipeline)
    examples: dict[Callable[..., None], list[str]] = {
        run: ["penstock pipeline run lake", "penstock pipeline run lake --purge --json"],
        report: ["penstock pipeline report lake", "penstock pipeline report lake --output mail.html --tube mail"],
        replay: [
            "penstock pipeline replay lake mail --id again --where \"state = 'buried'\"",
            "penstock pipeline replay lake mail --id all --dry-run",
        ],
        compact: ["penstock pipeline compact lake"],
        vacuum: ["penstock pipeline vacuum lake", "penstock pipeline vacuum lake --older-than 2h --dry-run"],
        readers: ["penstock pipeline readers"],
        forget: ["penstock pipeline forget dashboard"],
    }
    for function, lines in examples.items():
        command(group, function.__name__, panel=PANEL, examples=lines)(function)
    app.add_typer(group, name="pipeline", rich_help_panel="Store")


def pipeline(context: typer.Context) -> None:
    """Keep the history of tubes in a lake, and study it; needs penstock\\[spark]."""
    if context.invoked_subcommand is None:
        context.get_help()


def run(
    lake: Directory,
    every: Annotated[
        Any,
        typer.Option(parser=values.seconds, metavar="TIME", help="Go on, with a pause of this length, until Ctrl-C."),
    ] = None,
    purge: Annotated[
        bool, typer.Option(help="Forget events in the queue once they are in the lake and nobody else needs them.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="Events of one step, at most.")] = 2_000_000,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Go on although events were removed that are not in the lake.")
    ] = False,
    master: Master = None,
) -> None:
    """Bring events that are not in the lake yet into it: raw, as lives and attempts of tasks, and counted.

    Tubes need the option history; what they did before they had it is not known. A run that is cut off anywhere is
    simply started again, and two at a time do no harm.
    """
    check_count(limit, "limit")
    found = _lake(lake, new=True)
    with in_order(), _spark(master, queue=True) as (spark, url):
        from penstock.pipeline.run import keep_on
        from penstock.pipeline.run import run as to_end

        def once() -> None:
            with output.progress("into the lake", _pending(url, found)) as tell:
                done = to_end(spark, url, found, limit=limit, purge=purge, allow_loss=allow_loss, tell=tell)
            if done.held_by is not None:
                output.message(
                    f"the queue keeps events that are in the lake: {done.held_by} has not read them; "
                    f"`penstock pipeline forget {shlex.quote(done.held_by)}` if it will not come back"
                )
            output.number("events", done.events, **{k: v for k, v in asdict(done).items() if k != "events"})

        if every is None:
            once()
        else:
            keep_on(once, float(every), output.complain)


def report(
    lake: Directory,
    to: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page; one that is there is replaced.")
    ] = "report.html",
    tube: Annotated[str | None, typer.Option(metavar="TUBE", help="Only this one.")] = None,
    master: Master = None,
) -> None:
    """Write a page with charts that says how the queue is doing; it is one file that a browser opens.

    With --json the figures are printed, and no page is written.
    """
    found = _lake(lake)
    with in_order(), _spark(master) as (spark, _), output.progress("counting"):
        from penstock.pipeline.gold import figures

        told = figures(spark, found, tube)
    if tube is not None and not told.counts.events:
        raise UsageError(f"no event of tube {tube!r} is in {lake}; is that its name, and has it a history?")
    if output.as_json():
        output.json_line(told.document())
        return
    from penstock.pipeline.report import write_report

    try:
        output.line(str(write_report(told, to)))
    except OSError as error:
        raise UsageError(f"--output {to} cannot be written: {error.strerror}; name another file") from None


def replay(
    lake: Directory,
    tube: TubeName,
    id: Annotated[
        str, typer.Option(metavar="NAME", help="Of the replay: with the same one it goes on, and puts nothing twice.")
    ],
    where: Annotated[
        str,
        typer.Option(
            metavar="SQL", help="Which tasks; --dry-run tells how many. If left out, all that are done or buried."
        ),
    ] = "true",
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also tasks that wait or run; they are there twice then.")
    ] = False,
    chunk: Annotated[int, typer.Option(metavar="N", help="Tasks of one transaction, about.")] = 100_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and put nothing.")] = False,
    master: Master = None,
) -> None:
    """Put tasks into a tube again that the lake knows, each once.

    Columns for --where: tube, task_id, lane, key, pri, state (done, buried, ready, delayed, taken), reason (success,
    expired, cancelled, deleted, no_attempts, ..), takes, fails, lost, waited, ran, began_at, taken_at, ended_at,
    error_class, error. The tubes the tasks come from need the option history_data.
    """
    check_count(chunk, "chunk")
    found = _lake(lake)
    with in_order(), _spark(master, queue=True) as (spark, url), output.progress("replay") as tell:
        from penstock.pipeline.replay import replay as put_again

        more: dict[str, Any] = {"where": where, "unfinished": unfinished, "chunk": chunk, "dry_run": dry_run}
        done = put_again(spark, url, found, tube, id, **more, tell=lambda done, _: tell(done))
    if done.without_data:
        output.message(f"{output.tasks(done.without_data)} came without data: their tube had no history_data")
    if done.unfinished:
        output.message(f"{output.tasks(done.unfinished)} left out that wait or run; --unfinished puts them too")
    told = asdict(done)
    name = "tasks" if dry_run else "put"
    output.number(name, told.pop(name), **told)
    if not done.tasks:
        raise typer.Exit(NOTHING_THERE)


def compact(lake: Directory, master: Master = None) -> None:
    """Put the small files of many steps together, so that reading is fast; steps and readers go on meanwhile."""
    found = _lake(lake)
    with in_order(), _spark(master) as (spark, _), output.progress("compacting"):
        from penstock.pipeline.compact import compact as merge

        done = merge(spark, found)
    output.number("before", done.before, after=done.after, version=done.version)


def vacuum(
    lake: Directory,
    older_than: Annotated[
        Any,
        typer.Option(
            parser=values.seconds, metavar="TIME", help="Leave what was needed or written since; 1d if left out."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and remove nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also what is younger than an hour: nobody may use the lake meanwhile.")
    ] = False,
) -> None:
    """Remove files that no version of the lake needs: of runs that were cut off, and from before compactions."""
    from penstock.pipeline.vacuum import DAY
    from penstock.pipeline.vacuum import vacuum as clean

    age = DAY if older_than is None else float(older_than)
    done = clean(_lake(lake), older_than=age, dry_run=dry_run, force=force)
    output.number("directories", done.directories, bytes=done.bytes, versions=done.versions)


def readers() -> None:
    """List who reads the events of the queue and how far; what one of them has not read is not purged."""
    with _feeds() as (feeds, engine):
        found = sorted(feeds.positions(engine).items(), key=lambda it: it[1])
    if not output.as_json():
        output.table(("reader", "seq"), found, right=("seq",))
        return
    for name, seq in found:
        output.json_line({"reader": name, "seq": seq})


def forget(
    reader: Annotated[str, typer.Argument(metavar="READER", help="As `penstock pipeline readers` calls it.")],
) -> None:
    """Wait no longer for a reader of events that will not come back: a stream, or a lake that was removed."""
    with _feeds() as (feeds, engine):
        if reader not in feeds.positions(engine):
            raise UsageError(f"nobody called {reader!r} reads events; `penstock pipeline readers` lists who does")
        feeds.leave(engine, reader)
    output.number("forgotten", 1, reader=reader)


@contextmanager
def _feeds() -> Iterator[tuple[Any, Any]]:
    """What keeps the positions of readers, and the store that has them."""
    from penstock.engines import open_engine
    from penstock.spark import feeds

    url = settings.url()
    check_store(url)
    engine = open_engine(url, None, "strict")
    try:
        yield feeds, engine
    finally:
        engine.close()


def _lake(directory: str, new: bool = False) -> Lake:
    """The lake there; an error before Spark starts if there is none, or no Spark."""
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.session import check_installed

    check_installed()
    found = Lake(directory)
    if new:
        found.check_free()
    else:
        found.needed()
    return found


@contextmanager
def _spark(master: str | None, queue: bool = False) -> Iterator[tuple[SparkSession, str]]:
    """A session, and the URL of the queue as its tasks are given it."""
    from penstock.pipeline.session import session

    url = ""
    if queue:
        check_store(settings.url())
        url = _unsecret(settings.url())
    with session(master) as spark:
        yield spark, url


def _unsecret(url: str) -> str:
    """Spark shows options in its plans, so a URL with a password goes by the environment."""
    from penstock.spark.options import resolved

    try:
        resolved(url)
    except UsageError:
        os.environ[URL] = url
        return f"env:{URL}"
    return url


def _pending(url: str, lake: Any) -> int:
    """About how many events there are to come."""
    from penstock.model import ops
    from penstock.spark.options import Options
    from penstock.spark.place import Place

    every = 10_000
    marks = Place(Options({"url": url})).store().execute(ops.MarkHistory(lake.snapshot().upto, every, 1000))
    return len(marks) * every
