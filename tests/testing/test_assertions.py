"""assert_put() and what it says when it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import ANY

import msgspec
import pydantic
import pytest
from tests.support.blocking import unwrap
from tests.testing.bench import drained

import penstock
from penstock import TubeNotFound, UsageError
from penstock.testing import ManualClock, assert_not_put, assert_put, empty


@pytest.fixture
def mail():
    with penstock.connect("memory:", clock=ManualClock()) as q:
        mail = q.create_tube("mail")
        mail.put({"to": "ann", "text": {"subject": "tea", "lines": [1, 2]}}, lane="a", pri=3)
        mail.put({"to": "bob"}, delay=60, key="k")
        mail.put(7)
        mail.bury(3, "what is this?")
        yield q


@dataclass
class Mail:
    to: str


class Struct(msgspec.Struct):
    to: str


class Model(pydantic.BaseModel):
    to: str


def failure(call):
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def test_it_finds_tasks_on_every_engine_in_both_colours(every_q):
    tube = every_q.create_tube("jobs", keep=True)
    tube.put_many([1, 2, 3])
    every_q.handler("jobs")(lambda n: n)
    target = unwrap(every_q)
    assert [task.data for task in assert_put(target, "jobs")] == [1, 2, 3]
    (task,) = assert_put(target, "jobs", 2, state="ready")
    assert isinstance(task, penstock.AsyncTask if isinstance(target, penstock.AsyncQueue) else penstock.Task)
    drained(every_q)
    assert_put(target, "jobs", count=3, state="done", reason="success", attempt=1)
    assert_not_put(target, "jobs", state="ready")
    empty(target)
    assert_not_put(target, "jobs")
    assert every_q.statistics()["jobs"].tasks["total"] == 0


@pytest.mark.parametrize(
    "data",
    [
        {"to": "bob"},
        {},
        {"to": ANY},
        {"to": lambda name: name.startswith("b")},
        lambda data: data == {"to": "bob"},
        Mail("bob"),
        Struct("bob"),
        Model(to="bob"),
        ANY,
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_fit_in_many_ways(mail, data):
    found = assert_put(mail, "mail", data, key="k")
    assert [task.data for task in found] == [{"to": "bob"}]


def test_a_dict_is_part_of_the_data_at_every_depth(mail):
    assert_put(mail, "mail", {"text": {"lines": [1, 2]}})
    assert_not_put(mail, "mail", {"text": {"lines": [1]}})
    assert_not_put(mail, "mail", {"text": {"subject": "tea", "more": None}})
    assert_not_put(mail, "mail", [])
    assert_put(mail, "mail", 7)


def test_bytes_are_compared_as_they_are():
    with penstock.connect("memory:") as q:
        q.create_tube("raw", payload="bytes").put(b"\xff")
        assert_put(q, "raw", b"\xff")
        assert_not_put(q, "raw", b"\xfe")


def test_fields_of_tasks_are_compared(mail):
    assert_put(mail, "mail", lane="a", pri=3, state=penstock.State.READY)
    assert_put(mail, "mail", delay=60)
    assert_put(mail, "mail", delay=timedelta(minutes=1), state="delayed")
    assert_put(mail, "mail", delay=lambda seconds: seconds > 59, count=1)
    assert_put(mail, "mail", error="what is this?", reason="asked")
    assert_not_put(mail, "mail", lane="b")


def test_a_tube_may_be_a_handler_that_nobody_has_put_to_yet(mail):
    other = mail.handler("others")(lambda n: n)
    assert_not_put(mail, other)
    assert "it has not been made yet" in failure(lambda: assert_put(mail, other))
    other.put(1)
    assert_put(mail, other, 1)
    assert_put(mail, mail.tube("others"), 1)


def test_a_failure_shows_what_is_there_instead(mail):
    assert failure(lambda: assert_put(mail, "mail", {"to": "cat"}, lane="a")) == (
        "tube 'mail' has no task with data {'to': 'cat'}, lane 'a'; it has 3:\n"
        "  task 1, ready: data {'to': 'ann', 'text': {'subject': 'tea', 'lines': [1, 2]}}, lane 'a'\n"
        "  task 2, delayed: data {'to': 'bob'}, lane None\n"
        "  task 3, buried (asked): data 7, lane None"
    )


def test_a_failure_counts(mail):
    assert "has 3 tasks instead of 2; it has 3:" in failure(lambda: assert_put(mail, "mail", count=2))
    assert "has 1 task with state 'delayed' instead of none" in failure(
        lambda: assert_not_put(mail, "mail", state="delayed")
    )
    assert "has no task with state 'done' instead of 1" in failure(
        lambda: assert_put(mail, "mail", count=1, state="done")
    )
    mail.tube("mail").put_many(range(20))
    assert failure(lambda: assert_put(mail, "mail", "x")).endswith("and 13 more")


def test_a_failure_tells_that_tasks_are_done_and_gone(mail):
    quick = mail.handler("quick")(lambda n: n)
    quick.put_many([1, 2])
    drained(mail, quick)
    assert failure(lambda: assert_put(mail, quick)).endswith("it is empty, and 2 that are done were not kept")
    mail.create_tube("idle")
    assert failure(lambda: assert_put(mail, "idle")).endswith("it is empty")


def test_what_cannot_be_meant_is_refused(mail):
    with pytest.raises(TubeNotFound):
        assert_not_put(mail, "mial")
    with pytest.raises(UsageError, match="tasks have no colour; there are attempt, cancel_asked"):
        assert_put(mail, "mail", colour="red")
    with pytest.raises(UsageError, match="state must be one of"):
        assert_put(mail, "mail", state="red")


def test_a_transaction_of_ones_own_is_noticed():
    async def main():
        async with await penstock.aconnect("memory:") as q:
            await q.create_tube("jobs")
            async with q.transaction():
                with pytest.raises(UsageError, match=r"inside q.transaction\(\)"):
                    assert_not_put(q, "jobs")

    asyncio.run(main())


def test_an_emptied_queue_keeps_its_tubes_but_no_tasks_schedules_or_events(every_q):
    jobs = every_q.create_tube("jobs", history=True, capacity=3)
    jobs.put_many([1, 2], key=None)
    jobs.take()
    jobs.bury(2)
    every_q.schedule("nightly", "jobs", every=3600)
    empty(unwrap(every_q))
    assert (jobs.tasks(), every_q.schedules(), every_q.history()) == ([], [], [])
    assert every_q.tube("jobs").options["capacity"] == 3
    jobs.put("again")
    assert jobs.take().data == "again"
