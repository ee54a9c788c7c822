"""Drivers beside that of the tests: on other masters, with executors that die or hang, and stopped by Ctrl-C."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.spark import faulty
from tests.spark.driver import HERE, Driver
from tests.spark.past import history
from tests.spark.places import PLACES, check_once, found
from tests.support.postgres import give_back, lent_place
from tests.worker.bench import until

import penstock
from penstock.engines.postgres.place import Place
from penstock.model import ops
from penstock.spark.roster import LEDGERS, Roster

ROWS = 200
"""Of every write that the driver does, half of them in each of two partitions."""
TWO = "local-cluster[2,3,512]"
"""A local cluster with two executors: enough cores for all that a test does at one time."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.interval": "100ms",
}


@pytest.fixture
def server() -> Iterator[str]:
    """A database of its own."""
    url = lent_place()
    yield url
    give_back(url)


def does_the_same(driver: Driver, master: str, url: str) -> None:
    """The job of which not a word is another on another master."""
    where, run, done, squares = driver.ask("everywhere", url)
    assert where == master
    assert done == 20 and squares == [[n, n * n] for n in range(20)]
    with penstock.connect(url) as q:
        events = history(q, 60)
    assert Counter(event.event for event in events) == {"put": 20, "take": 20, "ack": 20}
    assert {event.worker for event in events if event.event == "take"} <= {f"spark:{run}:0", f"spark:{run}:1"}


@pytest.mark.exhaustive
def test_the_same_job_runs_on_a_standalone_master(driver: Driver, standalone: str, server: str) -> None:
    does_the_same(driver.on(standalone, **SPECULATION), standalone, server)


@pytest.mark.exhaustive
def test_of_a_straggler_and_its_copy_the_copy_counts(
    driver: Driver, standalone: str, server: str, tmp_path: Path
) -> None:
    with penstock.connect(server) as q:
        q.create_tube("jobs", history=True)
        driver.on(standalone, **SPECULATION).ask("straggle", server, str(tmp_path))
        assert (tmp_path / "0").exists(), "the straggler has staged all it had"
        # Spark numbers the copy 1. Had the straggler ended first, or by itself, its rows would say 0.
        check_once(q, [faulty.row(n, int(n < ROWS // 2)) for n in range(ROWS)])
        assert Counter(event.event for event in history(q, ROWS)) == {"put": ROWS}


@pytest.mark.exhaustive
def test_the_same_job_runs_on_a_local_cluster(driver: Driver, tmp_path: Path) -> None:
    does_the_same(driver.on(TWO), TWO, str(tmp_path / "tasks.db"))  # a file: all of it is on this machine


@pytest.mark.exhaustive
def test_writes_and_a_fleet_outlive_their_executors(driver: Driver, server: str, tmp_path: Path) -> None:
    writes = [place.url(tmp_path) for place in PLACES]
    for url in (*writes, server):
        with penstock.connect(url) as q:
            q.create_tube("jobs", history=True, keep=True, max_attempts=3)
    machines, counts, *errors = driver.on(TWO).ask("lose_executors", writes, server, str(tmp_path))
    assert errors == [None] * len(writes), "\n".join(map(str, errors))
    assert machines and not any(is_executor(machine) for machine in machines)
    for url in writes:
        with penstock.connect(url) as q:
            attempts = {number: attempt for number, attempt, _ in found(q)}
            assert all(attempts[n] >= 1 for n in range(ROWS // 2)), "what died with the machine was done again"
            check_once(q, [faulty.row(n, attempts[n]) for n in range(ROWS)])
    with penstock.connect(server) as q:
        tasks = q.tube("jobs").tasks()
        assert [task.state for task in tasks] == ["done"] * 6 and tasks[0].attempt == 2
        done = until(lambda: len(found := [one for one in q.history() if one.to_state == "done"]) >= 6 and found)
        assert len(done) == 6
        ended = [event for event in q.history() if event.from_state == "taken"]
        assert [event.to_state for event in ended if event.task_id == 1] == ["ready", "done"]
    assert (counts["done"], counts["left"]) == (6, 0)


def is_executor(process: int) -> bool:
    """Whether it is still there: nobody else has its number so soon."""
    words = Path(f"/proc/{process}/cmdline")
    return words.exists() and b"CoarseGrainedExecutorBackend" in words.read_bytes()


@pytest.mark.exhaustive
def test_the_same_job_runs_on_this_machine_alone(driver: Driver, server: str) -> None:
    does_the_same(driver.on(HERE), HERE, server)


def is_ordered(q: Any) -> bool:
    """Whether the fleet was told to stop."""
    runs = [ledger.removeprefix(LEDGERS) for ledger in q._engine.execute(ops.ListLedgers(LEDGERS))]
    return any(Roster(q._engine, run).ordered() is not None for run in runs)


@contextmanager
def connections(url: str) -> Iterator[Any]:
    """Counts those that the database of a place has, without this one."""
    with psycopg.connect(Place.parse(url).conninfo, autocommit=True) as connection:
        ask = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        yield lambda: connection.execute(ask).fetchone()[0]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)])
def test_ctrl_c_gives_tasks_back_after_the_grace_and_twice_at_once(
    driver: Driver, kind: str, server: str, tmp_path: Path
) -> None:
    url, begun = server if kind == "postgres" else str(tmp_path / "tasks.db"), tmp_path / "begun"
    driver.on(HERE)
    with penstock.connect(url) as q, connections(server) as count:
        tube = q.create_tube("jobs", max_attempts=1)
        tube.put_many([str(begun)] * 4)
        idle = count()
        for presses, grace in ((1, 0.5), (2, 600)):
            begun.mkdir()
            driver.tell("wait", url, grace)
            driver.until(lambda: len(list(begun.iterdir())) >= 2)
            if kind == "postgres":
                # As docs/cluster.md has it: three of each worker, and three of the driver.
                driver.until(lambda: 2 <= count() - idle <= 3 * 2 + 3)
            driver.interrupt()
            if presses == 2:
                driver.until(lambda: is_ordered(q))
                driver.interrupt()
            assert driver.answer() == "stopped"
            assert [(task.state, task.attempt) for task in tube.tasks()] == [("ready", 0)] * 4
            shutil.rmtree(begun)


@pytest.mark.exhaustive  # test_jobs.py has two processes with one job, without Spark
def test_of_two_drivers_with_one_job_one_puts(spark: Any, driver: Driver, tmp_path: Path) -> None:
    urls = [place.url(tmp_path) for place in PLACES]
    for url in urls:
        with penstock.connect(url) as q:
            q.create_tube("jobs")
    driver.on(HERE).tell("same_job", urls, str(tmp_path))
    driver.until(lambda: all((tmp_path / str(number)).exists() for number in range(len(urls))))
    for number, url in enumerate(urls):
        with penstock.connect(url) as q:
            assert [job.parts for job in q._engine.execute(ops.ListStaged())] == [2], "the other driver is about to"
            frame = spark.range(ROWS, numPartitions=3).selectExpr("cast(id as string) as data")
            frame.write.format("penstock").mode("append").options(url=url, tube="jobs", jobId="load").save()
            assert q.tube("jobs").statistics().tasks["total"] == ROWS
        (tmp_path / f"{number}.go").touch()
    assert driver.answer() == [None, None]
    for url in urls:
        with penstock.connect(url) as q:
            assert q._engine.execute(ops.ListStaged()) == [], "neither has left anything"
            check_once(q, ROWS)
