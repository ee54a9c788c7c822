"""Counters, state and settings."""

from __future__ import annotations

from tests.server.facade.kinds import KINDS


def test_statistics_have_the_modules_shape(client, clock):  # case 122
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", 1)[0][0]
    client.call(tube + "put", 2, {"ttl": 1})
    client.call(tube + "put", 3, {"delay": 100})
    client.call(tube + "take", 0)
    client.call(tube + "ack", number)
    clock.advance(1)
    found = client.call("queue.statistics", "fifottl")[0]
    assert found == {
        "tasks": {"taken": 0, "buried": 0, "ready": 0, "done": 2, "delayed": 1, "total": 1},
        "calls": {
            **dict.fromkeys(("bury", "delete", "kick", "release", "touch", "ttr", "delay"), 0),
            "put": 3,
            "take": 1,
            "ack": 1,
            "ttl": 1,
        },
    }
    assert client.call("queue.stats", "fifottl") == [found]
    every = client.call("queue.statistics")[0]
    assert set(every) == set(KINDS) and every["fifottl"] == found
    assert client.call("queue.stats") == [every]
    for name in ("nosuch", 5):
        code, text = client.refused("queue.statistics", name)
        assert code == 32 and text.startswith("attempt to index a nil value")


def test_the_state_is_running(client):
    assert client.call("queue.state") == ["RUNNING"]


def test_settings_are_checked_before_any_is_changed(server, client):
    assert client.call("queue.cfg") == client.call("queue.cfg", {}) == client.call("queue.cfg", []) == []
    assert client.call("queue.cfg", {"ttr": 1.5, "in_replicaset": True}) == []
    assert server.server.sessions.linger == 1_500_000
    assert client.refused("queue.cfg", {"ttr": -1}) == (32, "Invalid value of ttr: -1")
    assert client.refused("queue.cfg", {"ttr": "x"}) == (32, "Invalid value of ttr: x")
    assert client.refused("queue.cfg", {"ttr": 5, "foo": 1}) == (32, "Unknown option foo")
    assert client.refused("queue.cfg", {"ttr": 5, "in_replicaset": 1}) == (32, "Invalid value of in_replicaset: 1")
    assert server.server.sessions.linger == 1_500_000
    assert client.call("queue.cfg", {"ttr": 0}) == []
    assert server.server.sessions.linger == 0
