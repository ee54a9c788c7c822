"""Tubes over the wire: made, found, emptied, dropped; which names lead where."""

from __future__ import annotations

import pytest
from tests.server.facade.waiters import waiting

GO_CREATE = "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)"
GO_EXISTS = "local name = ... ; return queue.tube[name] ~= nil"


def test_a_tube_is_made_found_listed_and_dropped(connect):
    client = connect()
    assert client.call("queue.create_tube", "mail", "fifottl", {"ttl": 60, "ttr": 5.5, "pri": 3}) == []
    assert client.call("queue.create_tube", "fax", "fifo") == []
    assert client.call("queue.tube") == [["fax", "mail"]]
    assert client.call("queue.tube", "mail") == [True]
    assert client.call("queue.tube", "telex") == [False]
    assert client.refused("queue.tube", 5) == (32, "argument #1 should be string or nil")
    assert client.call("queue.tube.mail:drop") == [True]
    assert client.call("queue.tube", "mail") == [False]
    assert client.refused("queue.tube.mail:put", 1) == (33, "Procedure 'queue.tube.mail:put' is not defined")


def test_go_makes_and_finds_tubes_by_evaluating_two_texts(connect):
    client = connect()
    assert client.evaluate(GO_EXISTS, "mail") == [False]
    options = {"temporary": False, "if_not_exists": True, "ttl": 60.0}
    assert client.evaluate(GO_CREATE, "mail", "fifottl", options) == []
    assert client.evaluate(GO_CREATE, "mail", "fifottl", options) == []
    assert client.evaluate(GO_EXISTS, "mail") == [True]


def test_a_text_that_calls_one_function_is_evaluated_and_no_other_is(client):
    task = client.evaluate("return queue.tube.fifo:put(...)", {"a": 1})[0]
    assert task[1:] == ["r", {"a": 1}]
    assert client.evaluate("queue.tube.fifo:peek( ... );", task[0]) == [task]
    assert client.evaluate("return queue.state()") == ["RUNNING"]
    assert client.evaluate("return queue.tube()", "fifo") == client.evaluate("return queue.tube(...)")
    for text in ("return 1", "return queue.tube.fifo:put(1)", "", "return box.cfg"):
        with pytest.raises(Exception, match="runs no Lua"):
            client.evaluate(text)
    for text in ("return os.exit(...)", "os.exit()"):
        with pytest.raises(Exception, match=r"'os\.exit' is not defined"):
            client.evaluate(text)


def test_a_tube_that_exists_is_refused_or_found_as_it_is(connect):
    client = connect()
    client.call("queue.create_tube", "mail", "fifottl", {"ttl": 60})
    assert client.refused("queue.create_tube", "mail", "fifottl") == (32, "Space 'mail' already exists")
    assert client.call("queue.create_tube", "mail", "fifottl", {"if_not_exists": True, "ttl": 5}) == []
    code, text = client.refused("queue.create_tube", "mail", "fifo", {"if_not_exists": True})
    assert code == 32 and "is of type fifottl, asked for fifo" in text


def test_an_unknown_type_or_option_makes_nothing(connect):
    client = connect()
    assert client.refused("queue.create_tube", "x", "nosuch") == (32, "Unknown tube type nosuch")
    assert client.refused("queue.create_tube", "x") == (32, "Unknown tube type nil")
    code, text = client.refused("queue.create_tube", "x", "fifo", {"if_not_exist": True})
    assert code == 32 and "unknown option 'if_not_exist'" in text
    assert "options must be a map" in client.refused("queue.create_tube", "x", "fifo", "temporary")[1]
    assert client.call("queue.tube") == [[]]


def test_options_that_a_kind_has_no_use_for_and_those_of_the_module_are_overlooked(connect):
    client = connect()
    options = {
        "ttl": 1,
        "ttr": 1,
        "pri": 1,
        "capacity": 1,
        "engine": "memtx",
        "temporary": True,
        "on_task_change": None,
    }
    assert client.call("queue.create_tube", "x", "fifo", options) == []
    assert client.call("queue.create_tube", "y", "limfifottl", {"capacity": 2.0, "max_attempts": 3}) == []


def test_names_of_tubes_are_checked(connect):  # case 13
    client = connect()
    assert client.call("queue.create_tube", "a" * 33, "fifo") == []
    assert client.call("queue.create_tube", "shop.mail-2", "fifo") == []
    assert client.call("queue.tube.shop.mail-2:put", 1)[0][1:] == ["r", 1]
    for name in ("a" * 65, "a b", "", "é", None, 5):
        code, text = client.refused("queue.create_tube", name, "fifo")
        assert code == 32 and "a tube's name is 1 to 64 characters" in text, name


def test_names_lead_to_functions_or_nowhere(client):
    for name in (
        "nosuch",
        "queue.nosuch",
        "queue.tube.fifo:nosuch",
        "queue.tube.nosuch:take",
        "box.space",
        "queue.kick",
    ):
        assert client.refused(name) == (33, f"Procedure '{name}' is not defined"), name
    for name in ("queue", "queue.tube.fifo", "queue.tube.fifo.put"):
        code, text = client.refused(name)
        assert code == 32 and text.startswith("attempt to call a table value"), name
    assert client.call("box.queue.tube.fifo:put", 1)[0][1:] == ["r", 1]
    assert client.call("box.queue.statistics", "fifo")[0]["tasks"]["ready"] == 1


def test_a_tube_is_emptied_and_its_tasks_released(client, connect):
    tube = "queue.tube.fifo:"
    numbers = [client.call(tube + "put", n)[0][0] for n in range(2)]
    client.call(tube + "take", 0)
    connect().call(tube + "take", 0)
    assert client.call("queue.statistics", "fifo")[0]["tasks"]["taken"] >= 1
    assert client.call(tube + "release_all") == []
    assert client.call(tube + "peek", numbers[0])[0][1] == "r"
    client.call(tube + "take", 0)
    assert client.call(tube + "truncate") == []
    assert client.refused(tube + "ack", numbers[0]) == (32, "Task was not taken")
    assert client.call("queue.statistics", "fifo")[0]["tasks"]["total"] == 0


def test_a_tube_in_use_is_not_dropped(server, client, connect):
    tube = "queue.tube.fifo:"
    client.call(tube + "put", 1)
    number = client.call(tube + "take", 0)[0][0]
    code, text = client.refused(tube + "drop")
    assert code == 32 and text.startswith("There are taken tasks in the tube")
    client.call(tube + "ack", number)
    waiter = connect().later(tube + "take")
    waiting(server, "fifo")
    code, text = client.refused(tube + "drop")
    assert code == 32 and text.startswith("There are consumers connected the tube")
    client.call(tube + "put", 2)
    client.call(tube + "delete", waiter.result()[0][0])
    assert client.call(tube + "drop") == [True]


def test_a_tube_that_was_made_anew_is_another_one(client, connect):
    other = connect()
    other.call("queue.tube.fifo:put", "x", {"ttl": 0})
    client.call("queue.tube.fifo:drop")
    client.call("queue.create_tube", "fifo", "fifottl")
    assert other.call("queue.tube.fifo:put", "x", {"delay": 5})[0][1] == "~"
