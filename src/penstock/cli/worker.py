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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli import completion, output, settings
from penstock.cli.command import command
from penstock.cli.signals import Starting
from penstock.cli.watch import watched
from penstock.engines import MEMORY, store_name
from penstock.metrics.graphite import Pusher
from penstock.metrics.logs import TEXT, JsonFormatter
from penstock.model.errors import PenstockError, TaskFailed, UsageError, shown
from penstock.schedules import SCHEDULES
from penstock.worker import Tally, Worker
from penstock.worker.app import App

HOW_TO_STOP = "Ctrl-C or SIGTERM finishes what runs, again stops at once; SIGHUP reloads the code"
PATIENCE = 10.0
"""Seconds that the store may take to let go of the program's own queue."""


_TOLD: dict[str, Any] = {"rich_help_panel": "Logs and metrics"}


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
            "penstock worker shop:q --until-empty --fail-on-error",
        ],
    )(worker)


@dataclass(frozen=True)
class Wanted:
    """What a worker is asked to be."""

    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="How many handlers run at once.")] = 10
    tube: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=WEIGHT]",
            autocompletion=completion.tubes,
            help="Take from this tube alone; may be repeated. A higher weight gets more turns.",
        ),
    ] = None
    prefetch: Annotated[
        int | None, typer.Option(help="How many tasks to fetch ahead at most; few are while handlers take long.")
    ] = None
    grace: Annotated[
        float, typer.Option(help="Seconds that running handlers have to end when the worker is told to stop.")
    ] = 30
    processes: Annotated[
        int | None, typer.Option(help="How many processes handlers with process=True have; one a core if left out.")
    ] = None

    @property
    def weights(self) -> dict[str, float] | None:
        """The tubes, `name` or `name=weight`, as a worker has them."""
        if not self.tube:
            return None
        weights = dict[str, float]()
        for text in self.tube:
            name, equals, weight = text.partition("=")
            try:
                weights[name] = float(weight) if equals else 1.0
            except ValueError:
                raise UsageError(f"--tube is NAME or NAME=WEIGHT, such as mail=3, got {shown(text)}") from None
        return weights

    def worker(self, app: App) -> Worker:
        made = Worker(
            app.queue,
            concurrency=self.concurrency,
            tubes=self.weights,
            prefetch=self.prefetch,
            grace=self.grace,
            processes=self.processes,
        )
        made.app = app
        return made


@dataclass(frozen=True)
class Told:
    """What it tells about itself, and to whom."""

    log_level: Annotated[
        LogLevel,
        typer.Option(
            metavar="LEVEL", help="debug, info, warning or error: the least that is logged, on stderr.", **_TOLD
        ),
    ] = LogLevel.info
    log_format: Annotated[LogFormat, typer.Option(metavar="FORMAT", help="text or json.", **_TOLD)] = LogFormat.text
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Serve metrics for Prometheus at http://HOST:PORT/metrics.", **_TOLD),
    ] = None
    metrics_host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to serve them; 0.0.0.0 is for other machines.", **_TOLD)
    ] = "127.0.0.1"
    graphite: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Push metrics to Graphite at host:port, or host:port/udp.", **_TOLD),
    ] = None

    @contextmanager
    def collecting(self, made: Worker, queue: Any, teller: Teller) -> Iterator[None]:
        """Serve and push metrics for as long as the worker runs."""
        with ExitStack() as stack:
            if self.metrics_port is not None:
                from penstock.metrics import prometheus

                endpoint = stack.enter_context(prometheus.serve(queue, made, self.metrics_port, self.metrics_host))
                teller.say(f"penstock worker {os.getpid()}: metrics at {endpoint.url}")
            if self.graphite is not None:
                address, _, transport = self.graphite.partition("/")
                stack.enter_context(Pusher(queue, address, transport or "tcp", worker=made))
            yield


def worker(
    program: Annotated[
        str, typer.Argument(metavar="MODULE:QUEUE", help="The module with the handlers, and the name of its queue.")
    ],
    wanted: Wanted,
    told: Told,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is ready, delayed or taken.")
    ] = False,
    horizon: Annotated[
        float | None,
        typer.Option(help="With --until-empty: do not wait for tasks delayed by more than so many seconds."),
    ] = None,
    fail_on_error: Annotated[
        bool,
        typer.Option("--fail-on-error", help="Exit with 80 when a run has failed, also if a later one made it good."),
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Reload the code whenever a file of it changes; for development.")
    ] = False,
) -> int:
    """Run the handlers of a program: take tasks, call functions, until told to stop.

    The program is a module with a queue, as in `q = penstock.connect(..)` with functions under `@q.handler(..)`.
    --url is handed to it as PENSTOCK_URL, and its queue has to be that one.
    """
    if horizon is not None and not until_empty:
        raise UsageError("--horizon says what --until-empty waits for: give both or neither")
    teller = Teller(told.log_level, told.log_format)
    app, starting = App(program), Starting()
    with starting.heard():
        if not _load(app):
            return UsageError.exit_status()
        began = time.monotonic()
        try:
            _check_store(app)
            made = wanted.worker(app)

            def begin() -> None:
                teller.begin(made.concurrency, app.queue, wanted.weights)
                starting.over()

            made.on_start = begin
            with told.collecting(made, app.queue, teller), watched(app) if reload else nullcontext():
                made.run(until_empty=until_empty, horizon=horizon)
        except BaseException:
            _close(app.queue)
            raise
        facts = _facts(made.tally, time.monotonic() - began)
        teller.say(_ending(made.tally, facts["seconds"]), **facts)
        if output.as_json():
            output.json_line(facts)
        status = TaskFailed.exit_status() if fail_on_error and made.tally.trouble else 0
        return _leave(app, made, status)


def _load(app: App) -> bool:
    """Import the program. What its code raises is the person's own: told with the lines it came from."""
    if settings.settings().url:
        os.environ["PENSTOCK_URL"] = settings.url()
    try:
        app.load()
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, KeyError) and error.args == ("PENSTOCK_URL",):
            settings.url()  # which says what to do when there is none
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
        lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
        trace = "".join(lines).rstrip()
        refused = UsageError(f"{app.module} cannot be imported, so there are no handlers to run: {lines[-1]}")
        if output.as_json():
            output.complain(refused, trace=trace)
        else:
            output.message(trace)
            output.complain(refused)
        return False
    return True


def _check_store(app: App) -> None:
    """A program that has another URL written into it would work elsewhere than it was told."""
    url, name = settings.settings().url, app.queue._engine.name
    if not url or name == store_name(url) or (url.lower() == MEMORY and name.startswith("memory")):
        return
    raise UsageError(
        f"--url is {store_name(url)}, but the queue of {app.module} is {name}: it does not read PENSTOCK_URL; write "
        'q = penstock.connect(os.environ["PENSTOCK_URL"]), or leave out --url'
    )


def _is_machinery(file: str) -> bool:
    return file.startswith("<frozen importlib") or os.path.dirname(file) in (
        os.path.dirname(__file__),
        os.path.dirname(sys.modules[App.__module__].__file__ or ""),
        os.path.dirname(sys.modules["importlib"].__file__ or ""),
    )


def _leave(app: App, made: Worker, status: int) -> int:
    """Close the program's queue; answers the exit status, or ends here when something still runs."""
    if made.cut_short:
        status = 128 + int(getattr(signal, made.cut_short))
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
        output.complain(error)


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

    def begin(self, slots: int, queue: Any, weights: dict[str, float] | None) -> None:
        functions, store = _functions(queue, weights), queue._engine.name
        tubes = ", ".join(f"{tube} ({function or 'no handler'})" for tube, function in functions.items())
        text = f"{slots} slot{'' if slots == 1 else 's'} for {tubes or 'nothing'} of {store}. {HOW_TO_STOP}."
        facts = {"pid": os.getpid(), "store": store, "slots": slots, "handlers": functions}
        self.say(f"penstock worker {os.getpid()}: {text}", **facts)

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
