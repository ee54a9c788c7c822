"""Stores in memory: those with a name are shared and stay, those without are nobody else's."""

from __future__ import annotations

import pytest

import penstock
from penstock.engines import open_store


@pytest.mark.parametrize("name", ["plain", "a#b", "#1", " #1", "//named#2"])
def test_a_named_store_stays_when_its_last_queue_is_closed(name):
    with penstock.connect(f"memory:{name}") as q:
        q.create_tube("jobs").put(1)
    with penstock.connect(f"memory:{name}") as q:
        assert q.tube("jobs").take().data == 1
        q.tube("jobs").drop(force=True)


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_no_url_leads_to_a_store_without_a_name(url):
    with penstock.connect(url) as q:
        q.create_tube("jobs")
        store = q._engine.store
        assert open_store(url) is None
        number = store.name.partition("#")[2]
        for other in (f"memory:#{number}", f"memory:{store.name}", store.name):
            assert open_store(other) is not store
        with penstock.connect(f"memory:#{number}") as other:
            assert other.tubes() == []
    assert store.closed
