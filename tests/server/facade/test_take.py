"""Who gets which task, and how long a take waits."""

from __future__ import annotations

import pytest
from tests.server.facade.kinds import KINDS
from tests.server.facade.waiters import waiting


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_goes_its_way(client, kind):  # case 5
    tube = f"queue.tube.{kind}:"
    number = client.call(tube + "put", {"url": "http://a.example/"})[0][0]
    assert client.call(tube + "put", "second")[0][1:] == ["r", "second"]
    assert client.call(tube + "peek", number) == [[number, "r", {"url": "http://a.example/"}]]
    assert client.call(tube + "take") == [[number, "t", {"url": "http://a.example/"}]]
    assert client.call(tube + "release", number) == [[number, "r", {"url": "http://a.example/"}]]
    assert client.call(tube + "take", 0) == [[number, "t", {"url": "http://a.example/"}]]
    assert client.call(tube + "ack", number) == [[number, "-", {"url": "http://a.example/"}]]
    assert client.refused(tube + "peek", number) == (32, f"Task {number} not found")


def test_one_task_of_a_subqueue_at_a_time(client):
    tube = "queue.tube.utube:"
    for data, lane in (
        ("a1", "a"),
        ("a2", "a"),
        ("1", 1),
        ("1 as text", "1"),
        ("true", True),
        ("none", None),
        ("nil", None),
    ):
        client.call(tube + "put", data, {"utube": lane})
    taken = [client.call(tube + "take", 0)[0] for _ in range(4)]
    assert [task[2] for task in taken] == ["a1", "1", "true", "none"]
    assert client.call(tube + "take", 0) == []
    client.call(tube + "ack", taken[0][0])
    assert client.call(tube + "take", 0)[0][2] == "a2"


def test_take_without_a_timeout_waits_for_ever(server, client, connect):  # case 23
    for args in ((), (None,)):
        waiter = connect().later("queue.tube.fifo:take", *args)
        waiting(server, "fifo")
        number = client.call("queue.tube.fifo:put", "x")[0][0]
        assert waiter.result() == [[number, "t", "x"]]


def test_take_with_a_timeout_answers_nothing_when_it_is_over(server, client, connect, clock):  # case 193
    assert client.call("queue.tube.fifo:take", 0) == []
    assert client.call("queue.tube.fifo:take", -1.5) == []
    waiter = connect().later("queue.tube.fifo:take", 2.5)
    waiting(server, "fifo")
    clock.advance(2.4)
    waiting(server, "fifo")
    clock.advance(0.1)
    assert waiter.result() == []
    code, text = client.refused("queue.tube.fifo:take", "abc")
    assert code == 32 and text.startswith("attempt to compare string with number")


def test_who_came_first_is_served_first_whatever_its_timeout(server, client, connect):  # case 28
    first = connect().later("queue.tube.fifo:take", 10)
    waiting(server, "fifo")
    second = connect().later("queue.tube.fifo:take", 1)
    waiting(server, "fifo", 2)
    client.call("queue.tube.fifo:put", "a")
    assert first.result()[0][2] == "a"
    client.call("queue.tube.fifo:put", "b")
    assert second.result()[0][2] == "b"
