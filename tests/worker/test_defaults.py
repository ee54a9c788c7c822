"""What handlers ask of their tubes when nobody says anything: the same whoever made the tube."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.handlers import DEFAULTS


@pytest.fixture
def memory() -> Any:
    with penstock.connect("memory:") as q:
        yield q


def served(q: Any, **options: Any) -> dict[str, Any]:
    """The options of a handler's tube once a worker has started."""
    q.handler("jobs", **options)(lambda data: None)
    penstock.Worker(q).run(until_empty=True, signals=False)
    return {name: q.tube("jobs").options[name] for name in DEFAULTS}


@pytest.mark.parametrize("exists", [True, False])
def test_what_neither_the_handler_nor_the_tube_says_has_a_default(memory, exists):
    if exists:
        memory.create_tube("jobs")
    assert served(memory, max_attempts=5) == {**DEFAULTS, "max_attempts": 5}


@pytest.mark.parametrize("said", [{"max_attempts": 2}, {"retry": 7}])
def test_a_tube_that_says_what_failures_do_is_left_alone(memory, said):
    memory.create_tube("jobs", **said)
    assert served(memory) == {"max_attempts": None, "retry": None, "ttr": 3600, **said}


def test_a_kind_that_says_what_failures_do_is_left_alone(memory):
    memory.register_kind(
        "twice",
        type(
            "Twice",
            (penstock.Kind,),
            {"features": penstock.Features(delay=True, ttr=True), "defaults": {"max_attempts": 2}},
        ),
    )
    assert served(memory, kind="twice") == {"max_attempts": 2, "retry": None, "ttr": 3600}


@pytest.mark.parametrize("exists", [True, False])
def test_where_the_ttl_bounds_a_run_there_is_no_other_limit(memory, exists):
    if exists:
        memory.create_tube("jobs", "fifottl", ttl=60)
    assert served(memory, kind="fifottl", ttl=60)["ttr"] is None


def test_kinds_without_delays_have_no_default_retry(memory):
    assert served(memory, kind="fifo") == {"max_attempts": 25, "retry": None, "ttr": None}
