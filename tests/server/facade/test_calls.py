"""Calls of one connection: their forms, their order, and who may make which."""

from __future__ import annotations

from typing import Any

from tests.server.clients import Client
from tests.server.facade.kinds import KINDS
from tests.support.servers import Running, run

from penstock.server.auth import EVERYTHING, Login, Secret, new_token
from penstock.server.logins import Entry, new_right, write_entries
from penstock.server.peer import Peer
from penstock.server.tarantool import Facade


def test_older_calls_answer_rows(server, client, connect):
    old = connect(call_16=True)
    number = old.call("queue.tube.fifo:put", "x")[0][0]
    assert old.call("queue.tube.fifo:take", 0) == [[number, "t", "x"]]
    assert old.call("queue.tube.fifo:take", 0) == []
    assert old.call("queue.tube.fifo:kick", 5) == [[0]]
    assert old.call("queue.state") == [["RUNNING"]]
    assert old.call("queue.tube") == [sorted(KINDS)]


def test_a_login_does_what_its_roles_say(tmp_path):  # case 161
    secrets = {name: new_token() for name in ("worker", "producer", "reader", "boss")}
    rights = {
        "worker": new_right(["take"], ["jobs"]),
        "producer": new_right(["put"], ["jobs"]),
        "reader": new_right(["read"], ["*"]),
        "boss": new_right(["admin"], ["*"]),
    }
    file = str(tmp_path / "logins.toml")
    write_entries(file, {n: Entry(Login(n, (rights[n],)), (Secret.of(secrets[n]),)) for n in secrets})
    with Running("memory:", logins=file) as server:
        port = server.server.port()
        guest = Client(port)
        worker, producer, reader, boss = (Client(port, user=n, password=secrets[n]) for n in secrets)
        put, take = "queue.tube.jobs:put", "queue.tube.jobs:take"
        boss.call("queue.create_tube", "jobs", "fifo")
        denied = f"Execute access to function '{put}' is denied for user "
        for client, name in ((guest, "guest"), (worker, "worker"), (reader, "reader")):
            code, text = client.refused(put, 1)
            assert code == 42 and text.startswith(f"{denied}'{name}'")
        assert producer.refused("queue.tube.other:put", 1)[0] == worker.refused("queue.tube.other:take")[0] == 42
        numbers = [producer.call(put, n)[0][0] for n in range(4)]
        assert producer.refused(take, 0)[0] == reader.refused(take, 0)[0] == 42
        assert worker.call("queue.tube.jobs:bury", numbers[0])[0][1] == "!"
        assert worker.call("queue.tube.jobs:kick", 1) == [1]
        assert worker.call("queue.tube.jobs:delete", numbers[0])[0][1] == "-"
        assert worker.call(take, 0)[0][0] == numbers[1]
        assert worker.refused("queue.tube.jobs:peek", numbers[1])[0] == 42
        assert reader.call("queue.tube.jobs:peek", numbers[1])[0][1] == "t"
        assert worker.call("queue.tube.jobs:ack", numbers[1])[0][1] == "-"
        for function in ("queue.tube.jobs:truncate", "queue.tube.jobs:drop", "queue.tube.jobs:release_all"):
            assert worker.refused(function)[0] == 42
        assert worker.refused("queue.create_tube", "x", "fifo")[0] == worker.refused("queue.cfg", {"ttr": 5})[0] == 42
        assert reader.call("queue.statistics", "jobs")[0]["tasks"]["total"] == 2
        assert reader.refused("queue.tube.jobs:kick")[0] == producer.refused("queue.tube.jobs:delete", 3)[0] == 42
        assert boss.call("queue.tube.jobs:truncate") == boss.call("queue.cfg", {"ttr": 0}) == []
        for client in (guest, worker, producer, reader, boss):
            client.close()


def test_calls_of_one_connection_are_performed_in_their_order(server):
    """Some take several steps; what was sent behind them has to see what they did."""

    async def pipeline() -> list[Any]:
        core, sessions = server.server.core, server.server.sessions
        peer = Peer("here", EVERYTHING)
        facade = Facade(core, sessions, peer)
        answers: list[Any] = []
        done = core.loop.create_future()
        calls: list[tuple[str, list[Any]]] = [
            ("queue.create_tube", ["x", "fifottl"]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:put", ["a"]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:put", ["b", {"pri": 1}]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:drop", []),
            ("queue.tube.x:release_all", []),
            ("queue.tube.x:drop", []),
            ("queue.tube.x:put", ["c"]),
        ]

        def then(answer: Any) -> None:
            answers.append(answer if isinstance(answer, list) else answer.text)
            if len(answers) == len(calls):
                done.set_result(None)

        for name, args in calls:
            facade.call(name, args, then)
        await done
        await sessions.leave(peer)
        return answers

    answers = run(pipeline())
    assert [row[0][1:] if row and row[0] is not True else row for row in answers[1:7]] == [
        [],
        ["r", "a"],
        ["t", "a"],
        [],
        ["r", "b"],
        ["t", "b"],
    ]
    assert answers[7].startswith("There are taken tasks")
    assert answers[8:] == [[], [True], "Procedure 'queue.tube.x:put' is not defined"]
