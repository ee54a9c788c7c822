"""A streaming standby can be read, is noticed when it is promoted, and takes over without a loss."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from tests.crash.children import family
from tests.postgres import roles
from tests.support.postgres import Server, until

import penstock
from penstock import NotWritable, State, TaskNotFound
from penstock.engines import release_store
from penstock.testing import ManualClock


class Pair(NamedTuple):
    primary: Server
    standby: Server

    @property
    def both(self) -> str:
        """A URL that leads to the one of the two that can be written to."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&patience=100"

    def fail_over(self) -> None:
        self.primary.stop("immediate")
        self.standby.promote()


@pytest.fixture
def pair(servers: ExitStack) -> Pair:
    primary = servers.enter_context(Server.start(synchronous_commit="remote_apply"))
    return Pair(primary, servers.enter_context(primary.standby(synchronous=True)))


def fill(q: penstock.Queue) -> penstock.Tube:
    jobs = q.create_tube("jobs", keep=True, history=True)
    jobs.put_many(["a", "b", "c"], lane="x")
    jobs.bury(3)
    q.create_tube("cache", "fifo", temporary=True).put("not on the standby")
    return jobs


def states_of(q: penstock.Queue) -> list[str]:
    """The states a store goes through, until it runs."""
    seen = [q.state()]

    def runs() -> bool:
        if (now := q.state()) != seen[-1]:
            seen.append(now)
        return now == "RUNNING"

    until(runs, "it does not run")
    return seen


def test_a_standby_answers_reads_refuses_writes_and_runs_when_promoted(pair):
    clock = ManualClock(time.time_ns() // 1000)
    with penstock.connect(pair.primary.url()) as q:
        fill(q)
    with penstock.connect(pair.primary.url(), clock=clock) as q:
        q.create_tube("delayed").put("later", delay=5)
    with penstock.connect(pair.standby.url(), clock=clock) as q:
        assert q.state() == "WAITING"
        jobs = q.tube("jobs")
        assert jobs.peek(1).data == "a"
        assert [task.data for task in jobs.tasks(State.READY)] == ["a", "b"]
        assert jobs.statistics().tasks["ready"] == 2
        assert q.statistics()["jobs"].tasks["buried"] == 1
        assert q.statistics()["cache"].tasks["total"] == 0
        assert [lane.name for lane in jobs.lanes()] == ["x"]
        assert [event.event for event in q.history()] == ["put", "put", "put", "bury"]
        assert sorted(tube.name for tube in q.tubes()) == ["cache", "delayed", "jobs"]
        assert jobs.wait(3, timeout=1).state == "buried"
        assert q.tick() is None
        with pytest.raises(TaskNotFound):
            jobs.peek(9)
        for write in (
            lambda: jobs.put(1),
            lambda: jobs.put_many([1, 2]),
            lambda: jobs.put(1, put_id="1"),
            lambda: jobs.take(),
            lambda: jobs.take(timeout=5),
            lambda: jobs.ack(1),
            lambda: jobs.bury(1),
            lambda: jobs.kick(),
            lambda: jobs.delete(1),
            lambda: jobs.truncate(),
            lambda: jobs.drop(),
            lambda: jobs.pause(),
            lambda: jobs.alter(max_attempts=3),
            lambda: jobs.lane("x").configure(paused=True),
            lambda: q.create_tube("new"),
            lambda: q.tube("cache").peek(1),
            lambda: q.transaction().__enter__(),
        ):
            with pytest.raises(NotWritable):
                write()
        clock.advance(1)
        pair.fail_over()
        assert q.state() == "STARTUP"
        clock.advance(1)
        assert q.state() == "RUNNING"
        task = jobs.take()
        assert task.data == "a" and task.ack().reason == "success"
        assert jobs.statistics().calls["put"] == 0, "a run has begun"
        assert q.tube("cache").statistics().tasks["total"] == 0
        assert q.tube("cache").put("now it can").data == "now it can"
        delayed = q.tube("delayed")  # case 256
        assert delayed.take() is None
        clock.advance(4)
        assert delayed.take().data == "later"


@pytest.mark.exhaustive
def test_keepers_notice_a_promotion_by_themselves_and_sessions_outlive_it(pair):
    with (
        penstock.connect(pair.both, session_ttl=60) as q,
        penstock.connect(pair.standby.url(), session_ttl=60) as other,
        penstock.connect(pair.standby.url(), session_ttl=0.7),
    ):
        jobs = fill(q)
        assert other.state() == "WAITING"
        held = jobs.take()
        lost = penstock.connect(pair.primary.url(), session_ttl=0.5)
        assert lost._engine.store is not q._engine.store
        gone = lost.tube("jobs").take()
        lost._engine.lose(lost._session)
        release_store(lost._engine.store)
        jobs.put("synced")
        tokens = [held.token, gone.token]
        pair.fail_over()
        assert states_of(other)[-1] == "RUNNING"
        until(lambda: other._engine.store.writable, "nobody notices the promotion")
        assert held.ack().reason == "success", "by a session that has outlived its server"
        seen = other.tube("jobs")
        until(lambda: seen.peek(gone.id).state == "ready", "the dead keep their tasks")
        taken = seen.take_many(5)
        assert gone.id in [task.id for task in taken]
        assert min(task.token for task in taken) > max(tokens)
        expires = "select max(expires_at) from penstock.sessions where ttl = 700000"
        first = ask(pair.standby, expires) or 0
        until(lambda: (ask(pair.standby, expires) or 0) > first, "the standby's queue does not keep its session alive")
        assert [task.ack().reason for task in taken] == ["success"] * len(taken)


def ask(server: Server, text: str) -> Any:
    with server.connect() as connection:
        row = connection.execute(text).fetchone()
        return row and row[0]


def test_nothing_acknowledged_is_lost_in_a_failover_under_load(pair):
    with family() as children:
        with penstock.connect(pair.both) as q:
            q.create_tube("jobs", "fifo")
        producers = [children.start(roles.put_and_note, pair.both, name) for name in "ab"]
        consumers = [children.start(roles.take_and_ack, pair.both) for _ in range(2)]
        workers = [*producers, *consumers]
        lines: dict[Any, list[Any]] = {worker: [] for worker in workers}
        for worker in workers:
            lines[worker] += [worker.line() for _ in range(10)]
        (epoch,) = {line[2] >> 32 for worker in consumers for line in lines[worker] if line[0] == "took"}
        pair.fail_over()
        for worker in workers:  # what was said before is in the pipe still
            lines[worker] += [worker.line() for _ in range(30)]
        for worker in consumers:
            while lines[worker][-1][0] != "took" or lines[worker][-1][2] >> 32 == epoch:
                lines[worker].append(worker.line())
        for worker in workers:
            worker.tell("stop")
        for worker in workers:
            lines[worker] += worker.rest()
        assert [worker.exit() for worker in workers] == [0] * 4
        said = [line for worker in workers for line in lines[worker]]
        put = {line[1] for line in said if line[0] == "put"}
        acked = {line[1] for line in said if line[0] == "acked"}
        tokens = [line[2] for line in said if line[0] == "took"]
        assert len(tokens) == len(set(tokens)), "a token was given twice"
        with penstock.connect(pair.standby.url()) as q:
            left = {task.data for task in q.tube("jobs").tasks(limit=100_000)}
        unknown = {line[1] for line in said if line[0] == "unknown"}
        assert put - acked - unknown <= left, "acknowledged and lost"
        assert not left & acked, "acked and back again"
        assert len({token >> 32 for token in tokens}) == 2, "grants of both runs"
