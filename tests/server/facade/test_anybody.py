"""What everybody may do with every task, and how tasks are named."""

from __future__ import annotations

from tests.server.facade.kinds import KINDS
from tests.server.facade.waiters import waiting


def test_anybody_buries_any_task(server, client, connect):  # case 45
    other = connect()
    for kind in KINDS:
        tube = f"queue.tube.{kind}:"
        ready = client.call(tube + "put", "ready", {"utube": "a"})[0][0]
        assert other.call(tube + "bury", ready) == [[ready, "!", "ready"]]
        assert other.call(tube + "bury", ready) == [[ready, "!", "ready"]]
        taken = client.call(tube + "put", "taken", {"utube": "b"})[0][0]
        client.call(tube + "take", 0)
        third = connect().later(tube + "take")
        waiting(server, kind)
        assert other.call(tube + "bury", taken) == [[taken, "!", "taken"]]
        waiting(server, kind)
        assert client.refused(tube + "ack", taken) == (32, "Task was not taken")
        assert other.call(tube + "kick", 1) == [1]
        assert third.result() == [[ready, "t", "ready"]]
        assert other.refused(tube + "bury", 999) == (32, "Task 999 not found")


def test_kick_answers_how_many(client):
    tube = "queue.tube.fifo:"
    numbers = [client.call(tube + "put", n)[0][0] for n in range(3)]
    for number in numbers:
        client.call(tube + "bury", number)
    assert client.call(tube + "kick") == [1]
    assert client.call(tube + "peek", numbers[0])[0][1] == "r"
    assert client.call(tube + "kick", 0) == [0]
    assert client.call(tube + "kick", -1) == [0]
    assert client.call(tube + "kick", None) == [1]
    assert client.call(tube + "kick", 5.0) == [1]
    assert "'for' limit must be a number" in client.refused(tube + "kick", "x")[1]


def test_anybody_deletes_any_task(client, connect):
    other = connect()
    tube = "queue.tube.fifottl:"
    taken = client.call(tube + "put", "taken")[0][0]
    client.call(tube + "take", 0)
    assert other.call(tube + "delete", taken) == [[taken, "-", "taken"]]
    assert other.refused(tube + "delete", taken) == (32, f"Task {taken} not found")
    assert client.refused(tube + "ack", taken) == (32, "Task was not taken")


def test_ids_are_checked(client):
    tube = "queue.tube.fifo:"
    kind = "Supplied key type of part {} does not match index part type: expected unsigned"
    for value in ("x", -1, 1.5, {}, True, 2**63, [], [1.5]):
        for verb, part in (("ack", 1), ("peek", 0), ("delete", 0), ("bury", 0), ("release", 1)):
            code, text = client.refused(tube + verb, value)
            assert code == 18 and text.startswith(kind.format(part)), (verb, value)
    assert client.refused(tube + "ack")[0] == 19
    assert "(expected 2, got 1)" in client.refused(tube + "release", None)[1]
    assert "(expected 1, got 0)" in client.refused(tube + "peek")[1]
    number = client.call(tube + "put", "x")[0][0]
    assert client.call(tube + "peek", float(number)) == [[number, "r", "x"]]


def test_tubes_with_other_ids_work_too(client):
    client.call("queue.create_tube", "named", "fifo", {"id": "uuid"})
    name = client.call("queue.tube.named:put", "x")[0][0]
    assert client.call("queue.tube.named:take", 0) == [[name, "t", "x"]]
    assert client.call("queue.tube.named:ack", name) == [[name, "-", "x"]]
