"""Who waits longest is served first, even if a task appears while the line is being looked at."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support import postgres

import penstock
from penstock import testing
from penstock.model import ops

APPEARS = """
    set search_path to {s};
    create sequence looks_{n};
    alter function line_{n} rename to real_line_{n};
    create function line_{n}(out pri bigint, out seq bigint) language plpgsql as $$
    begin
        if nextval('{s}.looks_{n}') = {at} then
            update {s}.tasks_{n} set state = 'ready';
        end if;
        select * into pri, seq from {s}.real_line_{n}();
    end $$
"""
"""Makes a task ready at the second look at the line, as another process may at any moment."""


@pytest.mark.parametrize("takers", [2, 4, 5, 64])
def test_takes_in_one_commit_get_no_task_that_becomes_ready_after_the_first_take(lent: str, takers: int) -> None:
    with penstock.connect(lent, clock=testing.ManualClock()) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.bury(jobs.put("late").id)
        store: Any = q._engine.store
        takes = [ops.Take("jobs", 1, q._session) for _ in range(takers)]
        assert store.commit(takes[:1], True).answers == [[]]
        parts = urlsplit(lent)
        (schema,) = parse_qs(parts.query)["schema"]
        with postgres.shared_server().connect(parts.path[1:]) as connection:
            connection.execute(APPEARS.format(s=schema, n=store._tubes["jobs"].number, at=2))
        assert store.commit(takes, True).answers == [[]] * takers
        (got,) = store.commit(takes[:1], True).answers
        assert [record.data for record in got] == ['"late"']
