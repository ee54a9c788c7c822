"""The queue of Tarantool's tutorial: no tubes, tasks are maps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.clients import Client
from tests.server.facade.waiters import waiting


@pytest.fixture
def client(connect: Any) -> Client:
    """One that has no tubes."""
    made: Client = connect()
    return made


def test_a_task_goes_its_way(client, clock):
    put = client.call("queue.put", {"url": "http://a.example/"})[0]
    assert put == {"id": clock.now() * 1000, "status": "R", "runat": 0, "data": {"url": "http://a.example/"}}
    later = client.call("queue.put", ["my", "data", 1])[0]
    assert later["id"] > put["id"], "nanoseconds, in the order of puts"
    assert client.call("queue.take") == [{**put, "status": "T"}]
    assert client.call("queue.release", put["id"]) == [put]
    assert client.call("queue.take") == [{**put, "status": "T"}]
    assert client.call("queue.ack", put["id"]) == [{**put, "status": "T"}], "as it was"
    assert client.call("queue.take", 0) == [{**later, "status": "T"}]
    assert client.call("queue.take") == client.call("queue.take", None) == []


def test_delays_are_waits(client, clock):
    put = client.call("queue.put", "x", {"delay": 1.5})[0]
    assert put["status"] == "W" and put["runat"] == pytest.approx(clock.now() / 1e6 + 1.5)
    assert client.call("queue.take") == []
    assert client.call("queue.stats") == [{"total": 1, "ready": 0, "waiting": 1, "taken": 0}]
    clock.advance(1.5)
    taken = client.call("queue.take")[0]
    assert taken == {**put, "status": "T", "runat": 0}
    released = client.call("queue.release", put["id"], {"delay": 5})[0]
    assert released["status"] == "W" and released["runat"] == pytest.approx(clock.now() / 1e6 + 5)
    assert client.call("queue.put", "y", {"delay": None})[0]["status"] == "R"


def test_a_take_waits_as_long_as_it_says(server, client, connect, clock):
    client.call("queue.put", "first")
    client.call("queue.take")
    waiter = connect().later("queue.take", 5)
    waiting(server, "queue")
    put = client.call("queue.put", "x")[0]
    assert waiter.result() == [{**put, "status": "T"}]
    waiter = connect().later("queue.take", 5)
    waiting(server, "queue")
    clock.advance(5)
    assert waiter.result() == []


def test_errors_have_the_tutorials_words(client, connect):
    assert client.refused("queue.ack") == (32, "Task id required")
    assert client.refused("queue.ack", 5) == (32, "Task {5} was not found")
    number = client.call("queue.put", "x")[0]["id"]
    assert client.refused("queue.ack", number) == (32, f"Task {number} not taken by anybody")
    assert client.refused("queue.release", number) == (32, f"Task {number} not taken by anybody")
    client.call("queue.take")
    code, text = connect().refused("queue.ack", number)
    assert code == 32 and text.startswith(f"Task {number} taken by 127.0.0.1:") and "Not you (127.0.0.1:" in text
    assert client.call("queue.ack", str(number))[0]["id"] == number, "numbers may be text"
    assert "keys in data must be text" in client.refused("queue.put", {1: 2})[1]
    assert "attempt to compare string" in client.refused("queue.take", "x")[1]


def test_a_connection_that_is_closed_gives_back_what_it_took(client, connect):
    number = client.call("queue.put", "x")[0]["id"]
    other = connect()
    other.call("queue.take")
    assert client.call("queue.stats") == [{"total": 1, "ready": 0, "waiting": 0, "taken": 1}]
    other.close()
    assert client.call("queue.take", 30)[0]["id"] == number


def test_stats_are_those_of_the_tubes_where_nobody_uses_the_tutorial(client):
    assert client.call("queue.stats") == [{}]
    client.call("queue.create_tube", "mail", "fifo")
    assert list(client.call("queue.stats")[0]) == ["mail"]
    client.call("queue.put", "x")
    assert client.call("queue.stats") == [{"total": 1, "ready": 1, "waiting": 0, "taken": 0}]
    assert set(client.call("queue.statistics")[0]) == {"mail", "queue"}
    assert client.call("queue.stats", "mail")[0]["tasks"]["total"] == 0


def test_its_tasks_are_in_a_tube_that_others_can_use(client):
    number = client.call("queue.put", "x")[0]["id"]
    assert client.call("queue.tube.queue:take", 0) == [[number, "t", "x"]]
    assert client.call("queue.ack", number)[0]["status"] == "T"
