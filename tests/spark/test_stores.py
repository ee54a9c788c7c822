"""Stores that a process of Spark has open."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.postgres import until

from penstock.engines import open_store
from penstock.model import ops
from penstock.spark import stores


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(stores, "IDLE", 0.05)
    return str(tmp_path / "tasks.db")


def test_a_store_that_was_given_back_is_closed_after_a_while(url):
    with stores.borrowed(url) as engine:
        engine.execute(ops.GetMoment())
    until(lambda: open_store(url) is None, "the store stays open")
    with stores.borrowed(url) as engine:
        engine.execute(ops.GetMoment())


def test_a_store_that_is_borrowed_again_meanwhile_stays_open_and_is_closed_once(url):
    with stores.borrowed(url) as one:
        with stores.borrowed(url) as two:
            assert one is two
        first = open_store(url)
        with stores.borrowed(str(Path(url).with_name("other.db"))):
            pass
        until(lambda: open_store(str(Path(url).with_name("other.db"))) is None, "the other stays open")
        assert open_store(url) is first
        one.execute(ops.GetMoment())
    until(lambda: open_store(url) is None, "the store stays open")


def test_a_store_that_somebody_keeps_is_not_closed_by_a_borrower(url):
    kept = stores.store(url)
    other = str(Path(url).with_name("other.db"))
    with stores.borrowed(url) as engine:
        assert engine is kept
    with stores.borrowed(other):
        pass
    until(lambda: open_store(other) is None, "the other stays open")
    kept.execute(ops.GetMoment())
    stores.close_all()
    assert open_store(url) is None
