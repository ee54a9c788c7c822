"""Fleets: many workers on the executors of a Spark cluster, pulling tasks from one tube."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.blocking import Queue, connect
from penstock.engines import engine_name
from penstock.model import ops
from penstock.model.duration import FOREVER, SECOND, Seconds, length
from penstock.model.errors import EngineUnavailable, NotWritable, UsageError
from penstock.model.session import DEFAULT_TTL, check_ttl
from penstock.model.stats import Statistics
from penstock.model.tube import check_count
from penstock.spark.earlier import Earlier
from penstock.spark.options import resolved
from penstock.spark.progress import Follower, follower
from penstock.spark.roster import NOW, STOP, Roster, expire, refund
from penstock.spark.stores import absolute, machine
from penstock.spark.targets import define, target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("penstock.spark")
LOOK = 0.25
"""Seconds between two looks at the job."""
LAST_WORDS = 8.0
"""Seconds in which Spark kills the processes of a cancelled job, and those it spared end by themselves."""
CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "cancelled")
"""What Spark says of a job that somebody has ended."""


class Counts(NamedTuple):
    """What happened in the tube while the fleet worked, as the store counted it: work of others is in it."""

    taken: int = 0
    """Attempts that began."""
    done: int = 0
    failed: int = 0
    """Attempts that raised; those that were not the last one are tried again."""
    buried: int = 0
    given_back: int = 0
    late: int = 0
    """Attempts that lasted too long."""
    put: int = 0
    left: int = 0
    """Tasks that are ready, delayed or taken now."""


class Fleet:
    """A fleet that has done its work."""

    def __init__(self, spark: SparkSession, url: str, tube: str, run: str, counts: Counts, earlier: Earlier) -> None:
        self._spark = spark
        self._url = url
        self._earlier = earlier
        self.tube = tube
        self.run = run
        """Its name; workers are called spark:<run>:<number>, in the history too."""
        self.counts = counts

    def __repr__(self) -> str:
        return f"<Fleet {self.run}: {', '.join(f'{number} {name}' for name, number in self.counts._asdict().items())}>"

    def results(self) -> DataFrame:
        """What became of the tasks: those that are done since the fleet began and kept, and those buried since then.

        Results are stored with the ack, for as long as the tube keeps its tasks (keep=). What others did to the tube
        meanwhile is there too. The columns are those of feed results.
        """
        reader = self._spark.read.format("penstock").option("url", self._url).option("tube", self.tube)
        return self._earlier.later(self._spark, reader.option("states", "done,buried").load())


def fleet(
    spark: SparkSession,
    url: str | os.PathLike[str],
    tube: str,
    handler: str | Callable[..., Any],
    *,
    workers: int | None = None,
    slots: int = 10,
    prefetch: int = 0,
    until_empty: bool = True,
    horizon: Seconds | None = None,
    max_runtime: Seconds | None = None,
    grace: Seconds = 30,
    session_ttl: Seconds | None = None,
    progress: bool | Callable[[Counts], None] | None = None,
    **options: Any,
) -> Fleet:
    """Let every task of a Spark job be a worker of a tube, and wait until nothing is left to do.

    handler: a function, or "module:function", or "module:queue" whose handler of the tube is meant. Functions of the
        main program and those without a name are shipped by Spark, others are imported where they run
    workers: how many; as many as Spark runs tasks at once if left out, which Spark Connect does not tell. Each is a
        process that talks to the store
    slots: how many handlers run at once in each worker
    prefetch: how many tasks a worker takes before it has a slot for them; good for handlers of milliseconds, but all
        that a process holds when it dies has used up an attempt
    until_empty, horizon: end when nothing is ready, delayed (by more than the horizon) or taken, by whomever
    max_runtime: seconds from the first worker's begin after which no more is taken; what runs has the grace to end
    grace: seconds that handlers have to end when the fleet is stopped; then their tasks are given back
    session_ttl: seconds after which the tasks of a worker come back that nobody hears of
    progress: a function that is told the counts now and then, True for a bar; a bar on a terminal if left out
    options: of the handler, as for q.handler(..): max_attempts, retry, attempt_limit, keep, lane_rate ..

    Ctrl-C stops the fleet as it stops a worker: what runs has the grace, the second time it is given back at once.

        done = penstock.spark.fleet(spark, "crawl.db", "pages", "crawl:fetch", workers=4, keep=True)
        done.results().show()
    """
    from penstock.spark.crew import Plan

    place = _place(os.fspath(url))
    number = check_count(_slots_of(spark) if workers is None else workers, "workers")
    ttl = DEFAULT_TTL if session_ttl is None else check_ttl(session_ttl)
    plan = Plan(
        run=secrets.token_hex(4),
        url=place,
        machine=machine(),
        tube=tube,
        target=target(handler, _path(spark)),
        options=options,
        slots=check_count(slots, "slots"),
        prefetch=check_count(prefetch, "prefetch", 0),
        until_empty=until_empty,
        horizon=_seconds(horizon, "horizon"),
        grace=_seconds(grace, "grace") or 0.0,
        session_ttl=ttl / SECOND,
        speculation=str(spark.conf.get("spark.speculation", "false")).lower() == "true",
    )
    with connect(resolved(place), session_ttl=ttl / SECOND) as queue:
        with _own_environment():
            definition = define(queue, tube, plan.target, resolved(place), options)
        queue._tube_of(definition, alter=True)
        watching = follower(progress, tube)
        return _Voyage(spark, queue, plan, number, _seconds(max_runtime, "max_runtime"), watching).sail()


class _Voyage:
    """The job of a fleet, from the driver's side."""

    def __init__(
        self, spark: SparkSession, queue: Queue, plan: Any, workers: int, max_runtime: float | None, watching: Follower
    ) -> None:
        self._spark = spark
        self._queue = queue
        self._plan = plan
        self._workers = workers
        self._max_runtime = max_runtime
        self._watching = watching
        self._roster = Roster(queue._engine, plan.run)
        self._tag = f"penstock-{plan.run}"
        self._over = threading.Event()
        self._trouble: BaseException | None = None
        self._before = self._statistics()
        self._earlier = Earlier.look(queue._engine, plan.tube)
        self._stopped = False

    def sail(self) -> Fleet:
        """Run the job to its end, and leave nothing behind."""
        try:
            with _plain_interrupts(), self._watching:
                self._run()
        finally:
            self._settle()
        if self._trouble is not None:
            self._trouble.add_note(f"penstock: what the fleet held of tube {self._plan.tube!r} was given back")
            raise self._trouble
        counts = self._counts(self._statistics())
        return Fleet(self._spark, self._plan.url, self._plan.tube, self._plan.run, counts, self._earlier)

    def _run(self) -> None:
        self._roster.open(self._queue._session)
        self._start()
        try:
            if self._max_runtime is not None:
                self._wait(lambda: self._roster.has_begun())  # Spark may have had no room for it
                end = time.monotonic() + self._max_runtime
                self._wait(lambda: time.monotonic() >= end)
                self._roster.order(STOP)
            self._wait(lambda: False)
        except BaseException as error:
            self._stopped = True
            self._stop(error)
            raise

    def _start(self) -> None:
        from pyspark import InheritableThread

        from penstock.spark.crew import SCHEMA, crew

        frame = self._spark.range(0, self._workers, 1, self._workers)
        try:
            job = frame.mapInArrow(crew(self._plan), SCHEMA)
        except Exception as error:
            if "pickl" not in f"{type(error).__name__} {error}".lower():
                raise
            raise UsageError(
                f"the handler of {self._plan.tube!r} uses something that cannot be sent to executors ({error}); put it "
                "into a module and name it: module:function"
            ) from error

        def collect() -> None:
            try:
                self._spark.addTag(self._tag)
                job.collect()
            except BaseException as error:
                self._trouble = error
            finally:
                self._over.set()

        InheritableThread(collect, session=self._spark, name="penstock fleet", daemon=True).start()

    def _wait(self, enough: Callable[[], bool]) -> None:
        """Until the job has ended, or something is so."""
        while not self._over.wait(LOOK):
            with contextlib.suppress(EngineUnavailable, NotWritable):
                if enough():
                    return
                self._watching.look(self._counts(self._statistics()))

    def _stop(self, error: BaseException) -> None:
        """Somebody wants to go: workers end by themselves, and once more is asked they are ended."""
        try:
            if isinstance(error, KeyboardInterrupt):
                log.info("the fleet stops; handlers that run have %g s to end", self._plan.grace)
                self._order(STOP)
                self._over.wait(self._plan.grace + LAST_WORDS)
        finally:
            self._order(NOW)
            self._over.wait(LAST_WORDS / 2)
            if not self._over.is_set():
                self._spark.interruptTag(self._tag)
                self._over.wait(LAST_WORDS)

    def _order(self, what: int) -> None:
        """Tell the workers; a store that is away cannot, and Spark ends them then."""
        with contextlib.suppress(EngineUnavailable, NotWritable):
            self._roster.order(what)

    def _settle(self) -> None:
        """Give back what workers hold that could not do so themselves."""
        try:
            if self._trouble is not None or self._stopped:
                self._roster.order(NOW)
                self._await_workers()
            missing = self._roster.missing()
            if self._stopped or any(word in str(self._trouble) for word in CANCELLED):
                refund(self._queue._engine, self._plan.tube, missing)
            else:
                expire(self._queue._engine, missing)
            self._roster.forget()
        except (EngineUnavailable, NotWritable) as error:
            log.warning("what the fleet %s holds comes back when its sessions end: %s", self._plan.run, error)

    def _await_workers(self) -> None:
        """Let those that Spark has not killed give back what they hold."""
        end = time.monotonic() + LAST_WORDS
        while self._roster.missing() and time.monotonic() < end:
            time.sleep(LOOK)

    def _statistics(self) -> Statistics:
        tube = self._plan.tube
        return self._queue._engine.execute(ops.GetStatistics(tube))[tube]

    def _counts(self, now: Statistics) -> Counts:
        calls = {name: number - self._before.calls[name] for name, number in now.calls.items()}
        return Counts(
            taken=calls["take"],
            done=calls["ack"],
            failed=calls["fail"],
            buried=now.tasks["buried"] - self._before.tasks["buried"],
            given_back=calls["release"],
            late=calls["ttr"],
            put=calls["put"],
            left=now.tasks["ready"] + now.tasks["delayed"] + now.tasks["taken"],
        )


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Handlers are imported here to see whether they can be; what is set for them is for executors."""
    before = os.environ.get("PENSTOCK_URL")
    try:
        yield
    finally:
        os.environ.pop("PENSTOCK_URL", None)
        if before is not None:
            os.environ["PENSTOCK_URL"] = before


@contextlib.contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Spark's own Ctrl-C cancels every job of the session at once, and leaves no time to give anything back."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _place(url: str) -> str:
    """The URL as executors can use it; each of them checks that a file is on its machine."""
    return url if engine_name(resolved(url)) == "postgresql" else absolute(resolved(url))


def _path(spark: SparkSession) -> tuple[str, ...]:
    """Where executors find modules as the driver does: they are on its machine."""
    master = str(spark.conf.get("spark.master", ""))
    return tuple(sys.path) if master.partition("[")[0] in ("local", "local-cluster") else ()


def _slots_of(spark: SparkSession) -> int:
    """How many tasks Spark runs at once."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        raise UsageError("say how many workers there are: workers=4; Spark Connect does not tell") from None


def _seconds(value: Seconds | None, name: str) -> float | None:
    found = None if value is None else length(value, name)
    return None if found is None or found >= FOREVER else found / SECOND
