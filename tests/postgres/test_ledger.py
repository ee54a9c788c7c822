"""Writers of one number of a ledger who meet on PostgreSQL: one wins, the others wait for it and are told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from tests.conftest import Background
from tests.support import postgres

import penstock
from penstock import DuplicateKey
from penstock.model import ops

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%write_ledger%'"


@pytest.fixture
def q(warm: str) -> Iterator[penstock.Queue]:
    with penstock.connect(warm) as q:
        yield q


def await_blocked() -> None:
    with psycopg.connect(postgres.shared_server().url(), autocommit=True) as it:
        while it.execute(WAITING).fetchone() == (0,):
            threading.Event().wait(0.01)


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@pytest.mark.parametrize("within", ["a call", "a transaction"])
def test_a_second_writer_waits_for_the_first_and_learns_what_it_did(q, commits, within):
    def second() -> str:
        if within == "a call":
            q._engine.execute(ops.WriteLedger("a", 0, ("second",)))
        else:
            with q.transaction() as tx:
                try:
                    tx.execute(ops.WriteLedger("a", 0, ("second",)))
                finally:
                    tx.execute(ops.WriteLedger("log", 0, ("usable",)))
        return "written"

    def first() -> None:
        with q.transaction() as tx:
            tx.execute(ops.WriteLedger("a", 0, ("first",)))
            others.append(Background(second))
            await_blocked()
            if not commits:
                raise ZeroDivisionError

    others: list[Background] = []
    if commits:
        first()
        with pytest.raises(DuplicateKey, match="number 0"):
            others[0].result()
    else:
        with pytest.raises(ZeroDivisionError):
            first()
        assert others[0].result() == "written"
    assert [note.text for note in q._engine.execute(ops.ReadLedger("a"))] == ["first" if commits else "second"]


def test_others_go_on_while_a_writer_waits(q):
    jobs = q.create_tube("jobs")
    with q.transaction() as tx:
        tx.execute(ops.WriteLedger("a", 0, ("first",)))
        other = Background(lambda: q._engine.execute(ops.WriteLedger("a", 0, ("second",))))
        await_blocked()
        assert Background(lambda: jobs.put("x").id).result() == 1
    with pytest.raises(DuplicateKey):
        other.result()


def test_of_many_writers_of_each_number_one_wins(q):
    def write() -> Counter[str]:
        outcomes: Counter[str] = Counter()
        for number in range(30):
            try:
                q._engine.execute(ops.WriteLedger("a", number, ("x", "y")))
                outcomes["won"] += 1
            except DuplicateKey:
                outcomes["lost"] += 1
        return outcomes

    total = sum((writer.result() for writer in [Background(write) for _ in range(4)]), Counter())
    notes = q._engine.execute(ops.ReadLedger("a"))
    assert total.total() == 120
    assert len(notes) == 2 * total["won"] and len({note.number for note in notes}) == len(notes)


def test_a_number_that_is_trimmed_while_its_writer_waits_stays_written(q):
    do = q._engine.execute
    do(ops.WriteLedger("a", 0, ("first",)))
    with q.transaction() as tx:
        tx.execute(ops.TrimLedger("a", 0))
        other = Background(lambda: do(ops.WriteLedger("a", 0, ("second",))))
        await_blocked()
    with pytest.raises(DuplicateKey):
        other.result()
    assert do(ops.ReadLedger("a")) == []
