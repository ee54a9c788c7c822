"""Ledgers: every number is written once, ever; and what reads history and tubes in pages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import postgres
from tests.support.engines import Bench, engine_parameters

from penstock import DuplicateKey, TubeNotFound
from penstock.model import ops
from penstock.model.ledger import FORGOTTEN, Note


@pytest.fixture(params=engine_parameters())
def bench(request, tmp_path, clock):
    with postgres.warmth():
        bench = Bench(request.param, "blocking", tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def do(q) -> Any:
    return q._engine.execute


def numbers(notes):
    return [note.number for note in notes]


def test_notes_are_read_in_the_order_of_their_numbers(do):
    do(ops.WriteLedger("a", 5, ("five", "six")))
    do(ops.WriteLedger("a", 2, ("two", "three")))
    do(ops.WriteLedger("b", 5, ("another",)))
    assert do(ops.ReadLedger("a")) == [Note(2, "two"), Note(3, "three"), Note(5, "five"), Note(6, "six")]
    assert do(ops.ReadLedger("a", after=3)) == [Note(5, "five"), Note(6, "six")]
    assert numbers(do(ops.ReadLedger("a", upto=5, limit=2))) == [2, 3]
    assert numbers(do(ops.ReadLedger("a", after=2, upto=5))) == [3, 5]
    assert do(ops.ReadLedger("nobody")) == []


def test_the_last_notes_come_newest_first(do):
    assert do(ops.LastNotes("a")) == []
    do(ops.WriteLedger("a", 0, ("zero", "one", "two")))
    assert do(ops.LastNotes("a")) == [Note(2, "two")]
    assert numbers(do(ops.LastNotes("a", 2))) == [2, 1]
    assert numbers(do(ops.LastNotes("a", 9))) == [2, 1, 0]


def test_a_number_is_written_once_and_a_refusal_writes_nothing(do):
    do(ops.WriteLedger("a", 3, ("first",)))
    with pytest.raises(DuplicateKey, match="number 3 of the ledger 'a'"):
        do(ops.WriteLedger("a", 3, ("second",)))
    with pytest.raises(DuplicateKey, match="number 3"):
        do(ops.WriteLedger("a", 1, ("one", "two", "three")))
    assert do(ops.ReadLedger("a")) == [Note(3, "first")]


def test_no_notes_are_no_change(do):
    do(ops.WriteLedger("a", 0, ()))
    assert do(ops.ListLedgers()) == []


def test_a_note_is_any_text(do):
    texts = ("", "ünï\nçode 🐘", "'; drop table notes; --", "{" + "x" * 100_000 + "}")
    do(ops.WriteLedger("a 'b' \"c\" %s", 0, texts))
    assert [note.text for note in do(ops.ReadLedger("a 'b' \"c\" %s"))] == list(texts)


def test_what_is_trimmed_is_forgotten_and_stays_written(do):
    do(ops.WriteLedger("a", 0, ("zero", "one", "two", "three")))
    assert do(ops.TrimLedger("a", 1)) == 2
    assert numbers(do(ops.ReadLedger("a"))) == [2, 3]
    for number in (0, 1):
        with pytest.raises(DuplicateKey, match=f"number {number}"):
            do(ops.WriteLedger("a", number, ("again",)))
    assert do(ops.TrimLedger("a", 0)) == 0
    assert do(ops.TrimLedger("a", 9)) == 2
    assert do(ops.LastNotes("a")) == []
    with pytest.raises(DuplicateKey):
        do(ops.WriteLedger("a", 9, ("again",)))
    do(ops.WriteLedger("a", 10, ("ten",)))
    assert numbers(do(ops.ReadLedger("a"))) == [10]


def test_ledgers_are_listed_by_name(do):
    for name in ("job:b", "job:a", "Job:a", "sink:x", "jobs", "job:é"):
        do(ops.WriteLedger(name, 0, ("x", "y")))
    assert do(ops.ListLedgers()) == ["Job:a", "job:a", "job:b", "job:é", "jobs", "sink:x"]
    assert do(ops.ListLedgers("job:")) == ["job:a", "job:b", "job:é"]
    assert do(ops.ListLedgers("job:", limit=1)) == ["job:a"]
    assert do(ops.ListLedgers("job:", after="job:a")) == ["job:b", "job:é"]
    assert do(ops.ListLedgers("job:", after="z")) == []
    do(ops.TrimLedger("job:b", 7))
    assert do(ops.ListLedgers("job:", after="a")) == ["job:a", "job:é"]


def test_a_refusal_leaves_the_transaction_of_the_caller_usable(q, do):
    do(ops.WriteLedger("a", 0, ("first",)))
    with q.transaction() as tx:
        tx.execute(ops.WriteLedger("b", 0, ("kept",)))
        with pytest.raises(DuplicateKey):
            tx.execute(ops.WriteLedger("a", 0, ("second",)))
        tx.execute(ops.WriteLedger("a", 1, ("kept",)))
        assert tx.execute(ops.LastNotes("a")) == [Note(1, "kept")]
    assert do(ops.ReadLedger("a")) == [Note(0, "first"), Note(1, "kept")]
    assert do(ops.ReadLedger("b")) == [Note(0, "kept")]


def roll_back(q):
    with q.transaction() as tx:
        tx.execute(ops.WriteLedger("a", 2, ("two",)))
        tx.execute(ops.TrimLedger("a", 0))
        tx.execute(ops.WriteLedger("new", 0, ("x",)))
        tx.execute(ops.TrimLedger("a", 2))
        tx.execute(ops.WriteLedger("a", 3, ("three",)))
        raise ZeroDivisionError


def test_a_transaction_that_is_undone_has_written_and_trimmed_nothing(q, do):
    do(ops.WriteLedger("a", 0, ("zero", "one")))
    with pytest.raises(ZeroDivisionError):
        roll_back(q)
    assert numbers(do(ops.ReadLedger("a"))) == [0, 1]
    assert do(ops.ListLedgers()) == ["a"]
    do(ops.WriteLedger("a", 2, ("two",)))
    assert do(ops.LastNotes("a")) == [Note(2, "two")]


def test_ledgers_outlive_a_run(bench, do):
    do(ops.WriteLedger("a", 0, ("zero", "one")))
    do(ops.TrimLedger("a", 0))
    do = bench.new_run()._engine.execute
    assert do(ops.ReadLedger("a")) == [Note(1, "one")]
    with pytest.raises(DuplicateKey):
        do(ops.WriteLedger("a", 0, ("again",)))


def test_history_is_read_up_to_a_position(q, do):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(list("abcde"))
    seqs = [row.seq for row in do(ops.ReadHistory())]
    assert [row.seq for row in do(ops.ReadHistory(after=seqs[0], upto=seqs[3]))] == seqs[1:4]
    assert [row.seq for row in do(ops.ReadHistory("jobs", seqs[0], 2, seqs[3]))] == seqs[1:3]
    assert do(ops.ReadHistory(after=seqs[3], upto=seqs[3])) == []


def test_history_is_marked_every_so_many_events_and_at_the_last(q, do):
    assert do(ops.MarkHistory(every=3)) == []
    jobs, other = q.create_tube("jobs", history=True), q.create_tube("other", history=True)
    for number in range(7):
        jobs.put(number)
        other.put(number)
    every = [row.seq for row in do(ops.ReadHistory())]
    ours = [row.seq for row in do(ops.ReadHistory("jobs"))]
    assert len(every) == 14 and len(ours) == 7
    assert do(ops.MarkHistory(every=4)) == [every[3], every[7], every[11], every[13]]
    assert do(ops.MarkHistory(every=7)) == [every[6], every[13]]
    assert do(ops.MarkHistory(every=4, limit=2)) == [every[3], every[7]]
    assert do(ops.MarkHistory(every[7], 4)) == [every[11], every[13]]
    assert do(ops.MarkHistory(every=4, upto=every[8])) == [every[3], every[7], every[8]]
    assert do(ops.MarkHistory(every=3, tube="jobs")) == [ours[2], ours[5], ours[6]]
    assert do(ops.MarkHistory(ours[2], 2, 1, "jobs", ours[5])) == [ours[4]]
    assert do(ops.MarkHistory(every[-1])) == do(ops.MarkHistory(every[-1], 0)) == []
    assert do(ops.MarkHistory(every=0)) == [every[-1]]
    assert do(ops.MarkHistory(every=0, tube="jobs")) == [ours[-1]]
    assert do(ops.MarkHistory(every[2], 0, upto=every[5])) == [every[5]]


def test_what_was_forgotten_of_the_history_is_known(q, do):
    jobs = q.create_tube("jobs", history=True)
    assert do(ops.ForgetHistory(2**63 - 1)) == 0 and do(ops.LastNotes(FORGOTTEN)) == []
    jobs.put_many(list("abcd"))
    seqs = [row.seq for row in q.history()]
    assert do(ops.ForgetHistory(seqs[1])) == 2
    assert numbers(do(ops.ReadLedger(FORGOTTEN))) == [seqs[1]]
    assert do(ops.ForgetHistory(seqs[1])) == 0
    assert do(ops.ForgetHistory(2**63 - 1)) == 2
    assert numbers(do(ops.ReadLedger(FORGOTTEN))) == [seqs[3]]


def test_the_extent_of_a_tube_is_its_lowest_and_its_highest_seq(q, do, clock):
    jobs = q.create_tube("jobs", "fifottl")
    assert do(ops.GetExtent("jobs")) is None
    tasks = jobs.put_many(list("abcd"), ttl=60)
    assert do(ops.GetExtent("jobs")) == (1, 4)
    jobs.delete(tasks[0].id)
    jobs.delete(tasks[3].id)
    assert do(ops.GetExtent("jobs")) == (2, 3)
    clock.advance(60)
    assert do(ops.GetExtent("jobs")) is None
    with pytest.raises(TubeNotFound):
        do(ops.GetExtent("nobody"))


def test_the_moment_of_a_store_is_that_of_its_tasks(q, do, clock):
    assert do(ops.GetMoment()) == clock.now()
    clock.advance(5)
    assert do(ops.GetMoment()) == q.create_tube("jobs").put(1)._record.created_at
