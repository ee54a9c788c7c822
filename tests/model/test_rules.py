"""What happens to a task, without a store."""

from __future__ import annotations

import pytest

from penstock.model import rules
from penstock.model.task import Draft, Record
from penstock.model.tube import KINDS, new_tube

CONFIG = new_tube("jobs", KINDS["standard"], False, {})


def taken(**changes):
    draft = Draft("1", lane="a", key="k", put_id="p", ttl=50, ttr=9, max_attempts=3)
    fresh = rules.put(CONFIG, draft, 1000, 7, 7).after
    return rules.take(fresh, 1005, 3, 99, None).after._replace(**changes)


@pytest.mark.parametrize("result", [None, "5"])
@pytest.mark.parametrize("changes", [{}, {"cancel_asked": 1, "error": "x", "errors": '["x"]', "failures": 1}])
def test_the_short_answer_to_an_ack_is_filled_up_to_the_long_one(changes, result):
    record = taken(**changes)
    (change,) = rules.ack(CONFIG, record, 1010, result, None)
    assert rules.is_gone(change.after)
    assert rules.acked(record, 1010, result)._asdict() == change.after._asdict()


def test_a_fresh_task_has_its_draft_in_the_fields_of_the_same_name():
    draft = Draft("1", pri=4, lane="a", key="k", put_id="p", ttl=50, ttr=9, max_attempts=3, keep=8, repeat=6)
    record = rules.put(CONFIG, draft, 1000, 7, 8).after
    for name in set(Draft._fields) & set(Record._fields) - {"id"}:
        assert getattr(record, name) == getattr(draft, name), name
    assert (record.seq, record.id, record.state, record.created_at, record.ready_at) == (7, 8, "ready", 1000, 1000)
