"""Which login may do what: one table over all ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import tarantool
from tarantool.error import DatabaseError
from tests.support.servers import Running
from tests.support.staging import rows

import penstock
from penstock import Entry
from penstock.model import ops
from penstock.model.errors import AccessDenied, UsageError
from penstock.model.session import new_session
from penstock.server import logins
from penstock.server.auth import EVERYTHING, NOBODY, Login, Right, new_token
from penstock.server.roles import FACADE, NEEDS, Role, need, tube_of

CONTRACT = {
    Role.READ: "Peek ListTasks GetExtent GetStatistics ListLanes Watch ReadHistory MarkHistory ListTubes ListLedgers",
    Role.PUT: "Put Load Stage Promote Discard Cancel",
    Role.TAKE: "Take Ack Release Bury Fail Touch",
    Role.ADMIN: "CreateTube AlterTube PauseTube TruncateTube DropTube AdoptTable Kick Dig Delete ReleaseAll Snatch "
    "Switch Restart AddRetries ConfigureLane ForgetHistory ListStaged",
}
"""Rule 25 of the contract, and what is like it."""
FREE = "OpenSession Identify KeepAlive EndSession Tick GetState GetMoment"


def op_of(kind: type[ops.Op[Any]], tube: str = "mail") -> ops.Op[Any]:
    """An op that is about a tube, as far as a check looks at it."""
    made = kind.__new__(kind)
    for field in fields(kind):  # type: ignore[arg-type]
        object.__setattr__(made, field.name, tube if field.name == "tube" else None)
    if isinstance(made, ops.CreateTube):
        object.__setattr__(made, "config", SimpleNamespace(name=tube))
    return made


def login(*rights: tuple[str, str]) -> Login:
    return Login("ann", tuple(Right(frozenset({Role(role)}), (tube,)) for role, tube in rights))


def test_the_table_has_every_op_and_no_other():
    assert list(NEEDS) == [op for op in ops.ALL if op in NEEDS]
    assert set(NEEDS) == set(ops.ALL)
    assert set(FACADE) <= set(ops.ALL)


@pytest.mark.parametrize("role", CONTRACT, ids=str)
def test_a_role_allows_what_the_contract_says_and_nothing_else(role: Role):
    mine = {getattr(ops, name) for name in CONTRACT[role].split()}
    others = {getattr(ops, name) for other, names in CONTRACT.items() if other is not role for name in names.split()}
    held = login((role, "*"))
    for kind in mine:
        held.check(op_of(kind))
    for kind in others - mine:
        if role is Role.ADMIN:
            held.check(op_of(kind))
        else:
            with pytest.raises(AccessDenied, match=f"needs the role {'|'.join(NEEDS[kind].roles)}"):
                held.check(op_of(kind))


@pytest.mark.parametrize("name", FREE.split())
def test_sessions_time_and_state_need_a_login_and_no_role(name: str):
    op = op_of(getattr(ops, name))
    login().check(op)
    with pytest.raises(AccessDenied, match="needs a login"):
        NOBODY.check(op)


@pytest.mark.parametrize("kind", ops.ALL, ids=lambda kind: kind.__name__)
def test_whoever_has_not_logged_in_may_do_nothing_and_a_guest_of_an_open_server_everything(kind: type[ops.Op[Any]]):
    EVERYTHING.check(op_of(kind))
    with pytest.raises(AccessDenied, match="connect with a name and its secret"):
        NOBODY.check(op_of(kind))


@pytest.mark.parametrize("kind", [op for op in ops.ALL if need(op).roles], ids=lambda kind: kind.__name__)
def test_a_login_without_rights_may_do_nothing(kind: type[ops.Op[Any]]):
    with pytest.raises(AccessDenied):
        login().check(op_of(kind))


def test_any_role_on_a_tube_opens_it():
    for role in Role:
        login((role, "mail")).check(ops.GetTube("mail"))
        with pytest.raises(
            AccessDenied, match="'ann' may not open on tube 'web': that needs the role any on tube 'web'"
        ):
            login((role, "mail")).check(ops.GetTube("web"))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("mail", ["mail"], ["mails", "Mail", "mai"]),
        ("shop.*", ["shop.a", "shop."], ["shop", "xshop.a"]),
        ("m?", ["ma"], ["m", "mab"]),
        ("*", ["mail", "x.y-z_"], []),
    ],
)
def test_tubes_are_named_or_matched(pattern: str, inside: list[str], outside: list[str]):
    held = login(("put", pattern))
    for tube in inside:
        held.check(ops.Put(tube, ()))
    for tube in outside:
        with pytest.raises(AccessDenied):
            held.check(ops.Put(tube, ()))


def test_a_refusal_names_the_login_the_verb_the_tube_and_the_role():
    with pytest.raises(AccessDenied) as refused:
        login(("read", "*")).check(ops.Take("mail", 1, new_session(None)))
    assert str(refused.value) == "login 'ann' may not take on tube 'mail': that needs the role take on tube 'mail'"


@pytest.mark.parametrize(
    "op", [ops.GetStatistics(), ops.ReadHistory(), ops.MarkHistory(), ops.ListTubes(), ops.ListLedgers()], ids=repr
)
def test_what_tells_of_all_tubes_needs_the_role_on_all_of_them(op: ops.Op[Any]):
    assert tube_of(op) is None
    login(("read", "*")).check(op)
    with pytest.raises(AccessDenied, match=r"needs the role read on every tube, '\*'"):
        login(("read", "mail"), ("read", "web*")).check(op)


def test_a_table_of_the_database_is_adopted_by_those_who_administer_all_tubes():
    op = op_of(ops.AdoptTable)
    login(("admin", "*")).check(op)
    with pytest.raises(AccessDenied, match="on every tube"):
        login(("admin", "mail")).check(op)


def test_ledgers_belong_to_those_who_put_or_take_somewhere():
    for role in ("put", "take"):
        login((role, "mail")).check(ops.WriteLedger("stream:a", 0, ("x",)))
    with pytest.raises(AccessDenied, match="needs the role put or take on some tube"):
        login(("read", "*")).check(ops.WriteLedger("stream:a", 0, ("x",)))
    login(("read", "mail")).check(ops.ReadLedger("stream:a"))


def test_several_rights_add_up_and_do_not_mix():
    held = login(("take", "in"), ("put", "out"))
    held.check(ops.Take("in", 1, new_session(None)))
    held.check(ops.Put("out", ()))
    for op in (ops.Put("in", ()), ops.Take("out", 1, new_session(None))):
        with pytest.raises(AccessDenied):
            held.check(op)


def test_clients_of_tarantool_that_may_take_may_also_delete_and_kick_but_nothing_else_of_admin():
    held = login(("take", "mail"))
    for op in (ops.Delete("mail", 1), ops.Kick("mail")):
        held.check(op, facade=True)
        with pytest.raises(AccessDenied):
            held.check(op)
        with pytest.raises(AccessDenied):
            login(("put", "mail")).check(op, facade=True)
    for op in (ops.TruncateTube("mail"), ops.DropTube("mail"), ops.ReleaseAll("mail"), ops.Dig("mail", 1)):
        with pytest.raises(AccessDenied):
            held.check(op, facade=True)


# -- over connections ----------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A server with logins; answers URLs by the name of a login, for each scheme."""
    with penstock.connect(f"{tmp_path}/tasks.db") as queue:
        for name in ("mail", "web"):
            queue.create_tube(name)
    given = {
        "reader": [("read", "mail")],
        "putter": [("put", "mail")],
        "taker": [("take", "mail")],
        "worker": [("take", "mail"), ("read", "mail")],
        "boss": [("admin", "*")],
        "nothing": [("read", "elsewhere")],
    }
    tokens = {name: new_token() for name in given}
    rights = {name: [logins.new_right([role], [tube]) for role, tube in them] for name, them in given.items()}
    file = f"{tmp_path}/logins.toml"
    logins.write_entries(file, {name: logins.new_entry(name, rights[name], tokens[name]) for name in given})
    with Running(f"{tmp_path}/tasks.db", logins=file, grpc_port=0) as running:

        def url(name: str, scheme: str = "penstock") -> str:
            port = running.server.port("port" if scheme == "penstock" else "grpc_port")
            return f"{scheme}://{name}:{tokens[name]}@127.0.0.1:{port}"

        yield url


@pytest.mark.parametrize("scheme", ["penstock", "grpc"])
def test_each_login_does_its_part_over_a_url(served: Callable[..., str], scheme: str):  # case 161
    def refused(call: Callable[[], object], text: str) -> None:
        with pytest.raises(AccessDenied, match=text):
            call()

    with penstock.connect(served("putter", scheme)) as queue:
        mail = queue.tube("mail")
        id = mail.put({"n": 1}).id
        refused(mail.take, "'putter' may not take on tube 'mail': that needs the role take")
        refused(lambda: mail.on_task_change(print), "'putter' may not listen on tube 'mail'")
        refused(lambda: queue.create_tube("new"), "'putter' may not create on tube 'new'")
    with penstock.connect(served("reader", scheme)) as queue:
        mail = queue.tube("mail")
        assert mail.peek(id).data == {"n": 1}
        refused(lambda: mail.put(1), "'reader' may not put on tube 'mail'")
        refused(lambda: queue.tube("web"), "'reader' may not open on tube 'web'")
        refused(queue.tubes, "'reader' may not list tubes: that needs the role read on every tube")
        refused(queue.transaction().__enter__, "'reader' may not begin a transaction")
    with penstock.connect(served("taker", scheme)) as queue:
        mail = queue.tube("mail")
        refused(lambda: mail.delete(id), "'taker' may not delete on tube 'mail': that needs the role admin")
        refused(lambda: mail.put(1), "'taker' may not put on tube 'mail': that needs the role put")
        task = mail.take()
        assert task is not None and task.id == id
        task.ack()


def test_a_worker_that_may_only_take_needs_a_tube_as_its_handler_asks_for_it(served: Callable[..., str]):
    done = []
    with penstock.connect(served("worker")) as queue, penstock.connect(served("boss")) as boss:
        queue.handler("mail", max_attempts=5)(lambda data: done.append(data))
        with pytest.raises(
            AccessDenied, match=r"may not alter .*; its handler asks for retry=.*, max_attempts=5, ttr=3600: let a"
        ):
            penstock.Worker(queue).run(until_empty=True)
        mail = boss.tube("mail")
        mail.alter(ttr=3600, max_attempts=5, retry=1)
        mail.put(7)
        penstock.Worker(queue).run(until_empty=True)
    assert done == [7]


def test_a_tube_that_is_not_there_is_no_secret_that_a_refusal_gives_away(served: Callable[..., str]):
    with penstock.connect(served("nothing")) as queue:
        texts = set()
        for name in ("mail", "absent"):
            with pytest.raises(AccessDenied) as refused:
                queue.tube(name)
            texts.add(str(refused.value).replace(name, "NAME"))
        assert len(texts) == 1


def test_a_batch_does_what_it_may_and_refuses_the_rest(served: Callable[..., str]):
    with penstock.connect(served("putter")) as queue:
        engine = queue._engine
        answers = engine.execute_many([ops.GetTube("mail"), ops.GetTube("web"), ops.GetMoment()])
        assert isinstance(answers[1], AccessDenied)
        assert answers[0].name == "mail" and isinstance(answers[2], int)


@pytest.mark.parametrize("scheme", ["penstock", "grpc"])
def test_a_job_is_discarded_by_those_who_may_put_where_it_stages_for(served: Callable[..., str], scheme: str):
    with penstock.connect(served("boss", scheme)) as boss, penstock.connect(served("putter", scheme)) as putter:
        boss._engine.execute(ops.Stage("web", "secret", "a", rows([Entry(1)])))
        with pytest.raises(AccessDenied, match="'putter' may not discard a job on tube 'web'"):
            putter._engine.execute(ops.Discard("secret"))
        with pytest.raises(UsageError, match="another tube"):
            putter._engine.execute(ops.Promote("mail", "secret", (("a", 1),)))
        putter._engine.execute(ops.Stage("mail", "mine", "a", rows([Entry(1)])))
        with pytest.raises(AccessDenied), putter.transaction() as tx:
            tx.execute(ops.Discard("secret"))
        assert putter._engine.execute(ops.Discard("mine")) == 1
        assert putter._engine.execute(ops.Discard("absent")) == 0
        assert boss._engine.execute(ops.Discard("secret")) == 1


def test_clients_of_tarantool_have_the_same_roles(served: Callable[..., str]):
    def client(name: str) -> tarantool.Connection:
        place = urlsplit(served(name))
        return tarantool.Connection(place.hostname, place.port, user=name, password=place.password)

    taker, other, putter = client("taker"), client("taker"), client("putter")
    held = putter.call("queue.tube.mail:put", (0,)).data[0][0]
    assert other.call("queue.tube.mail:take", (0,)).data[0][0] == held
    assert taker.call("queue.tube.mail:bury", (held,)).data[0][1] == "!", "whoever holds it, as in tarantool/queue"
    assert taker.call("queue.tube.mail:delete", (held,)).data[0][1] == "-"
    id = putter.call("queue.tube.mail:put", (1,)).data[0][0]
    assert taker.call("queue.tube.mail:take", (0,)).data[0][0] == id
    assert taker.call("queue.tube.mail:bury", (id,)).data[0][1] == "!"
    assert taker.call("queue.tube.mail:kick", (1,)).data == [1]
    assert taker.call("queue.tube.mail:delete", (id,)).data[0][1] == "-"
    for who, call, args in (
        (putter, "queue.tube.mail:take", (0,)),
        (taker, "queue.tube.mail:put", (1,)),
        (taker, "queue.tube.mail:truncate", ()),
        (taker, "queue.tube.mail:release_all", ()),
        (putter, "queue.tube.web:put", (1,)),
        (putter, "queue.create_tube", ("x", "fifo")),
    ):
        with pytest.raises(DatabaseError, match="may not"):
            who.call(call, args)
    for each in (taker, other, putter):
        each.close()
    taker.close()
    putter.close()
