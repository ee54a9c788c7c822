"""`penstock worker`: the handlers of a program, run until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli import output, settings
from penstock.cli.command import command
from penstock.cli.watch import watched
from penstock.metrics.graphite import Pusher
from penstock.metrics.logs import TEXT, JsonFormatter
from penstock.model.errors import PenstockError, UsageError, shown
from penstock.schedules import SCHEDULES
from penstock.worker import Tally, Worker
from penstock.worker.app import App

HOW_TO_STOP = "Ctrl-C or SIGTERM finishes what runs, again stops at once; SIGHUP reloads the code"
FAILED = 1
PATIENCE = 10.0
"""Seconds that the store may take to let go of the program's own queue."""


class LogFormat(StrEnum):
    """How lines of the log look."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """The least that is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(
        app,
        "worker",
        panel="Work",
        examples=[
            "penstock worker shop:q -c 32 --until-empty",
            "penstock worker shop:q --tube mail=3 --tube thumbs --until-empty --json",
        ],
    )(worker)


def worker(
    program: Annotated[
        str, typer.Argument(metavar="MODULE:QUEUE", help="The module with the handlers, and the name of its queue.")
    ],
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="How many handlers run at once.")] = 10,
    tube: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=WEIGHT]", help="Take from this tube alone; may be repeated. A higher weight gets more turns."
        ),
    ] = None,
    prefetch: Annotated[
        int | None, typer.Option(help="How many tasks to fetch ahead at most; few are while handlers take long.")
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds that running handlers have to end when the worker is told to stop.")
    ] = 30,
    processes: Annotated[
        int | None, typer.Option(help="How many processes handlers with process=True have; one a core if left out.")
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is ready, delayed or taken.")
    ] = False,
    horizon: Annotated[
        float | None,
        typer.Option(help="With --until-empty: do not wait for tasks delayed by more than so many seconds."),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Reload the code whenever a file of it changes; for development.")
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="The least that is logged, on stderr.")] = LogLevel.info,
    log_format: Annotated[LogFormat, typer.Option(help="Lines of text, or of JSON.")] = LogFormat.text,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve metrics for Prometheus at http://HOST:PORT/metrics.")
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to serve them; 0.0.0.0 is for other machines.")
    ] = "127.0.0.1",
    graphite: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[/udp]", help="Push metrics to Graphite, over TCP or UDP.")
    ] = None,
) -> int:
    """Run the handlers of a program: take tasks, call functions, until told to stop.

    The program is a module with a queue, as in `q = penstock.connect(..)` with functions under `@q.handler(..)`.
    --url is handed to it as PENSTOCK_URL.
    """
    if horizon is not None and not until_empty:
        raise UsageError("--horizon says what --until-empty waits for: give both or neither")
    teller = Teller(log_level, log_format)
    app = App(program)
    if not _load(app):
        return FAILED
    weights = _weights(tube)
    made = Worker(
        app.queue,
        concurrency=concurrency,
        tubes=weights,
        prefetch=prefetch,
        grace=grace,
        processes=processes,
    )
    made.app = app
    made.on_start = lambda: teller.begin(concurrency, _functions(app.queue, weights))
    began = time.monotonic()
    with ExitStack() as stack:
        if metrics_port is not None:
            from penstock.metrics import prometheus

            endpoint = stack.enter_context(prometheus.serve(app.queue, made, metrics_port, metrics_host))
            output.message(f"penstock: metrics at {endpoint.url}")
        if graphite is not None:
            stack.enter_context(_pusher(app, made, graphite))
        if reload:
            stack.enter_context(watched(app))
        tally = made.run(until_empty=until_empty, horizon=horizon)
    facts = _facts(tally, time.monotonic() - began)
    teller.say(_ending(tally, facts["seconds"]), **facts)
    if output.as_json():
        output.json_line(facts)
    return _leave(app, made)


def _load(app: App) -> bool:
    """Import the program. What its code raises is the person's own: told with the lines it came from."""
    if settings.settings().url:
        os.environ["PENSTOCK_URL"] = settings.url()
    try:
        app.load()
    except PenstockError:
        raise
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
        lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
        output.message("".join(lines).rstrip())
        output.complain(f"{app.module} cannot be imported, so there are no handlers to run")
        return False
    return True


def _is_machinery(file: str) -> bool:
    return file.startswith("<frozen importlib") or os.path.dirname(file) in (
        os.path.dirname(__file__),
        os.path.dirname(sys.modules[App.__module__].__file__ or ""),
        os.path.dirname(sys.modules["importlib"].__file__ or ""),
    )


def _leave(app: App, made: Worker) -> int:
    """Close the program's queue; answers the exit status, or ends here when something still runs."""
    status = 128 + getattr(signal, made.cut_short) if made.cut_short else 0
    closing = threading.Thread(target=_close, args=(app.queue,), name="penstock close", daemon=True)
    closing.start()
    closing.join(PATIENCE)
    if made.abandoned or closing.is_alive():
        # Threads of handlers cannot be stopped, and Python would wait for them.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _close(queue: Any) -> None:
    try:
        closing = queue.close()
        if closing is not None:
            asyncio.run(closing)
    except PenstockError as error:
        output.complain(str(error))


# -- what is told ----------------------------------------------------------------------------------


class Teller:
    """Lines of the program itself, in the form of its log: told whatever the level."""

    def __init__(self, level: str, form: LogFormat) -> None:
        self._handler = logging.StreamHandler(sys.stderr)
        self._json = form is LogFormat.json
        self._handler.setFormatter(JsonFormatter() if self._json else logging.Formatter(TEXT))
        root = logging.getLogger()
        root.addHandler(self._handler)
        root.setLevel(level.upper())

    def begin(self, slots: int, functions: dict[str, str | None]) -> None:
        tubes = ", ".join(f"{tube} ({function or 'no handler'})" for tube, function in functions.items())
        text = f"{slots} slot{'' if slots == 1 else 's'} for {tubes or 'nothing'}. {HOW_TO_STOP}."
        self.say(f"penstock worker {os.getpid()}: {text}", pid=os.getpid(), slots=slots, handlers=functions)

    def say(self, text: str, **facts: Any) -> None:
        if not self._json:
            output.message(text)
            return
        log = logging.getLogger("penstock.worker")
        self._handler.handle(log.makeRecord(log.name, logging.INFO, "", 0, text, (), None, None, facts))


def _functions(queue: Any, weights: dict[str, float] | None) -> dict[str, str | None]:
    """The functions by tube; None where there is none."""
    handlers = queue.handlers
    names = list(handlers) if weights is None else list(weights)
    return {name: getattr(handlers[name], "__qualname__", "handler") if name in handlers else None for name in names}


def _facts(tally: Tally, seconds: float) -> dict[str, Any]:
    """What a worker has done, as data."""
    return {
        "ok": tally.ok,
        "failed": tally.trouble,
        "given_back": tally.given_back,
        "lost": tally.lost,
        "seconds": round(seconds, 3),
        "tubes": {
            name: {"ok": tube.ok, "failed": tube.trouble, "seconds": round(tube.seconds, 6)}
            for name, tube in tally.tubes.items()
            if name != SCHEDULES
        },
    }


def _ending(tally: Tally, seconds: float) -> str:
    parts = [f"{tally.ok} done", f"{tally.trouble} failed"]
    if tally.given_back:
        parts.append(f"{tally.given_back} given back")
    if tally.lost:
        parts.append(f"{tally.lost} lost")
    return f"penstock worker {os.getpid()}: {', '.join(parts)} in {seconds:.1f} s"


def _weights(tubes: list[str] | None) -> dict[str, float] | None:
    """`name` or `name=weight`, as the worker has them."""
    if not tubes:
        return None
    weights = dict[str, float]()
    for text in tubes:
        name, equals, weight = text.partition("=")
        try:
            weights[name] = float(weight) if equals else 1.0
        except ValueError:
            raise UsageError(f"--tube is NAME or NAME=WEIGHT, such as mail=3, got {shown(text)}") from None
    return weights


def _pusher(app: App, made: Worker, where: str) -> Pusher:
    """`host:port`, with /udp or /tcp after it."""
    address, _, transport = where.partition("/")
    return Pusher(app.queue, address, transport or "tcp", worker=made)
