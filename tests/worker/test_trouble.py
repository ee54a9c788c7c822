"""Endings that are not ok: each is logged once, and counted."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest
from tests.worker.bench import work

import penstock
from penstock.metrics import logs


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.getMessage().startswith("task ")
    ]


def test_a_result_that_cannot_be_stored_is_logged(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    job = memory.handler("jobs", keep=True)(lambda data: object())
    job.put(1)
    tally = work(memory)
    ((level, text),) = told(caplog)
    assert level == "WARNING"
    assert text.startswith("task 1 of 'jobs' aborted: the work was done, but its result cannot be stored")
    assert tally.of("jobs").outcomes == {"abort": 1}


def test_a_task_without_a_handler_is_logged_and_counted(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    memory.create_tube("odd").put_many([1, 2])
    tally = work(memory, tubes=["odd"])
    assert told(caplog) == [
        ("WARNING", f"task {id} of 'odd' was buried: no handler of this worker is for tube 'odd'") for id in (1, 2)
    ]
    odd = tally.of("odd")
    assert (odd.trouble, odd.outcomes, sum(odd.buckets)) == (2, {"unknown_handler": 2}, 0)


def test_what_a_handler_cancels_by_itself_is_logged(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    @memory.handler("jobs", max_attempts=1)
    async def job(data: Any) -> None:
        raise asyncio.CancelledError

    job.put(1)
    work(memory)
    ((level, text),) = told(caplog)
    assert level == "ERROR" and "CancelledError" in text


def test_the_last_attempt_says_that_it_is_the_last(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    @memory.handler("jobs", max_attempts=2, retry=0)
    def job(data: Any) -> None:
        raise ValueError("no luck")

    job.put(1)
    work(memory)
    assert told(caplog) == [
        ("WARNING", "task 1 of 'jobs' failed in attempt 1 of 2: ValueError: no luck"),
        ("ERROR", "task 1 of 'jobs' failed in attempt 2 of 2, buried: no attempts left: ValueError: no luck"),
    ]
    last = vars(caplog.records[-1])
    assert (last["attempt"], last["max_attempts"], last["ending"]) == (2, 2, "fail")


def test_attempts_without_a_limit_have_a_number(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    @memory.handler("jobs", max_attempts=None, retry=3600)
    def job(data: Any) -> None:
        raise ValueError("no luck")

    job.put(1)
    work(memory, horizon=60)
    assert told(caplog) == [("WARNING", "task 1 of 'jobs' failed in attempt 1: ValueError: no luck")]


def test_a_line_of_json_has_the_stored_text_of_the_error(memory: Any) -> None:
    stream, logger = io.StringIO(), logging.getLogger("penstock")
    handler = logs.setup("WARNING", "json", stream)
    try:

        @memory.handler("jobs", max_attempts=1)
        def job(data: Any) -> None:
            raise penstock.Abort("no such address")

        task = job.put(1)
        work(memory)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    (line,) = [line for line in told if line["logger"] == "penstock.worker"]
    assert line["exception"] == memory.tube("jobs").peek(task.id).error
    assert "in job" in line["exception"] and line["max_attempts"] == 1
