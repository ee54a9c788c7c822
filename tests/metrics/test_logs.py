"""Logs that programs can read, and what workers say in them."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest
from tests.support.blocking import unwrap
from tests.worker.bench import PATIENCE, Working, until, work
from tests.worker.conftest import on_both

import penstock
from penstock.metrics import logs


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Logging is as before when a test is over."""
    logger = logging.getLogger("penstock")
    handlers = list(logger.handlers)
    yield
    logger.handlers[:] = handlers
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def of_workers(stream: io.StringIO) -> list[dict[str, Any]]:
    """Without the lines of stores, which may be those of other tests."""
    return [line for line in lines(stream) if line["logger"] == "penstock.worker"]


def formatted(level: int = logging.INFO, message: str = "hello", **more: Any) -> dict[str, Any]:
    record = logging.getLogger("penstock.worker").makeRecord("penstock.worker", level, "f", 1, message, (), None)
    for name, value in more.items():
        setattr(record, name, value)
    text = logs.JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


# -- the form ------------------------------------------------------------------------------------------


def test_a_record_is_one_line_with_its_fields(stream: io.StringIO) -> None:
    logs.setup("INFO", "json", stream)
    before = datetime.now(UTC)
    facts = {"tube": "crawl", "task_id": 7, "attempt": 2, "lane": "a", "key": "k", "ending": "fail", "seconds": 0.25}
    logging.getLogger("penstock.worker").warning("task %r failed:\n%s", 7, "why", extra=facts)
    (line,) = lines(stream)
    assert before <= datetime.fromisoformat(line.pop("time")) <= datetime.now(UTC)
    assert line == {
        "level": "WARNING",
        "logger": "penstock.worker",
        "message": "task 7 failed:\nwhy",
        **facts,
    }


def test_nothing_else_that_a_record_holds_is_shown() -> None:
    line = formatted(tube="crawl", token=12345, session="6f9f…", data={"secret": 1}, lane=None)
    assert set(line) == {"time", "level", "logger", "message", "tube"}


def test_an_exception_is_text() -> None:
    try:
        raise ValueError("bad\x00 \ud800 data")
    except ValueError as error:
        line = formatted(exc_info=(ValueError, error, error.__traceback__))
    assert line["exception"].startswith("Traceback") and "ValueError: bad" in line["exception"]


@pytest.mark.parametrize("id", [1, "a", (1, "b"), 2**63])
def test_ids_of_every_kind_are_shown(id: Any) -> None:
    assert formatted(task_id=id)["task_id"] == (list(id) if isinstance(id, tuple) else id)


@pytest.mark.parametrize("value", [object(), {1: object()}, "\ud800", float("nan"), b"\xff"])
def test_what_json_cannot_say_does_not_lose_the_line(value: Any) -> None:
    assert formatted(key=value)["message"] == "hello"


def test_text_is_for_people(stream: io.StringIO) -> None:
    logs.setup(logging.INFO, "text", stream)
    logging.getLogger("penstock.worker").info("handlers reloaded")
    assert stream.getvalue().endswith(" INFO    penstock.worker: handlers reloaded\n")


def test_a_second_setup_replaces_the_first(stream: io.StringIO) -> None:
    logs.setup("DEBUG", "text", io.StringIO())
    logs.setup("error", "json", stream)
    logger = logging.getLogger("penstock")
    logger.warning("not shown")
    logger.error("shown")
    assert [line["message"] for line in lines(stream)] == ["shown"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(penstock.UsageError, match="format must be 'text' or 'json', got 'xml'"):
        logs.setup("INFO", "xml")
    with pytest.raises(penstock.UsageError, match="level must be one of DEBUG INFO WARNING ERROR CRITICAL, got 'LOUD'"):
        logs.setup("LOUD")


# -- what workers say ----------------------------------------------------------------------------------


def test_a_failed_run_is_told_with_its_fields(q: Any, stream: io.StringIO) -> None:
    logs.setup("INFO", "json", stream)

    @q.handler("jobs", max_attempts=1)
    def job(data: Any) -> None:
        raise ValueError("no luck")

    task = job.put({"password": "hunter2"}, lane="a.example", key="mine")
    work(q)
    (line,) = [line for line in of_workers(stream) if line["level"] == "ERROR"]
    how = "failed in attempt 1 of 1, buried: no attempts left"
    assert line["message"] == f"task {task.id!r} of 'jobs' {how}: ValueError: no luck"
    facts = {"tube": "jobs", "task_id": task.id, "attempt": 1, "lane": "a.example", "key": "mine", "ending": "fail"}
    assert {name: line[name] for name in facts} == facts
    assert line["seconds"] >= 0


@pytest.mark.parametrize(
    ("error", "word", "ending"),
    [(penstock.Abort("x"), "aborted", "abort"), (penstock.Bury("y"), "was buried", "bury")],
)
def test_ends_on_purpose_are_told_by_their_names(error: Any, word: str, ending: str, stream: io.StringIO) -> None:
    logs.setup("INFO", "json", stream)
    with penstock.connect("memory:") as q:

        @q.handler("jobs")
        def job(n: int) -> None:
            raise error

        job.put(1)
        work(q)
    (line,) = [line for line in of_workers(stream) if line["level"] == "WARNING"]
    assert line["message"].startswith(f"task 1 of 'jobs' {word}: ") and line["ending"] == ending


def test_every_run_is_told_to_those_who_debug_and_to_nobody_else(q: Any, stream: io.StringIO) -> None:
    @q.handler("jobs")
    def job(n: int) -> None: ...

    for level, number in (("INFO", 0), ("DEBUG", 1)):
        logs.setup(level, "json", stream)
        task = job.put(1)
        work(q)
        told = [line for line in of_workers(stream) if line["level"] == "DEBUG"]
        assert len(told) == number
    assert told[0]["message"] == f"task {task.id!r} of 'jobs' has run: ack"
    assert (told[0]["tube"], told[0]["ending"]) == ("jobs", "ack")


def test_an_end_that_comes_too_late_is_told_with_its_fields(q: Any, stream: io.StringIO) -> None:
    logs.setup("INFO", "json", stream)
    begun, go_on = threading.Event(), threading.Event()

    @q.handler("jobs", max_attempts=1)
    def job(n: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    task = job.put(1)
    with Working(q):
        assert begun.wait(PATIENCE)
        q.tube("jobs").delete(task.id)
        go_on.set()
        until(lambda: "came too late" in stream.getvalue())
    line = next(line for line in lines(stream) if "came too late" in line["message"])
    assert (line["tube"], line["task_id"], line["ending"]) == ("jobs", task.id, "ack")


class Order(pydantic.BaseModel):
    card: int


@on_both
def test_logs_hold_no_data_no_sessions_and_no_tokens(q: Any, stream: io.StringIO) -> None:
    logs.setup("DEBUG", "json", stream)
    seen: list[str] = []

    @q.handler("orders", max_attempts=2, retry=0)
    def order(data: Order, run: penstock.Run) -> None:
        seen.extend([str(run.task.token), run.task._tube._session.uuid])
        if run.attempt == 1:
            raise OSError("down")

    order.put({"card": 4111222233334444})
    q.tube("orders").put({"card": "4111-5555-6666"})
    work(q)
    text = stream.getvalue()
    assert len(seen) == 4
    for secret in [*seen, unwrap(q)._session.uuid, "4111222233334444", "4111-5555-6666"]:
        assert secret not in text


def test_a_session_does_not_show_its_uuid() -> None:
    with penstock.connect("memory:") as q:
        assert q._session.uuid not in repr(q._session)
        assert q._session.name in repr(q._session)
