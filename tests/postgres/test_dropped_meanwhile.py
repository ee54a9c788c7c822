"""Tubes that are made and dropped while others look at all of them."""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg
import pytest
from tests.support import postgres
from tests.support.postgres import until

import penstock
from penstock.engines.postgres.work import Work
from penstock.model import ops
from penstock.model.errors import SchemaMismatch, TubeBusy


@pytest.mark.parametrize("tubes", [5, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_listing_all_tubes_succeeds_while_tubes_are_dropped(lent, tubes):
    failures: list[Exception] = []

    def churn(name: str) -> None:
        with penstock.connect(lent) as q:
            for n in range(tubes):
                tube = q.create_tube(f"{name}-{n}")
                tube.put(n, delay=60)
                while True:
                    try:
                        tube.drop(force=True)
                        break
                    except TubeBusy:  # who looks at it may be slow
                        pass

    def look() -> None:
        with penstock.connect(lent) as q:
            while any(thread.is_alive() for thread in churning):
                try:
                    q._engine.execute(ops.GetStatistics())
                    q._engine.execute(ops.Tick())
                except Exception as error:
                    failures.append(error)

    churning = [threading.Thread(target=churn, args=(name,)) for name in ("one", "two")]
    looking = threading.Thread(target=look)
    for thread in (*churning, looking):
        thread.start()
    for thread in (*churning, looking):
        thread.join()
    assert failures == []


@pytest.mark.parametrize("said", ["cache lookup failed for function 23629", "could not open relation with OID 23629"])
def test_statistics_are_asked_for_again_if_a_tube_vanished_between_lookup_and_use(warm, monkeypatch, said):
    met: list[str] = []
    rows = Work.rows
    mine = threading.get_ident()  # the keeper thread makes calls of its own

    def asked(work: Work, sql: str, params: Any) -> Any:
        if threading.get_ident() == mine and not met:
            met.append(sql)
            raise psycopg.errors.InternalError_(said)
        return rows(work, sql, params)

    with penstock.connect(warm) as q:
        q.create_tube("jobs").put(1)
        monkeypatch.setattr(Work, "rows", asked)
        assert q.statistics()["jobs"].tasks["ready"] == 1
    assert met


def test_a_schema_that_is_dropped_under_an_open_queue_is_named_in_one_line(place, monkeypatch, caplog):
    failed: list[Exception] = []
    q = penstock.connect(place, session_ttl=1000)  # signs of life that fail are another error
    store = q._engine.store
    beat = store.beat

    def counted() -> float:
        try:
            return beat()
        except Exception as error:
            failed.append(error)
            raise

    monkeypatch.setattr(store, "beat", counted)
    with caplog.at_level(logging.WARNING, "penstock"):
        q.create_tube("jobs").put(1)
        q.tube("jobs").statistics()
        with store._group.alone():  # not in the middle of a beat, which would find a part of it gone
            postgres.drop_place(place)

        def often() -> bool:
            store._ticked_at = 0  # else it would tick once in a second
            store._keeper.poke()
            return len(failed) >= 3

        until(often, "the keeper does not notice")
        said = [record for record in caplog.records if f"keeper of {store.name}" in record.getMessage()]
    with pytest.raises(SchemaMismatch):
        q.close()
    q._engine.close()
    assert len(said) == 1 and place.rpartition("schema=")[2] in said[0].getMessage(), caplog.text
    assert said[0].exc_info is None and "Traceback" not in caplog.text
