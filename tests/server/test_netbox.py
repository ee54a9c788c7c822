"""One script, two clients: the connector for Python and, where Tarantool is installed, its own net.box."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tests.support.servers import Running

SCRIPT = Path(__file__).with_name("netbox.lua")
Calls = list[list[Any]]
Answers = list[list[Any]]


def over_python(port: int, calls: Calls) -> Answers:
    connection = tarantool.Connection("127.0.0.1", port)
    answers: Answers = []
    for name, *args in calls:
        try:
            answers.append([True, connection.call(name, args).data])
        except tarantool.error.DatabaseError as error:
            answers.append([False, *error.args[:2]])
    connection.close()
    return answers


def over_netbox(port: int, calls: Calls) -> Answers:
    done = subprocess.run(
        ["tarantool", str(SCRIPT), str(port)],
        input="".join(json.dumps(call) + "\n" for call in calls),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    # What a function does not return, Lua has no place for.
    return [[True, list(answer[1])] if answer[0] and answer[1] == {} else answer for answer in answers]


CLIENTS: list[Callable[[int, Calls], Answers]] = [over_python] + [over_netbox] * bool(shutil.which("tarantool"))


@pytest.fixture(params=["memory", "sqlite"])
def server(request, tmp_path):
    with Running("memory:" if request.param == "memory" else str(tmp_path / "tasks.db")) as running:
        yield running


@pytest.fixture(params=CLIENTS, ids=lambda client: client.__name__)
def ask(request, server):
    def ask(*calls: list[Any]) -> Answers:
        return request.param(server.server.port(), list(calls))

    return ask


def test_a_task_goes_its_way(ask):
    answers = ask(
        ["queue.create_tube", "mail", "fifottl", {"if_not_exists": True}],
        ["queue.tube.mail:put", {"to": ["ann", None, 1.5]}, {"ttl": 60, "pri": 2}],
        ["queue.tube.mail:put", "second", {"delay": 30}],
        ["queue.tube.mail:take", 0.5],
        ["queue.tube.mail:take", 0.01],
        ["queue.tube.mail:touch", 1, 10],
        ["queue.tube.mail:release", 1, {"delay": 0}],
        ["queue.tube.mail:take"],
        ["queue.tube.mail:bury", 1],
        ["queue.tube.mail:kick", 10],
        ["queue.tube.mail:peek", 1],
        ["queue.tube.mail:take", None],
        ["queue.tube.mail:ack", 1],
        ["queue.tube.mail:delete", 2],
        ["queue.tube.mail:truncate"],
        ["queue.tube", "mail"],
        ["queue.tube.mail:drop"],
    )
    data = {"to": ["ann", None, 1.5]}
    assert answers == [
        [True, result]
        for result in (
            [],
            [[1, "r", data]],
            [[2, "~", "second"]],
            [[1, "t", data]],
            [],
            [[1, "t", data]],
            [[1, "r", data]],
            [[1, "t", data]],
            [[1, "!", data]],
            [1],
            [[1, "r", data]],
            [[1, "t", data]],
            [[1, "-", data]],
            [[2, "-", "second"]],
            [],
            [True],
            [True],
        )
    ]


def test_errors_have_codes_and_words(ask):
    answers = ask(
        ["queue.create_tube", "mail", "fifo"],
        ["queue.create_tube", "mail", "fifo"],
        ["queue.create_tube", "fax", "nosuch"],
        ["queue.tube.mail:ack", 5],
        ["queue.tube.mail:peek", 5],
        ["queue.tube.fax:put", 5],
        ["queue.statistics", "fax"],
        ["queue.nosuch"],
        ["queue.tube.mail:put"],
    )
    assert answers == [
        [True, []],
        [False, 32, "Space 'mail' already exists"],
        [False, 32, "Unknown tube type nosuch"],
        [False, 32, "Task was not taken"],
        [False, 32, "Task 5 not found"],
        [False, 33, "Procedure 'queue.tube.fax:put' is not defined"],
        [False, 32, answers[6][2]],
        [False, 33, "Procedure 'queue.nosuch' is not defined"],
        [False, 39, "Tuple field 3 required by space format is missing"],
    ]
    assert answers[6][2].startswith("attempt to index a nil value")


def test_counters_and_settings(ask):
    answers = ask(
        ["queue.create_tube", "mail", "fifo"],
        ["queue.tube.mail:put", 1],
        ["queue.statistics", "mail"],
        ["queue.state"],
        ["queue.cfg", {"ttr": 0}],
        ["queue.tube"],
    )
    assert answers[2][1][0]["tasks"] == {"taken": 0, "buried": 0, "ready": 1, "done": 0, "delayed": 0, "total": 1}
    assert answers[3:] == [[True, ["RUNNING"]], [True, []], [True, [["mail"]]]]


def test_the_tutorials_queue(ask):
    put, taken, nothing, stats = (
        answer[1] for answer in ask(["queue.put", {"a": 1}], ["queue.take", 1], ["queue.take"], ["queue.stats"])
    )
    assert put[0]["status"] == "R" and put[0]["data"] == {"a": 1}
    assert taken == [{**put[0], "status": "T"}] and nothing == []
    assert stats == [{"total": 1, "ready": 0, "waiting": 0, "taken": 1}]


@pytest.mark.parametrize("client", CLIENTS[1:] or CLIENTS, ids=lambda client: client.__name__)
def test_calls_on_one_connection_do_not_wait_for_a_take_that_does(server, client):
    """net.box sends many calls at a time; the connector for Python cannot, and its take comes after the put."""
    calls = [["queue.create_tube", "mail", "fifo"], ["queue.tube.mail:take!"], ["queue.tube.mail:put", "x"]]
    if client is over_python:
        calls = [calls[0], calls[2], ["queue.tube.mail:take"]]
    answers = client(server.server.port(), calls)
    assert answers == [[True, []], [True, [[1, "r", "x"]]], [True, [[1, "t", "x"]]]]


@pytest.mark.parametrize("client", CLIENTS[1:] or CLIENTS, ids=lambda client: client.__name__)
def test_calls_in_a_row_are_performed_in_their_order(server, client):
    mark = "" if client is over_python else "!"
    verbs = [["put", n] for n in range(5)] + [["take", 0]] * 5 + [["ack", n + 1] for n in range(5)] + [["take", 0]]
    calls = [["queue.create_tube", "mail", "fifo"]] + [
        [f"queue.tube.mail:{verb[0]}{mark}", *verb[1:]] for verb in verbs
    ]
    answers = [answer[1] for answer in client(server.server.port(), calls)]
    assert answers == [
        [],
        *([[n + 1, "r", n]] for n in range(5)),
        *([[n + 1, "t", n]] for n in range(5)),
        *([[n + 1, "-", n]] for n in range(5)),
        [],
    ]
