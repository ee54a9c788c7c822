"""Tubes that are made and dropped while others look at all of them."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.support import postgres
from tests.support.postgres import until

import penstock
from penstock.model import ops
from penstock.model.errors import SchemaMismatch, TubeBusy

TUBES = 12


def test_who_looks_at_all_tubes_does_not_stumble_over_those_that_are_dropped_meanwhile(place):
    failures: list[Exception] = []

    def churn(name: str) -> None:
        with penstock.connect(place) as q:
            for n in range(TUBES):
                tube = q.create_tube(f"{name}-{n}")
                tube.put(n, delay=60)
                while True:
                    try:
                        tube.drop(force=True)
                        break
                    except TubeBusy:  # who looks at it may be slow
                        pass

    def look() -> None:
        with penstock.connect(place) as q:
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
        until(lambda: len(failed) >= 3, "the keeper does not notice")
        said = [record for record in caplog.records if f"keeper of {store.name}" in record.getMessage()]
    with pytest.raises(SchemaMismatch):
        q.close()
    q._engine.close()
    assert len(said) == 1 and place.rpartition("schema=")[2] in said[0].getMessage(), caplog.text
    assert said[0].exc_info is None and "Traceback" not in caplog.text
