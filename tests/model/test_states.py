"""The state machine's tables are sane."""

from __future__ import annotations

import penstock
from penstock.engines.sqlite.statements import render
from penstock.model import errors
from penstock.model.state import BURIED_REASONS, DONE_REASONS, LETTERS, LIVE, TRANSITIONS, VERBS, Event, Reason, State
from penstock.model.tube import KINDS, new_tube


def test_every_state_can_be_reached_and_left():
    reached, rest = {None}, set(TRANSITIONS)
    while grown := {edge for edge in rest if edge.source in reached}:
        reached |= {edge.target for edge in grown}
        rest -= grown
    assert reached == {None, *State}
    assert not rest
    assert {edge.source for edge in TRANSITIONS} == {None, *State}


def test_a_task_is_born_ready_or_delayed_by_put_alone():
    births = {(edge.event, edge.target) for edge in TRANSITIONS if edge.source is None}
    assert births == {(Event.PUT, State.READY), (Event.PUT, State.DELAYED)}
    assert all(edge.source is None for edge in TRANSITIONS if edge.event == Event.PUT)


def test_only_take_leads_to_taken_and_only_from_ready():
    grants = {(edge.event, edge.source) for edge in TRANSITIONS if edge.target == State.TAKEN}
    assert grants == {(Event.TAKE, State.READY), (Event.TOUCH, State.TAKEN)}


def test_buried_and_done_have_a_reason_of_their_own_and_the_rest_none():
    for edge in TRANSITIONS:
        allowed = {State.BURIED: BURIED_REASONS, State.DONE: DONE_REASONS}.get(edge.target, (None,))
        assert edge.reason in allowed, edge
    used = {edge.reason for edge in TRANSITIONS} - {None}
    assert used == set(Reason) == {*BURIED_REASONS, *DONE_REASONS}


def test_every_event_is_used():
    assert {edge.event for edge in TRANSITIONS} == set(Event)


def test_time_never_touches_a_task_that_is_taken_but_by_ttr():
    by_time = {edge.event for edge in TRANSITIONS if edge.source == State.TAKEN} & {Event.TTL, Event.DELAY, Event.TTR}
    assert by_time == {Event.TTR}


def test_letters_are_unique_and_live_is_all_but_done():
    assert len(set(LETTERS.values())) == len(State) == len(LETTERS)
    assert set(LIVE) == set(State) - {State.DONE}
    assert [state.letter for state in State] == ["r", "t", "~", "!", "-"]


def test_the_table_of_verbs_has_states_and_errors_that_exist():
    columns = {*(str(state) for state in State), "other"}
    known = {*(str(state) for state in State), "gone", *(error.__name__ for error in errors.ALL)}
    for verb, row in VERBS.items():
        assert set(row) == columns
        assert set(row.values()) <= known
        assert hasattr(penstock.Tube, verb)


def test_the_table_of_a_tube_checks_states_and_reasons():
    for kind in KINDS.values():
        statement = render(1, new_tube("jobs", kind, False, {}))["create"]
        for word in (*State, *Reason):
            assert f"'{word}'" in statement
        assert "CHECK" in statement


def test_errors_have_codes_and_exit_statuses_of_their_own():
    codes = [error.code for error in errors.ALL]
    assert len(set(codes)) == len(codes)
    assert [error.exit_status() for error in errors.ALL] == [64 + i for i in range(len(codes))]
    assert errors.PenstockError.exit_status() == 1
