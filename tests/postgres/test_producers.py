"""Callers in long open transactions hold up nobody: other producers, takers, ackers, keepers of the tube. [rule 14]"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.conftest import Background
from tests.support import postgres
from tests.support.invariants import check

import penstock
from penstock import LeaseLost, TubeBusy
from penstock.engines.postgres.place import Place
from penstock.testing import lose

Connection = psycopg.Connection[Any]


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        yield queue
        check(url)


@pytest.fixture
def callers() -> list[int]:
    """The backends of those whose transactions are open."""
    return []


@pytest.fixture
def connect(url: str, callers: list[int]) -> Iterator[Callable[[], Connection]]:
    """Connections of callers; one that waits for a lock fails."""
    with ExitStack() as stack:
        conninfo = Place.parse(url).conninfo

        def connect() -> Connection:
            connection = psycopg.connect(conninfo, options="-c lock_timeout=60s -c deadlock_timeout=10ms")
            stack.callback(connection.close)
            callers.append(connection.info.backend_pid)
            return connection

        yield connect


@pytest.fixture
def nobody_waits(url: str, callers: list[int]) -> Iterator[Callable[..., Any]]:
    """Do something in a thread while a watcher sees that no backend waits for a caller's transaction meanwhile.

    Locks that are held for a moment within a statement do not count: that on the end of a growing file, above all.
    Nor do those of a keeper, whose transactions are short.
    """
    ask = """
        select l.locktype, l.relation::regclass, pg_blocking_pids(a.pid), a.query
        from pg_locks l join pg_stat_activity a using (pid)
        where not l.granted and a.datname = current_database() and l.locktype not in ('extend', 'object')
            and pg_blocking_pids(a.pid) && %s::int[]
    """
    with psycopg.connect(Place.parse(url).conninfo, autocommit=True) as watcher:

        def do(call: Callable[[], Any]) -> Any:
            background = Background(call)
            while background.running:
                assert watcher.execute(ask, [callers]).fetchall() == []
                # Who waits does so for as long as the transaction is open, so it is seen at the next look.
                background._thread.join(0.005)
            return background.result()

        yield do


def data(tube: penstock.Tube) -> list[Any]:
    return sorted(task.data for task in tube.tasks())


KINDS = {
    "fifo": {},
    "utube": {},
    "standard": {"lane_rate": 1_000_000},
    "limfifottl": {"capacity": 1000},
}


# Without lanes and with them; the two others share their statements and differ in limits that do not matter here.
IN_EVERY_RUN = ("fifo", "standard")


@pytest.fixture(
    params=[pytest.param(kind, marks=() if kind in IN_EVERY_RUN else pytest.mark.exhaustive) for kind in KINDS]
)
def jobs(q: penstock.Queue, request: pytest.FixtureRequest) -> penstock.Tube:
    return q.create_tube("jobs", request.param, **KINDS[request.param])


def lanes(tube: penstock.Tube, *names: str) -> list[dict[str, str]]:
    """The option for each of these lanes, on tubes that have lanes."""
    return [{"lane": name} if tube.kind in ("utube", "standard") else {} for name in names]


@pytest.mark.parametrize("end", [pytest.param("commit", marks=pytest.mark.exhaustive), "rollback"])
def test_producers_on_the_same_and_on_crossing_lanes_never_meet(jobs, connect, nobody_waits, end):
    first, second = connect(), connect()
    a, b = lanes(jobs, "a", "b")

    def cross() -> None:
        for number in range(8):
            jobs.put([number, "first", "a"], **a, transaction=first)
            jobs.put([number, "second", "b"], **b, transaction=second)
            jobs.put([number, "first", "b"], **b, transaction=first)
            jobs.put([number, "second", "a"], **a, transaction=second)

    nobody_waits(cross)
    assert jobs.take() is None
    first.commit()
    getattr(second, end)()
    expected = 32 if end == "commit" else 16
    assert len(jobs.tasks(limit=100)) == jobs.statistics().tasks["ready"] == jobs.statistics().calls["put"] == expected
    assert jobs.take() is not None


def test_producers_in_threads_that_cross_never_deadlock(q, jobs, connect, nobody_waits):
    """Every producer puts into all lanes, each in another order, and commits by turns with rollbacks."""
    names = ["a", "b", "c", "d"]
    connections = [connect() for _ in range(4)]

    def produce(number: int) -> None:
        mine = connections[number]
        for turn in range(6):
            for option in lanes(jobs, *(names[number:] + names[:number])):
                jobs.put([number, turn], **option, transaction=mine)
            (mine.rollback if turn % 2 else mine.commit)()

    def all_at_once() -> None:
        producers = [Background(lambda number=number: produce(number)) for number in range(4)]
        for producer in producers:
            producer.result()

    nobody_waits(all_at_once)
    assert jobs.statistics().tasks["ready"] == jobs.statistics().calls["put"] == len(jobs.tasks(limit=1000)) == 48


def test_takers_pass_by_what_is_not_committed(q, jobs, connect, nobody_waits):
    held, free = lanes(jobs, "held", "free")
    own = connect()
    jobs.put("open", **held, transaction=own)
    jobs.put("also open", **free, transaction=own)
    jobs.put("there", **free)
    taken = nobody_waits(jobs.take)
    assert taken.data == "there"
    assert nobody_waits(jobs.take) is None
    nobody_waits(taken.ack)
    own.commit()
    assert len(jobs.take_many(5)) == 2


def test_an_acker_does_not_hold_up_the_others_of_its_lane(q, connect, nobody_waits):
    jobs = q.create_tube("jobs", lane_concurrency=2)
    jobs.put_many(["a", "b", "c", "d"], lane="x")
    jobs.put("other", lane="y")
    first = jobs.take(lane="x")
    own = connect()
    first.ack(transaction=own)
    second = nobody_waits(lambda: jobs.take(lane="x"))
    assert second.data == "b"
    assert nobody_waits(jobs.take).data == "other"
    assert nobody_waits(jobs.take) is None
    nobody_waits(second.ack)
    third = nobody_waits(jobs.take)
    assert third.data == "c"
    assert nobody_waits(jobs.take) is None
    own.commit()
    assert jobs.take().data == "d"


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_lane_goes_on_after_the_commit_of_its_acker(q, connect, nobody_waits, end):
    jobs = q.create_tube("jobs", "utube")
    jobs.put_many(["a", "b"], lane="x")
    own = connect()
    first = jobs.take()
    first.ack(transaction=own)
    assert nobody_waits(jobs.take) is None
    getattr(own, end)()
    if end == "rollback":
        assert jobs.take() is None
        first.ack()
    assert jobs.take().data == "b"


def test_what_is_open_holds_back_nobody_who_looks_after_the_tube(q, jobs, connect, nobody_waits):
    jobs.put("buried")
    jobs.take().bury()
    jobs.put("held")
    held = jobs.take()
    own = connect()
    jobs.put("open", transaction=own)
    held.ack(transaction=own)
    nobody_waits(q.tick)
    assert nobody_waits(jobs.kick) == 1
    statistics = nobody_waits(jobs.statistics)
    assert (statistics.tasks["ready"], statistics.tasks["taken"]) == (1, 1)
    assert nobody_waits(lambda: jobs.peek(held.id)).state == "taken"
    assert len(nobody_waits(jobs.tasks)) == 2
    nobody_waits(jobs.pause)
    nobody_waits(jobs.resume)
    nobody_waits(lambda: jobs.alter(max_attempts=9))
    nobody_waits(jobs.release_all)
    assert nobody_waits(jobs.truncate) == 1
    if jobs.kind == "utube":  # one is enough: it waits for a while before it gives up
        with pytest.raises(TubeBusy):
            jobs.drop(force=True)
    own.commit()
    assert data(jobs) == ["open"]
    assert jobs.statistics().tasks["total"] == 1
    assert jobs.take().data == "open"


def test_somebody_may_wait_for_the_end_of_a_task_that_is_acked_in_an_open_transaction(q, connect, nobody_waits):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put("x")
    task = jobs.take()
    own = connect()
    task.ack(result=7, transaction=own)
    waiter = Background(lambda: jobs.result(task.id, timeout=60))
    assert nobody_waits(jobs.take) is None
    own.commit()
    assert waiter.result() == 7


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_queue_is_closed_while_its_ack_is_open(url, q, connect, nobody_waits, end):
    jobs = q.create_tube("jobs")
    jobs.put_many(["acked", "held"])
    own = connect()
    with penstock.connect(url) as worker:
        acked, _ = worker.tube("jobs").take_many(2)
        acked.ack(transaction=own)
        nobody_waits(worker.close)
    assert jobs.take().data == "held"
    getattr(own, end)()
    q.tick()
    # A keeper may have what is given back in its hands.
    back = jobs.take_many(5, timeout=0 if end == "commit" else 60)
    assert [task.data for task in back] == ([] if end == "commit" else ["acked"])


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_session_that_is_lost_while_its_ack_is_open_ends_afterwards(url, q, connect, nobody_waits, end):
    jobs = q.create_tube("jobs")
    jobs.put("acked")
    own = connect()
    worker = penstock.connect(url, session_ttl=0.05)
    task = worker.tube("jobs").take()
    task.ack(transaction=own)
    lose(worker)
    with psycopg.connect(Place.parse(url).conninfo, autocommit=True) as look:
        schema = Place.parse(url).schema
        sessions = sql.SQL(
            "select count(*) from {}.sessions where expires_at < extract(epoch from clock_timestamp()) * 1e6"
        )
        ask = sessions.format(sql.Identifier(schema))
        postgres.until(lambda: look.execute(ask).fetchone() == (1,), "the session does not end")
    nobody_waits(q.tick)
    assert nobody_waits(jobs.take) is None
    getattr(own, end)()
    q.tick()
    again = jobs.take(timeout=0 if end == "commit" else 60)
    assert (again is None) == (end == "commit")
    if again is not None:
        with pytest.raises(LeaseLost):
            task.release()
    worker.close()


@pytest.mark.parametrize("id", ["auto", "uuid"])
@pytest.mark.parametrize("keep", [False, True])
def test_an_ack_that_is_refused_holds_nobodys_task(url, q, connect, nobody_waits, id, keep):
    jobs = q.create_tube("jobs", id=id, keep=keep)
    jobs.put_many(["theirs", "late"])
    own = connect()
    with penstock.connect(url) as worker:
        task, late = worker.tube("jobs").take_many(2)
        with pytest.raises(penstock.NotOwner):
            jobs.ack(task.id, transaction=own)
        jobs.snatch(late.id)
        with pytest.raises(LeaseLost):
            late.ack(transaction=own)
        nobody_waits(task.ack)
        assert nobody_waits(jobs.take).data == "late"
    own.commit()


def test_a_lease_that_is_over_is_not_ended_by_its_late_ack(q, connect, nobody_waits):
    jobs = q.create_tube("jobs", ttr=0.001)
    jobs.put("x")
    first = jobs.take()
    own = connect()
    postgres.until(lambda: jobs.peek(first.id).state == "ready" or jobs.take() is not None, "the lease does not end")
    with pytest.raises(LeaseLost):
        first.ack(transaction=own)
    nobody_waits(lambda: jobs.delete(first.id))
    own.commit()


@pytest.mark.parametrize("on_conflict", ["ignore", "error"])
def test_who_asks_for_a_key_does_not_hold_its_task(q, connect, nobody_waits, on_conflict):
    jobs = q.create_tube("jobs")
    jobs.put("first", key="k")
    own, other = connect(), connect()
    outcome = jobs.put_many(
        [penstock.Entry("again", key="k", on_conflict=on_conflict)], errors="return", transaction=own
    )
    assert len(outcome) == 1
    task = nobody_waits(jobs.take)
    task.ack(transaction=other)
    with pytest.raises(penstock.DuplicateKey):
        nobody_waits(lambda: jobs.put("new", key="k"))
    other.commit()
    own.commit()
    assert jobs.put("new", key="k").outcome == "new"


def test_two_producers_of_full_tubes_count_their_own_and_do_not_wait(q, connect, nobody_waits):
    jobs = q.create_tube("jobs", capacity=2)
    first, second = connect(), connect()
    nobody_waits(lambda: jobs.put_many([1, 2], transaction=first))
    nobody_waits(lambda: jobs.put_many([3, 4], transaction=second))
    nobody_waits(lambda: jobs.put_many([5, 6]))
    first.rollback()
    second.rollback()
    assert data(jobs) == [5, 6]


@pytest.mark.exhaustive  # it waits for the transaction, and gives up, as a drop does
def test_a_tube_becomes_strict_only_when_no_transaction_uses_it(q, connect, nobody_waits):
    jobs = q.create_tube("jobs", "utube")
    own = connect()
    jobs.put("open", lane="a", transaction=own)
    with pytest.raises(TubeBusy):
        jobs.alter(lane_order="strict")
    nobody_waits(lambda: jobs.put("next", lane="a"))
    own.commit()
    jobs.alter(lane_order="strict")
    assert jobs.take().data == "open"
