"""The reference names everything that there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import penstock
from penstock.calls import ENTRY_OPTIONS
from penstock.model import errors
from penstock.model.state import Event, Reason, State
from penstock.model.stats import CALLS, TASKS
from penstock.model.tube import KINDS, LANE_OPTIONS, OPTIONS, Kind
from penstock.view import TaskView

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference.md").read_text()
QUOTED = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", TEXT))))


CHAPTERS = {
    penstock.Queue: ("Queue", "Handlers", "Schedules"),
    penstock.Handler: ("Handlers",),
    penstock.Run: ("Run",),
    penstock.Worker: ("Worker",),
    penstock.Hooks: ("Worker",),
    penstock.Tube: ("put", "Taking and finishing", "Looking and moving", "The tube itself"),
    penstock.Task: ("Taking and finishing",),
    penstock.Lane: ("Lane options",),
}
TUPLES = {
    penstock.HistoryEvent: "HistoryEvent",
    penstock.Statistics: "The tube itself",
    penstock.LaneInfo: "The tube itself",
    penstock.LaneLimits: "Lane options",
    penstock.Features: "Kinds",
    penstock.Schedule: "Schedules",
}
INSIDE = {"changes", "first_options"}
"""Verbs of a handler that are for queues and workers."""


def chapter(name: str) -> list[str]:
    """What one chapter has in code type."""
    body = re.search(rf"^##+ {re.escape(name)}\n(.*?)(?=^##+ |\Z)", TEXT, re.M | re.S)
    assert body, f"the reference has no chapter {name!r}"
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", body[1], flags=re.M | re.S))


def section(name: str) -> set[str]:
    """The words of that."""
    return set(re.findall(r"\w+", " ".join(chapter(name))))


def arguments(cls: type, verb: str) -> set[str]:
    """The arguments that a verb is shown with; `..` at the end stands for all that its chapter names."""
    found: set[str] = set()
    for name in CHAPTERS[cls]:
        for shown in chapter(name):
            call = re.fullmatch(rf"(?:.*\.)?{verb}\((.*)\)", shown)
            if call:
                found |= set(re.findall(r"\w+", call[1]))
                found |= section(name) if re.search(r"(?:^|, )\.\.$", call[1]) else set()
    return found


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("cls", [*CHAPTERS, Kind, penstock.Tally, penstock.Schedule])
def test_every_verb_and_attribute_is_named(cls):
    inside = {
        "name",
        "ttr_is_ttl",
        "shared_lane",
        "same_as",
        "to_data",
        "from_data",
        "after",
        "before",
        "index",
        "count",
        *INSIDE,
    }
    assert public(cls) - QUOTED - inside == set()


@pytest.mark.parametrize("cls", CHAPTERS)
def test_every_argument_of_every_verb_is_shown_with_it(cls):
    for name, verb in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_") and name not in INSIDE:
            taken = inspect.signature(verb).parameters.values()
            named = {parameter.name for parameter in taken if parameter.kind != parameter.VAR_KEYWORD}
            missing = named - {"self"} - arguments(cls, name)
            assert not missing, f"{cls.__name__}.{name}: {missing}"


def test_every_argument_of_a_worker_is_in_its_table():
    assert set(inspect.signature(penstock.Worker).parameters) - section("Worker") == set()


@pytest.mark.parametrize("cls", TUPLES)
def test_every_field_of_a_tuple_is_in_its_chapter(cls):
    assert set(cls._fields) - section(TUPLES[cls]) == set()


def test_every_public_tuple_is_looked_at():
    named = [getattr(penstock, name) for name in penstock.__all__]
    assert {value for value in named if hasattr(value, "_fields")} == set(TUPLES)


def test_every_option_of_a_tube_is_in_its_table():
    assert set(OPTIONS) - section("Tube options") == set()


def test_every_option_of_put_is_in_its_table():
    assert set(ENTRY_OPTIONS) | {"timeout", "transaction", "errors"} <= section("put")


def test_every_option_of_a_lane_is_in_its_table():
    assert set(LANE_OPTIONS) - section("Lane options") == set()


def test_every_attribute_of_a_task_is_in_its_table():
    assert public(TaskView) - section("Task") == set()


def test_every_kind_state_reason_event_and_counter_is_named():
    for words in (KINDS, State, Reason, Event):
        assert {str(word) for word in words} - QUOTED == set()
    counters = set(re.findall(r"\w+", TEXT))
    assert {*TASKS, *map(str, CALLS)} <= counters


def test_every_error_has_its_code_and_exit_status():
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \|", TEXT, re.M)
    assert rows == [(error.__name__, error.code, str(error.exit_status())) for error in errors.ALL]


def test_every_public_name_is_mentioned_somewhere():
    assert set(penstock.__all__) - set(re.findall(r"\w+", TEXT)) == set()
