"""What the holder of a task may do with it, and for how long."""

from __future__ import annotations

from tests.server.facade.kinds import KINDS, TIMED

from penstock.server import tarantool_caller


def test_only_the_session_that_took_a_task_may_end_it(client, connect):  # case 38
    other = connect()
    for kind in KINDS:
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x")[0][0]
        client.call(tube + "take", 0)
        for verb in ("ack", "release"):
            assert other.refused(tube + verb, number) == (32, "Task was not taken")
        assert client.call(tube + "ack", number) == [[number, "-", "x"]]


def test_what_nobody_took_cannot_be_ended(client):  # case 39
    ready = client.call("queue.tube.fifottl:put", "x")[0][0]
    for number in (ready, 999):
        for verb in (("ack",), ("release",), ("touch", 5)):
            assert client.refused(f"queue.tube.fifottl:{verb[0]}", number, *verb[1:]) == (32, "Task was not taken")
    client.call("queue.tube.fifottl:take", 0)
    client.call("queue.tube.fifottl:ack", ready)
    assert client.refused("queue.tube.fifottl:ack", ready) == (32, "Task was not taken")


def test_after_its_ttr_a_task_is_another_ones(client, connect, clock):  # case 64
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", "x", {"ttr": 5})[0][0]
    client.call(tube + "take", 0)
    clock.advance(5)
    assert client.refused(tube + "ack", number) == (32, "Task was not taken")
    client.call(tube + "take", 0)
    clock.advance(5)
    other = connect()
    assert other.call(tube + "take", 0) == [[number, "t", "x"]]
    assert client.refused(tube + "ack", number) == (32, "Task was not taken")
    clock.advance(5)
    assert client.call(tube + "take", 0) == [[number, "t", "x"]]
    assert client.call(tube + "ack", number) == [[number, "-", "x"]], "taken again by the same session"


def test_what_another_connection_of_the_session_took_again_can_be_ended(client, connect, clock):
    tube = "queue.tube.fifottl:"
    one, two = connect(encoding=None), connect(encoding=None)
    two.call("queue.identify", one.call("queue.identify")[0])
    number = one.call(tube + "put", "x", {"ttr": 5})[0][0]
    one.call(tube + "take", 0)
    clock.advance(5)
    assert two.call(tube + "take", 0) == [[number, b"t", b"x"]]
    assert one.call(tube + "ack", number) == [[number, b"-", b"x"]]


def test_a_release_may_delay(client, clock):
    for kind in TIMED:
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x")[0][0]
        client.call(tube + "take", 0)
        assert client.call(tube + "release", number, {"delay": 3}) == [[number, "~", "x"]]
        assert client.call(tube + "take", 0) == []
        clock.advance(3)
        assert client.call(tube + "take", 0) == [[number, "t", "x"]]
        assert client.call(tube + "release", number, {"delay": 0}) == [[number, "r", "x"]]


def test_a_release_begins_no_new_life(client, clock):  # case 208
    client.call("queue.create_tube", "short", "fifottl", {"ttl": 5})
    number = client.call("queue.tube.short:put", "x")[0][0]
    client.call("queue.tube.short:take", 0)
    clock.advance(3)
    assert client.call("queue.tube.short:release", number) == [[number, "r", "x"]]
    clock.advance(2)
    assert client.refused("queue.tube.short:peek", number) == (32, f"Task {number} not found")


def test_kinds_without_delays_release_at_once(client):  # case 43
    for kind in ("fifo", "utube"):
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x")[0][0]
        client.call(tube + "take", 0)
        assert client.call(tube + "release", number, {"delay": 5}) == [[number, "r", "x"]]
        assert client.call(tube + "take", 0) == [[number, "t", "x"]]


def test_a_bad_release_keeps_the_task_taken(client):
    number = client.call("queue.tube.fifottl:put", "x")[0][0]
    client.call("queue.tube.fifottl:take", 0)
    assert client.refused("queue.tube.fifottl:release", number, {"delay": "x"})[0] == 32
    assert client.call("queue.tube.fifottl:ack", number) == [[number, "-", "x"]]


def test_touch_gives_more_time_to_the_holder_alone(client, connect, clock):
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", "x", {"ttr": 5, "ttl": 100})[0][0]
    client.call(tube + "take", 0)
    assert connect().refused(tube + "touch", number, 5) == (32, "Task was not taken")
    assert client.call(tube + "touch", number, 4.5) == [[number, "t", "x"]]
    clock.advance(9.4)
    assert client.call(tube + "peek", number) == [[number, "t", "x"]]
    clock.advance(0.1)
    assert client.call(tube + "peek", number) == [[number, "r", "x"]]


def test_touch_lengthens_this_run_and_no_later_one(client, clock):  # case 78
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", "x", {"ttr": 5, "ttl": 100})[0][0]
    client.call(tube + "take", 0)
    client.call(tube + "touch", number, 5)
    clock.advance(10)
    client.call(tube + "take", 0)
    clock.advance(5)
    assert client.call(tube + "peek", number) == [[number, "r", "x"]]


def test_a_touch_by_nothing_answers_nothing(client):
    for args in ((), (None,), (0,), (-5,)):
        assert client.call("queue.tube.fifottl:touch", 999, *args) == []
    for kind in ("fifo", "utube"):
        number = client.call(f"queue.tube.{kind}:put", "x")[0][0]
        client.call(f"queue.tube.{kind}:take", 0)
        text = f"{kind} queue does not support touch"
        assert client.refused(f"queue.tube.{kind}:touch", number, 5) == (32, text)


def test_ttl_tears_no_task_from_its_holder(client, clock):  # case 66
    for kind in TIMED:
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x", {"ttl": 1, "ttr": 100})[0][0]
        client.call(tube + "take", 0)
        clock.advance(2)
        assert client.call(tube + "peek", number) == [[number, "t", "x"]]
        assert client.call(tube + "ack", number) == [[number, "-", "x"]]


def test_more_leases_than_a_connection_remembers_are_ended_all_the_same(client, monkeypatch):
    monkeypatch.setattr(tarantool_caller, "MAX_LEASES", 2)
    monkeypatch.setattr(tarantool_caller, "MAX_REMEMBERED", 100)
    tube = "queue.tube.fifo:"
    tasks = [client.call(tube + "put", data)[0] for data in ("a", "b", "c", "x" * 200)]
    for number, _, data in tasks:
        assert client.call(tube + "take", 0) == [[number, "t", data]]
    for number, _, data in tasks:
        assert client.call(tube + "ack", number) == [[number, "-", data]]
