"""Scans of adopted tables: their tasks are put together from the user's rows, page after page."""

from __future__ import annotations

import json

import pytest

from penstock.engines import open_store, scan
from penstock.engines.scan import Scan


def read(shop, *args, **options):
    store = open_store(shop.bench.url)
    return [row for batch in store.scan(Scan(*args, **options)) for row in batch.to_pylist()]


@pytest.fixture
def short_pages(monkeypatch):
    monkeypatch.setattr(scan, "PAGE", 3)


def test_a_scan_reads_the_columns_of_the_user(shop, short_pages):
    orders = shop.orders(history=True)
    orders.put_many([{"item": f"tea {n}"} for n in range(8)])
    orders.take()
    rows = read(shop, "tasks", "orders")
    assert [(row["id"], row["state"]) for row in rows] == [(str(task.id), task.state) for task in orders.tasks()]
    assert [json.loads(row["data"])["item"] for row in rows] == [f"tea {n}" for n in range(8)]
    seqs = [row["seq"] for row in rows]
    assert [row["seq"] for row in read(shop, "tasks", "orders", lo=seqs[1], hi=seqs[6])] == seqs[2:7]
    assert [row["task_id"] for row in read(shop, "events", columns=("task_id",))] == [
        str(event.task_id) for event in shop.q.history()
    ]


def test_ids_of_several_columns_are_arrays(shop, short_pages):
    shop.sql("CREATE TABLE lines (shop TEXT, number INTEGER, status TEXT, item TEXT, PRIMARY KEY (shop, number))")
    lines = shop.q.adopt("lines", table="lines", fields={"status": "status"}, history=True)
    for number in range(7):
        lines.put({"item": "tea"}, id=('n"é', number))
    ids = [f'["n\\"é", {number}]' for number in range(7)]
    assert [row["id"] for row in read(shop, "tasks", "lines", columns=("id",))] == ids
    assert [row["task_id"] for row in read(shop, "events", columns=("task_id",))] == ids


def test_what_goes_away_between_two_pages_ends_no_scan(shop, short_pages):
    shop.sql("CREATE TABLE lines (shop TEXT, number INTEGER, status TEXT, item TEXT, PRIMARY KEY (shop, number))")
    lines = shop.q.adopt("lines", table="lines", fields={"status": "status"})
    for number in range(9):
        lines.put({"item": "tea"}, id=("n", number))
    seen = []
    for batch in open_store(shop.bench.url).scan(Scan("tasks", "lines", ("id",))):
        seen += [row["id"] for row in batch.to_pylist()]
        if len(seen) == 3:
            for number in range(5):
                lines.delete(("n", number))
    assert seen == [f'["n", {number}]' for number in (0, 1, 2, 5, 6, 7, 8)]
