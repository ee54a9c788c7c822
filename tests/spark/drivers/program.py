"""A program with Spark that does what it is told: each line of its input is a list in JSON, a function's name first.

What comes of it is a line of its output. One machine of Java serves all tests that need another driver than theirs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.spark import crews, faulty, fragile
from tests.spark.conftest import SETTINGS
from tests.spark.lines import Lines

import penstock
import penstock.spark

ROWS = 200
BATCH = 20
SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.sql.adaptive.enabled": "false"}
PLAIN = {"spark.speculation": "false"}
"""Builders of one process remember what sessions before had."""
BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH)}
LONG = 3600
"""Seconds a session outlives its process: who had to wait for that would not end."""


_session: list[SparkSession] = []
"""Threads that others have started do not see the one that is active."""


def session() -> SparkSession:
    (found,) = _session
    return found


def on(master: str, folder: str, settings: dict[str, str]) -> None:
    """From now on work there."""
    while _session:
        _session.pop().stop()
    builder = SparkSession.builder.master(master)
    places = {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    for name, value in {**SETTINGS, **SMALL, **PLAIN, **BATCHES, **places, **settings}.items():
        builder = builder.config(name, value)
    _session.append(penstock.spark.register(builder.getOrCreate()))
    session().dataSource.register(faulty.FaultySource)


def everywhere(url: str) -> list[Any]:
    """A job that is the same on every master: put rows, let a fleet work, read what came of it."""
    spark = session()
    with penstock.connect(url) as q:
        q.create_tube("jobs", keep=True, history=True)
    rows = spark.range(0, 20, 1, 2).selectExpr("id AS data", "concat('lane ', id % 4) AS lane")
    rows.write.format("penstock").options(url=url, tube="jobs", jobId="load").mode("append").save()
    done = penstock.spark.fleet(spark, url, "jobs", "tests.spark.crews:square", workers=2, session_ttl=LONG)
    found = done.results().select("data", "result").collect()
    squares = {json.loads(row.data): json.loads(row.result) for row in found}
    return [spark.sparkContext.master, done.run, done.counts.done, sorted(squares.items())]


def numbers(what: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> DataFrame:
    return what(session().range(ROWS, numPartitions=2).selectExpr("cast(id as string) as data"))


def write(frame: DataFrame, url: str, tube: str = "jobs", form: str = "penstock", **options: str) -> None:
    frame.write.format(form).mode("append").options(url=url, tube=tube, stageBytes="1", **options).save()


def straggle(url: str, folder: str) -> None:
    """A write of which one attempt does not end."""
    attempts = faulty.Attempts(url, Path(folder), "straggle", 0)
    write(numbers(lambda frame: frame.mapInArrow(attempts, faulty.SCHEMA)), url)


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """Do all of it at one time; answers what came of each."""
    ended: dict[int, Any] = {}

    def one(number: int) -> None:
        try:
            penstock.spark.register(session())
            ended[number] = works[number]()
        except BaseException:
            ended[number] = traceback.format_exc()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ended[number] for number in range(len(works))]


def lose_executors(writes: list[str], fleet: str, folder: str) -> list[Any]:
    """Kill the machines under writes and a fleet, all at one time, once each has something to lose."""
    places = {url: Path(folder) / str(number) for number, url in enumerate([*writes, fleet])}
    for place in places.values():
        place.mkdir()

    def stand(url: str) -> None:
        attempts = faulty.Attempts(url, places[url], "stand", 0)
        write(numbers(lambda frame: frame.mapInArrow(attempts, faulty.SCHEMA)), url, jobId="load")

    def work() -> Any:
        with penstock.connect(fleet) as q:
            q.tube("jobs").put_many([str(places[fleet])] * 6)
        options = {"workers": 2, "slots": 1, "session_ttl": LONG}
        return penstock.spark.fleet(session(), fleet, "jobs", crews.outlived, **options).counts._asdict()

    def kill() -> list[int]:
        marks = [place / "0" for place in places.values()]
        faulty.until(lambda: all(mark.exists() for mark in marks), f"they do not stand: {marks}")
        machines = sorted({int(mark.read_text()) for mark in marks})
        for machine in machines:
            os.kill(machine, signal.SIGKILL)
        return machines

    return at_once([kill, work, *((lambda url=url: stand(url)) for url in writes)])


def wait(url: str, grace: float) -> str:
    """A fleet of handlers that only wait, for somebody to press Ctrl-C."""
    options = {"workers": 2, "slots": 1, "session_ttl": LONG, "grace": grace}
    try:
        penstock.spark.fleet(session(), url, "jobs", crews.hold, **options)
    except KeyboardInterrupt:
        return "stopped"
    return "not stopped"


def same_job(urls: list[str], folder: str) -> list[Any]:
    """Writes that wait before their commit until they are told to go on."""

    def one(number: int, url: str) -> None:
        mark = str(Path(folder) / str(number))
        write(numbers(), url, form="faulty", fault="before wait", mark=mark, jobId="load")

    return at_once([(lambda number=number, url=url: one(number, url)) for number, url in enumerate(urls)])


def stand(things: list[list[str]]) -> str:
    """Bring writes and streams to a point at which each stands still: kind, point, url, folder. Answers when all do."""
    for thing in things:
        failed = _brought(*thing)
        if failed:
            return failed
    return "all stand"


def _brought(kind: str, point: str, url: str, folder: str) -> str | None:
    failed = list[str]()

    def work() -> None:
        try:
            penstock.spark.register(session())
            {"batch": _batch, "sink": _sink, "tasks": _tasks}[kind](url, f"{kind}-{point}", point, Path(folder))
        except BaseException:
            failed.append(traceback.format_exc())

    threading.Thread(target=work, daemon=True).start()
    mark = Path(folder) / fragile.MARK
    faulty.until(lambda: mark.exists() or failed, "it does not get there")
    return failed[0] if failed else None


def _batch(url: str, tube: str, point: str, place: Path) -> None:
    mark = str(place / fragile.MARK)
    write(numbers(), url, tube, "faulty", fault=f"{point} stand", mark=mark, jobId=tube)


def _sink(url: str, tube: str, point: str, place: Path) -> None:
    lines = Lines(session(), place)
    lines.add(BATCH)
    lines.run(url, "faulty", tube=tube, sinkId=tube, fault=f"{point} stand", mark=str(place / fragile.MARK))


def _tasks(url: str, tube: str, point: str, place: Path) -> None:
    fragile.run(session(), url, tube, place, point)


KNOWN: dict[str, Callable[..., Any]] = {
    work.__name__: work for work in (on, everywhere, straggle, lose_executors, wait, same_job, stand)
}


def main() -> None:
    for line in sys.stdin:
        name, *words = json.loads(line)
        try:
            said = {"answer": KNOWN[name](*words)}
        except BaseException:
            said = {"error": traceback.format_exc()}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
