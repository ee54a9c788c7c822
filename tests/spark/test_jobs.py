"""What Spark asks of writers and sinks, without Spark: commits that race, repeat, come late or cannot clean up."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import ROOT, environment
from tests.spark.places import PLACES, check_once, check_put
from tests.spark.writers import SCHEMA, batch, staged, writer
from tests.support.engines import ENGINES

import penstock
from penstock import UsageError
from penstock.engines import open_engine
from penstock.model import ops
from penstock.model.errors import EngineUnavailable
from penstock.model.staging import Lost, Promoted
from penstock.spark import jobs, sink, stores
from penstock.spark.options import Options
from penstock.spark.sink import Sink, StagedBatch
from penstock.spark.writing import Staged, Writer, stage
from penstock.testing import ManualClock

PATIENCE = 600
DURABLE = [engine for engine in ENGINES if engine.durable]
POSTGRES = [engine for engine in DURABLE if engine.name == "postgres"]
SQLITE = [engine for engine in DURABLE if engine.name == "sqlite"]


@pytest.fixture(params=DURABLE, ids=lambda engine: engine.name)
def place(request, tmp_path):
    url = request.param.url(tmp_path)
    yield url
    stores.close_all()
    request.param.clean(url)


@pytest.fixture
def q(place):
    with penstock.connect(place) as queue:
        queue.create_tube("jobs")
        yield queue


@pytest.fixture
def engine(q):
    return q._engine


def test_a_job_without_a_name_may_take_longer_than_its_like_are_remembered(place, q, engine):
    made = writer(place)
    messages = staged(engine, made, range(5))
    other = writer(place)
    other.commit(staged(engine, other, range(5, 10)))
    engine.execute(ops.TrimLedger(jobs.RUNS, engine.execute(ops.GetMoment()) * jobs.MOMENT))
    made.commit(messages)
    check_once(q, 10)
    assert engine.execute(ops.ListLedgers()) == []


def test_a_commit_whose_number_was_forgotten_is_an_error_and_no_success(place, q, engine):
    made = writer(place, jobId="load")
    messages = staged(engine, made, range(5))
    engine.execute(ops.TrimLedger("job:load", jobs.OUTCOME))
    with pytest.raises(EngineUnavailable, match="nothing was put; run the job again"):
        made.commit(messages)
    assert [job.parts for job in engine.execute(ops.ListStaged())] == [1]
    made.abort(messages)
    check_once(q, 0)


def test_of_two_unnamed_commits_with_one_number_both_put(place, q, engine, monkeypatch):
    last = 2**62
    numbers = iter([last, last, last + 1])
    monkeypatch.setattr(jobs, "_moment", lambda engine: next(numbers))
    for first in (0, 5):
        made = writer(place)
        made.commit(staged(engine, made, range(first, first + 5)))
    assert [note.number for note in engine.execute(ops.ReadLedger(jobs.RUNS))] == [last, last + 1]
    check_once(q, 10)


def test_a_commit_that_is_repeated_after_its_answer_was_lost_is_done_once(place, q, engine):
    for name in (None, "load"):
        made = writer(place, **({} if name is None else {"jobId": name}))
        run, parts = made._run, [jobs.Part("0-0", 5)]
        staged(engine, made, range(5))
        assert jobs.commit(engine, name, run, "jobs", parts, "ignore") is True
        ledger = jobs.RUNS if name is None else "job:load"
        (number, _), *_ = engine.execute(ops.LastNotes(ledger, 2))[::-1]
        assert jobs.promote(engine, ledger, number, "{}", run, "jobs", parts, "ignore") is None
        assert jobs._committed_by(engine, ledger, number) == run
    check_put(q, 10)
    assert jobs.outcome(engine, "load") == Promoted(5)


def test_lost_rows_are_told_at_once(place, q, engine):
    made = writer(place, jobId="load")
    messages = staged(engine, made, range(5))
    jobs.discard(engine, made._run)
    with pytest.raises(Lost, match="has 0 staged rows, and 5 were staged"):
        made.commit(messages)
    assert writer(place, jobId="load")._is_open


DRIVER = """
import os, signal, sys
from tests.spark.writers import staged, writer
from penstock.spark import stores
fault, *places = sys.argv[1:]
for place in places:
    made = writer(place, jobId="load")
    messages = staged(stores.store(stores.absolute(place)), made, range(500))
    print("staged", flush=True)
    sys.stdin.readline()
    if fault == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    made.commit(messages)
    if fault == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    print("done", flush=True)
"""


def driver(fault: str, *places: str) -> subprocess.Popen[str]:
    """A process that writes as a driver of Spark does, and dies before or after its commit if it is told so."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", DRIVER, fault, *places], env=environment(), cwd=ROOT, **pipes)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_is_run_again_with_the_same_job(place, q, engine, moment):
    killed = driver(moment, place)
    assert killed.communicate("\n", timeout=PATIENCE)[0] == "staged\n"
    assert killed.returncode == -signal.SIGKILL
    assert q.tube("jobs").statistics().tasks["total"] == (0 if moment == "before" else 500)
    again = writer(place, jobId="load")
    assert again._is_open == (moment == "before")
    again.commit(staged(engine, again, range(500)) if again._is_open else [Staged("0-0", 0)])
    assert jobs.outcome(engine, "load") == Promoted(500)
    assert len(engine.execute(ops.ListStaged())) == (1 if moment == "before" else 0)
    assert jobs.clean(engine) == (1 if moment == "before" else 0)
    check_once(q, 500)


def test_of_two_processes_with_one_job_one_puts(tmp_path):
    places = [place.url(tmp_path) for place in PLACES]
    for place in places:
        with penstock.connect(place) as q:
            q.create_tube("jobs")
    drivers = [driver("", *places) for _ in range(2)]
    for place in places:
        with penstock.connect(place) as q:
            assert [one.stdout.readline() for one in drivers] == ["staged\n"] * 2
            assert len(q._engine.execute(ops.ListStaged())) == 2
            for one in drivers:
                one.stdin.write("\n")
                one.stdin.flush()
            assert [one.stdout.readline() for one in drivers] == ["done\n"] * 2
            assert jobs.outcome(q._engine, "load") == Promoted(500)
            assert q._engine.execute(ops.ListStaged()) == []
            check_once(q, 500)
    for one in drivers:
        one.communicate(timeout=PATIENCE)
        assert one.returncode == 0


@pytest.fixture
def impatient(request, tmp_path):
    """A place whose connections wait for others for a moment only."""
    (postgres,) = POSTGRES
    url = postgres.url(tmp_path)
    yield f"{url}{'&' if '?' in url else '?'}patience=0.1"
    stores.close_all()
    postgres.clean(url)


def test_a_driver_waits_for_another_with_the_same_job(impatient, monkeypatch):
    with penstock.connect(impatient) as q:
        q.create_tube("jobs")
        engine = q._engine
        made = writer(impatient, jobId="load")
        messages = staged(engine, made, range(5))
        tries, ended, tried = list[bool](), list[str](), threading.Event()
        begin = type(engine).transaction

        def counted(self: Any) -> Any:
            tries.append(True)
            if len(tries) > 2:
                tried.set()
            return begin(self)

        def commit() -> None:
            made.commit(messages)
            ended.append("committed")

        with engine.transaction() as tx:
            tx.execute(ops.WriteLedger("job:load", jobs.COMMITTED, (json.dumps({"run": "another"}),)))
            monkeypatch.setattr(type(engine), "transaction", counted)
            thread = threading.Thread(target=commit)
            thread.start()
            assert tried.wait(PATIENCE)
        thread.join(PATIENCE)
        assert ended == ["committed"]
        check_once(q, 0)


@pytest.mark.parametrize("place", POSTGRES, indirect=True, ids=["postgres"])
def test_jobs_with_the_same_keys_in_another_order_are_both_put(place, q, engine):
    keys = [f"k{n}" for n in range(1500)]
    made = []
    for order in (keys, keys[::-1]):
        one = writer(place)
        messages: list[Staged | None] = []
        for part in range(3):
            some = order[part * 500 : part * 500 + 500]
            messages += staged(engine, one, range(500), f"{part}-{part}", key=pa.array(some))
        made.append((one, open_engine(place, None, "strict"), messages))
    together, failed = threading.Barrier(2), list[str]()

    def commit(one: Writer, own: Any, messages: Any) -> None:
        together.wait(PATIENCE)
        try:
            parts = [jobs.Part(message.part, message.rows) for message in messages]
            jobs.commit(own, None, one._run, "jobs", parts, "ignore")
        except BaseException as error:
            failed.append(str(error))

    threads = [threading.Thread(target=commit, args=each) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for _, own, _ in made:
        own.close()
    assert failed == []
    assert q.tube("jobs").statistics().tasks["total"] == 1500


def test_a_commit_is_no_failure_because_its_rows_cannot_be_discarded(impatient, caplog):
    with penstock.connect(impatient) as q:
        q.create_tube("jobs")
        engine = q._engine
        made = writer(impatient, jobId="load")
        messages = staged(engine, made, range(5))
        with engine.store._connections.borrowed() as reader, reader.transaction():
            tables = "select oid::regclass::text from pg_class where relname like 'stage\\_%' and relkind = 'r'"
            ((table,),) = reader.execute(tables).fetchall()
            reader.execute(f"lock table {table} in access share mode")
            made.commit(messages)
            assert "cannot be removed now" in caplog.text
            jobs._cleaned.clear()
            writer(impatient)
        assert [job.parts for job in engine.execute(ops.ListStaged())] == [1]
        check_once(q, 5)


@pytest.mark.parametrize("place", SQLITE, indirect=True, ids=["sqlite"])
def test_files_that_cannot_be_removed_are_told_and_tried_once(place, q, engine, caplog, monkeypatch):
    tried: list[Any] = []

    def refuse(folder: Any, *args: Any, **kwargs: Any) -> None:
        tried.append(folder)
        raise PermissionError(13, "Permission denied")

    made = writer(place)
    messages = staged(engine, made, range(5))
    monkeypatch.setattr(shutil, "rmtree", refuse)
    made.commit(messages)
    assert len(tried) == 1
    assert "cannot be removed: Permission denied" in caplog.text
    monkeypatch.undo()
    check_once(q, 5)


def test_age_is_told_by_the_clock_of_the_store(place, q, engine, monkeypatch):
    made = writer(place)
    messages = staged(engine, made, range(5))
    ahead = ManualClock()
    ahead.advance(10**9)
    monkeypatch.setattr(engine, "clock", ahead)
    assert jobs.clean(engine) == 0
    made.commit(messages)
    check_once(q, 5)


def test_cleaning_discards_what_never_ended_and_what_others_have_committed(place, q, engine):
    left, late = writer(place), writer(place, jobId="load")
    staged(engine, left, range(5))
    staged(engine, late, range(5))
    done = writer(place, jobId="load")
    done.commit(staged(engine, done, range(5)))
    assert jobs.clean(engine) == 1
    assert [job.job for job in engine.execute(ops.ListStaged())] == [left._run]
    assert jobs.clean(engine, older_than=0) == 1
    assert engine.execute(ops.ListLedgers()) == ["job:load"]
    check_once(q, 5)


def test_a_batch_that_comes_again_in_other_partitions_is_put_once(place, q, engine):
    def sent(number: int, *sizes: int) -> list[StagedBatch | None]:
        run = f"sink:q:{number}:{len(sizes)}"
        rows = [(f"{part}-0", [batch(range(size))]) for part, size in enumerate(sizes)]
        counts = [(part, stage(engine, "jobs", run, part, batches, 1)) for part, batches in rows]
        return [StagedBatch(run, "q", number, part, count) for part, count in counts]

    made = Sink(Options({"url": place, "tube": "jobs"}), SCHEMA)
    made.commit(sent(0, 4, 2), 0)
    made.commit(sent(0, 1, 2, 3), 0)
    made.abort(sent(1, 5), 1)
    made.commit(sent(1, 5), 1)
    assert [note.number for note in engine.execute(ops.ReadLedger("sink:q"))] == [0, 1]
    assert engine.execute(ops.ListStaged()) == []
    check_put(q, 11)


def test_of_two_queries_with_one_sink_the_one_that_loses_is_told(place, q, engine, monkeypatch):
    sent = {}
    for query in ("q1", "q2"):
        run = f"sink:{query}:0:r"
        number = stage(engine, "jobs", run, "0-0", [batch([1])], 1)
        sent[query] = [StagedBatch(run, query, 0, "0-0", number)]

    def made() -> Sink:
        return Sink(Options({"url": place, "tube": "jobs", "sinkId": "s"}), SCHEMA)

    look = sink._is_committed

    def overtaken(engine: Any, ledger: str, query: str, number: int) -> bool:
        seen = look(engine, ledger, query, number)
        monkeypatch.setattr(sink, "_is_committed", look)
        made().commit(sent["q1"], 0)
        return seen

    monkeypatch.setattr(sink, "_is_committed", overtaken)
    with pytest.raises(UsageError, match="sink 's' belongs to query q1, and this one is q2"):
        made().commit(sent["q2"], 0)
    made().commit(sent["q1"], 0)
    check_put(q, 1)


@pytest.mark.parametrize("name", ["a\0b", "\udc80", "x" * 256])
def test_names_that_a_store_cannot_keep_are_refused(tmp_path, name):
    place = str(tmp_path / "tasks.db")
    with pytest.raises(UsageError, match="option jobId must"):
        writer(place, jobId=name)
    with pytest.raises(UsageError, match="option sinkId must"):
        Sink(Options({"url": place, "tube": "jobs", "sinkId": name}), SCHEMA)
