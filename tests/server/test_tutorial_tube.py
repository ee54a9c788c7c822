"""The tube of the tutorial's queue is made by who may make tubes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.server.clients import Client
from tests.support.servers import Running

from penstock.server import logins
from penstock.server.auth import new_token

Connect = Callable[[str], Client]


@pytest.fixture
def login(tmp_path: Path) -> Iterator[Connect]:
    """Connects by the name of a role."""
    rights = {"put": "queue", "take": "queue", "admin": "*"}
    tokens = {role: new_token() for role in rights}
    entries = {
        role: logins.new_entry(role, [logins.new_right([role], [tube])], tokens[role]) for role, tube in rights.items()
    }
    logins.write_entries(f"{tmp_path}/logins.toml", entries)
    made: list[Client] = []
    with Running("memory:", logins=f"{tmp_path}/logins.toml") as running:

        def connect(role: str) -> Client:
            made.append(Client(running.server.port(), user=role, password=tokens[role]))
            return made[-1]

        yield connect
        for client in made:
            client.close()


@pytest.mark.parametrize(("role", "call"), [("put", ("queue.put", {"n": 1})), ("take", ("queue.take", 0))])
def test_a_role_that_makes_no_tubes_does_not_make_this_one(login: Connect, role: str, call: tuple[str, object]) -> None:
    _, text = login(role).refused(*call)
    assert f"login {role!r} may not create on tube 'queue'" in text
    admin = login("admin")
    assert admin.call("queue.statistics") == [{}]
    admin.call("queue.put", {"n": 0})
    login(role).call(*call)


def test_whoever_may_put_puts_once_it_is_there(login: Connect) -> None:
    login("admin").call("queue.take", 0)
    [put] = login("put").call("queue.put", {"n": 1})
    assert put["data"] == {"n": 1}
    [taken] = login("take").call("queue.take", 0)
    assert taken["id"] == put["id"]
