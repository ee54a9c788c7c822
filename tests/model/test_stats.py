"""Counters."""

from __future__ import annotations

from penstock.model.state import Event, State
from penstock.model.stats import Counters


def test_rows_move_between_states_and_total_is_what_lives():
    counters = Counters.zero()
    counters.move(None, State.READY, 3)
    counters.move(State.READY, State.TAKEN)
    counters.move(State.TAKEN, State.DONE)
    tasks = counters.statistics().tasks
    assert (tasks["ready"], tasks["taken"], tasks["kept"], tasks["total"]) == (2, 0, 1, 2)
    assert counters.live() == 2
    assert counters.rows(State.DONE) == 1


def test_calls_are_counted_by_event():
    counters = Counters.zero()
    counters.call(Event.PUT)
    counters.call(Event.PUT, 4)
    calls = counters.statistics().calls
    assert calls["put"] == 5
    assert set(calls) == {str(event) for event in Event}


def test_a_new_run_counts_calls_anew_and_keeps_rows():  # case 134
    counters = Counters.zero()
    counters.move(None, State.BURIED)
    counters.move(None, State.DONE)
    counters.finished()
    counters.call(Event.BURY)
    counters.new_run()
    statistics = counters.statistics()
    assert (statistics.tasks["buried"], statistics.tasks["kept"], statistics.tasks["done"]) == (1, 1, 0)
    assert not any(statistics.calls.values())
