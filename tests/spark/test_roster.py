"""What a fleet writes down about itself, and what it knows of the time before, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.engines import ENGINES
from tests.support.servers import Running

import penstock
from penstock.engines import Engine
from penstock.model import ops
from penstock.model.clock import SystemClock
from penstock.model.duration import SECOND
from penstock.model.session import Session
from penstock.server import logins
from penstock.spark.earlier import Earlier
from penstock.spark.roster import NOW, STOP, Roster, Worker, expire


class Fast(SystemClock):
    """The clock of a machine that is an hour ahead."""

    def now(self) -> int:
        return super().now() + 3600 * SECOND


@pytest.fixture(params=[engine for engine in ENGINES if engine.durable], ids=lambda engine: engine.name)
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[penstock.Queue]:
    """A queue in a process whose clock is wrong; where the store is that of this machine, so is its."""
    url = request.param.url(tmp_path)
    with penstock.connect(url, clock=Fast()) as queue:
        yield queue
    request.param.clean(url)


def test_the_results_of_a_fleet_begin_by_the_clock_of_the_store(q: Any) -> None:
    jobs = q.create_tube("jobs", keep=True)
    earlier = Earlier.look(q._engine, "jobs")
    jobs.put(1)
    jobs.take().ack()
    assert jobs.peek(1)._record.done_at >= earlier.moment


def test_what_lay_buried_is_known_until_it_is_dug_up(q: Any) -> None:
    jobs = q.create_tube("jobs")
    for n in range(2):
        jobs.put(n)
        jobs.take().bury()
    before = Earlier.look(q._engine, "jobs").buried.to_pylist()
    jobs.kick(1)
    jobs.take().bury()
    after = Earlier.look(q._engine, "jobs").buried.to_pylist()
    assert len(before) == 2 and [row in before for row in after] == [False, True]


def taken_by(engine: Engine, number: int) -> Worker:
    """A worker that holds a task."""
    worker = Worker(number, number % 2, str(uuid.uuid4()))
    engine.execute(ops.Take("jobs", 1, Session(worker.uuid, f"spark:{number}", 600 * SECOND)))
    return worker


def test_what_a_dead_worker_holds_comes_back_at_once(q: Any) -> None:
    jobs = q.create_tube("jobs")
    jobs.put_many([1, 2])
    dead, _ = taken_by(q._engine, 0), taken_by(q._engine, 1)
    expire(q._engine, [dead])
    assert [task.state for task in jobs.tasks()] == ["ready", "taken"]


def test_a_roster_knows_who_is_missing_and_what_was_ordered(q: Any) -> None:
    roster = Roster(q._engine, "run")
    roster.open(q._session)
    workers = [Worker(number, number % 2, str(uuid.uuid4())) for number in (0, 1, 7)]
    assert not roster.has_begun() and roster.ordered() is None
    for worker in workers:
        roster.begin(worker)
    assert roster.has_begun() and roster.ordered() is None and roster.missing() == workers
    roster.end(workers[1])
    roster.end(workers[1])
    assert roster.missing() == [workers[0], workers[2]]
    roster.order(STOP)
    assert roster.ordered() == STOP
    roster.order(NOW)
    roster.order(STOP)
    assert roster.ordered() == NOW
    roster.forget()
    assert q._engine.execute(ops.ListLedgers("fleet:")) == []


def test_what_a_dead_driver_left_is_forgotten_and_nothing_of_one_that_lives(q: Any) -> None:
    dead = Session(str(uuid.uuid4()), "", 600 * SECOND)
    q._engine.execute(ops.OpenSession(dead))
    for run, driver in (("dies", dead), ("lives", q._session)):
        Roster(q._engine, run).open(driver)
    Roster(q._engine, "new").open(q._session)
    assert q._engine.execute(ops.ListLedgers("fleet:")) == ["fleet:dies", "fleet:lives", "fleet:new"]
    q._engine.execute(ops.EndSession(dead))
    Roster(q._engine, "newer").open(q._session)
    assert q._engine.execute(ops.ListLedgers("fleet:")) == ["fleet:lives", "fleet:new", "fleet:newer"]


def test_a_login_for_one_tube_is_enough_to_begin_and_leaves_what_others_left(tmp_path: Path) -> None:
    token, file = logins.new_token(), str(tmp_path / "logins.toml")
    rights = [logins.new_right(["take", "read"], ["jobs"])]
    logins.write_entries(file, {"ann": logins.new_entry("ann", rights, token)})
    with penstock.connect(tmp_path / "tasks.db") as queue, Running(str(tmp_path / "tasks.db"), logins=file) as running:
        Roster(queue._engine, "dead").order(STOP)
        with penstock.connect(f"penstock://ann:{token}@127.0.0.1:{running.server.port()}") as remote:
            roster = Roster(remote._engine, "mine")
            roster.open(remote._session)
            roster.begin(Worker(1, 0, remote.identify()))
            assert roster.has_begun()
        assert Roster(queue._engine, "dead").ordered() == STOP
