"""Sessions over connections: who holds what when connections, and servers, come and go."""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.clients import Client
from tests.support.engines import ENGINES
from tests.support.servers import Running, run
from tests.support.serving import Serving
from tests.worker.bench import until

import penstock
from penstock.engines.line import Taker
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.task import Draft
from penstock.server import sessions
from penstock.server.auth import EVERYTHING
from penstock.server.core import Wait
from penstock.server.peer import Peer
from penstock.server.tarantool import Facade
from penstock.testing import ManualClock

TAKE, ACK, PEEK, PUT = (f"queue.tube.jobs:{verb}" for verb in ("take", "ack", "peek", "put"))


SOON = 90
"""Seconds; a session that the server has lost, and not ended, would end later than that."""


@pytest.fixture(autouse=True)
def _lost_ones_live_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT_TTL", 10 * SOON * SECOND)


STORES = {engine.name: engine for engine in ENGINES if engine.name in ("memory", "sqlite", "postgres")}
"""What servers serve."""


def stores(*in_every_run: str) -> list[Any]:
    """All of them; those that `make test` leaves to `make test-all` are marked."""
    return [pytest.param(name, marks=() if name in in_every_run else pytest.mark.exhaustive) for name in STORES]


ON_BOTH = pytest.mark.parametrize("url", stores("sqlite", "postgres"), indirect=True)
"""What depends on where ops are performed: in the loop, or in a thread beside it, as with PostgreSQL."""
ON_ONE = pytest.mark.parametrize("url", stores("memory"), indirect=True)
"""What no store is asked about."""


@pytest.fixture(params=stores("sqlite"))
def url(request: Any, tmp_path: Any) -> Iterator[str]:
    engine = STORES[request.param]
    made = engine.url(tmp_path)
    yield made
    engine.clean(made)


@pytest.fixture
def server(url: str) -> Iterator[Running]:
    with Running(url) as running:
        yield running


@pytest.fixture
def connect(connect: Any) -> Any:
    """UUIDs of sessions are bytes that are no text."""
    return functools.partial(connect, encoding=None)


@pytest.fixture
def client(connect: Any) -> Client:
    """One that watches the others."""
    made: Client = connect()
    made.call("queue.create_tube", "jobs", "fifottl")
    return made


def put(client: Client) -> int:
    number: int = client.call(PUT, "x")[0][0]
    return number


def state(client: Client, number: int) -> bytes:
    letter: bytes = client.call(PEEK, number)[0][1]
    return letter


def left(client: Client, other: Client) -> tuple[int, bytes]:
    """A task that another client had taken when it closed its connection, and that one's session."""
    number = put(client)
    other.call(TAKE, 0)
    name: bytes = other.call("queue.identify")[0]
    other.close()
    return number, name


@ON_BOTH
def test_the_end_of_the_last_connection_gives_its_tasks_back(server, client, connect):
    number = put(client)
    other = connect()
    other.call(TAKE, 0)
    other.close()
    assert client.call(TAKE, SOON) == [[number, b"t", b"x"]]
    client.call(ACK, number)
    client.close()
    until(lambda: len(server.server.sessions) == 0)


def test_a_connection_that_takes_nothing_has_no_session(server, client):
    put(client)
    client.call("queue.statistics")
    assert len(server.server.sessions) == 0
    client.call(TAKE, 0)
    assert len(server.server.sessions) == 1


def test_a_server_remembers_nothing_of_sessions_that_have_ended(server, client, connect):
    number = put(client)
    engine = server.server.core.engine
    for _ in range(3):
        other = connect()
        assert other.call(TAKE, SOON) == [[number, b"t", b"x"]]
        other.close()
    until(lambda: state(client, number) == b"r")
    assert len(server.server.sessions) == 0
    assert engine._kept == {} and engine.store._sessions == {}


def test_connections_that_share_a_session_share_its_tasks(client, connect):
    first, second, number = connect(), connect(), put(client)
    name = first.call("queue.identify")[0]
    assert type(name) is bytes and len(name) == 16
    assert second.call("queue.identify", name) == [name]
    assert second.call("queue.identify") == second.call("queue.identify", None) == [name]
    first.call(TAKE, 0)
    first.close()
    assert second.call(ACK, number) == [[number, b"-", b"x"]]
    number = put(client)
    second.call(TAKE, 0)
    second.close()
    assert client.call(TAKE, SOON) == [[number, b"t", b"x"]], "the last one has gone"


def test_who_joins_another_session_leaves_its_own(client, connect):
    first, second, number = connect(), connect(), put(client)
    second.call(TAKE, 0)
    second.call("queue.identify", first.call("queue.identify")[0])
    assert client.call(TAKE, SOON) == [[number, b"t", b"x"]]
    assert second.refused(ACK, number) == (32, "Task was not taken")


@ON_ONE
@pytest.mark.parametrize("bad", [b"short", "short", 5, b"x" * 17, uuid.UUID(int=5), {}], ids=repr)
def test_what_is_no_uuid_is_refused(client, bad):
    code, text = client.refused("queue.identify", bad)
    assert code == 32 and text.startswith("Invalid UUID format.")


def test_a_session_that_nobody_knows_cannot_be_joined(server, client, connect):
    number = put(client)
    client.call(TAKE, 0)
    name = client.call("queue.identify")
    unknown = b"\x01" * 16
    text = f"The UUID {uuid.UUID(bytes=unknown)} is unknown."
    assert client.refused("queue.identify", unknown) == (32, text)
    assert client.call("queue.identify") == name
    assert client.call(ACK, number)[0][1] == b"-", "it is in its own session as before"
    other = connect()
    gone = other.call("queue.identify")[0]
    other.close()
    until(lambda: len(server.server.sessions) == 1)
    assert "is unknown" in client.refused("queue.identify", gone)[1]


def test_with_a_ttr_a_session_outlives_its_connections(server, client, connect):
    client.call("queue.cfg", {"ttr": 3600})
    number, name = left(client, connect())
    until(lambda: len(server.server.doors["port"].connections) == 1)
    again = connect()
    assert state(client, number) == b"t"
    assert again.call("queue.identify", name) == [name]
    assert [kept.timer for kept in server.server.sessions._kept.values()] == [None], "nothing ends it any more"
    assert again.call(ACK, number) == [[number, b"-", b"x"]]


def test_after_the_ttr_a_session_that_nobody_came_back_to_ends(server, client, connect):
    client.call("queue.cfg", {"ttr": 0.05})
    number, name = left(client, connect())
    assert client.call(TAKE, SOON) == [[number, b"t", b"x"]]
    assert "is unknown" in client.refused("queue.identify", name)[1]


@ON_BOTH
def test_sessions_reach_over_servers_of_one_store(url, server, client, connect):
    with Running(url) as second:
        number, one, two = put(client), connect(), connect(second)
        one.call(TAKE, 0)
        two.call("queue.identify", one.call("queue.identify")[0])
        one.close()
        until(lambda: len(server.server.sessions) == 0)
        assert state(client, number) == b"t"
        assert two.call(ACK, number) == [[number, b"-", b"x"]]
        number = put(client)
        two.call(TAKE, 0)
        two.close()
        assert client.call(TAKE, SOON) == [[number, b"t", b"x"]]


@ON_BOTH
def test_two_connections_that_join_at_one_time_count_once(url, server, client, connect):
    with Running(url) as second:
        one, number = connect(second), put(client)
        one.call(TAKE, 0)
        name = str(uuid.UUID(bytes=one.call("queue.identify")[0]))

        async def join_and_leave() -> None:
            sessions, peers = server.server.sessions, [Peer("here", EVERYTHING), Peer("there", EVERYTHING)]
            await asyncio.gather(*(sessions.join(peer, name) for peer in peers))
            assert len(sessions) == 1
            await asyncio.gather(*(sessions.leave(peer) for peer in peers))

        run(join_and_leave())
        assert state(client, number) == b"t"
        one.close()
        assert client.call(TAKE, SOON) == [[number, b"t", b"x"]], "nobody is counted that has gone"


def test_a_session_of_the_library_can_be_joined(url, server, client, connect):
    queue = penstock.connect(url, durability="relaxed")
    number = put(client)
    task = queue.tube("jobs").take()
    other = connect()
    other.call("queue.identify", uuid.UUID(str(queue.identify())).bytes)
    other.close()
    until(lambda: len(server.server.sessions) == 0)
    assert state(client, number) == b"t", "its first user is still in it"
    task.ack()
    queue.close()


@ON_BOTH
def test_a_blocked_take_of_a_closed_connection_takes_nothing(server, client, connect):
    store = server.server.core.engine.store
    other = connect()
    waiter = other.later(TAKE)
    until(lambda: store.waiting("jobs") == 1)
    other._connection._socket.shutdown(2)
    until(lambda: store.waiting("jobs") == 0)
    number = put(client)
    assert state(client, number) == b"r"
    assert attempts(server, number) == 0
    other.close()
    assert isinstance(waiter.result(), Exception)


def attempts(server: Running, number: int) -> int:
    record = run(server.server.core.execute(ops.Peek("jobs", number)))
    return record.attempt


@ON_BOTH
def test_what_was_granted_as_the_connection_closed_is_given_back_unused(server, client):
    number = put(client)

    async def close_meanwhile() -> None:
        core, sessions = server.server.core, server.server.sessions
        peer = Peer("here", EVERYTHING)
        Facade(core, sessions, peer).call(TAKE, [0], heard.append)
        await sessions.leave(peer)

    heard: list[Any] = []
    run(close_meanwhile())
    assert heard == [] and state(client, number) == b"r"
    assert attempts(server, number) == 0, "nobody has seen it"


@ON_BOTH
def test_what_a_wait_was_granted_as_the_connection_closed_is_given_back_unused(server, client):
    store = server.server.core.engine.store
    heard: list[Any] = []
    peer = Peer("here", EVERYTHING)
    core, sessions = server.server.core, server.server.sessions

    async def wait() -> None:
        Facade(core, sessions, peer).call(TAKE, [], heard.append)

    async def put_and_close() -> int:
        placed: Any = None

        def then(answer: Any) -> None:
            nonlocal placed
            placed = answer

        core.ask(ops.Put("jobs", (Draft('"x"'),)), then)
        await sessions.leave(peer)
        number: int = placed[0].record.id
        return number

    run(wait())
    until(lambda: store.waiting("jobs") == 1)
    number = run(put_and_close())
    assert heard in ([], [[]]), "no task, be it that the wait was over before the put"
    assert state(client, number) == b"r"
    assert attempts(server, number) == 0
    assert len(sessions) == 0


class SlowTaker(Taker):
    """Stops in the middle of being lined up."""

    def __init__(self, op: ops.Take) -> None:
        super().__init__(op, None)
        self.tried, self.go_on = threading.Event(), threading.Event()

    def accepts(self, answer: Any) -> bool:
        self.tried.set()
        assert self.go_on.wait(90)
        return super().accepts(answer)


@ON_BOTH
def test_a_wait_that_is_left_while_it_lines_up_gets_what_it_was_granted(server, client):
    core, sessions = server.server.core, server.server.sessions
    answers: list[Any] = []
    placed: list[Any] = []

    async def wait() -> Wait:
        taker = SlowTaker(ops.Take("jobs", 1, sessions.begin(Peer("here", EVERYTHING))))
        return core.wait(taker, None, answers.append)

    async def put_and_leave() -> None:
        core.ask(ops.Put("jobs", (Draft('"x"'),)), placed.append)
        waiting.leave()

    with core.engine.store._group.alone():  # as if another op took long: the turn is left to the thread
        waiting = run(wait())
        until(lambda: not core.turn.waits)
    assert waiting.waiter.tried.wait(90)
    run(put_and_leave())
    waiting.waiter.go_on.set()
    until(lambda: answers and placed)
    assert [record.id for record in answers[0]] == [placed[0][0].record.id]


@ON_BOTH
def test_a_connection_that_closes_while_it_joins_is_in_no_session(server, client, connect):
    name = connect().call("queue.identify")[0]
    before = len(server.server.sessions)

    async def close_meanwhile() -> None:
        core, sessions = server.server.core, server.server.sessions
        peer = Peer("here", EVERYTHING)
        Facade(core, sessions, peer).call("queue.identify", [name], lambda answer: None)
        await sessions.leave(peer)
        assert peer.session is None

    run(close_meanwhile())
    assert len(server.server.sessions) == before


@ON_BOTH
def test_a_connection_that_closes_while_its_first_session_is_looked_for_is_in_none(url, server, client, connect):
    with Running(url) as second:
        name = str(uuid.UUID(bytes=connect(second).call("queue.identify")[0]))

        async def close_meanwhile() -> None:
            sessions, peer = server.server.sessions, Peer("here", EVERYTHING)
            await asyncio.gather(sessions.join(peer, name), sessions.leave(peer))
            assert peer.session is None

        before = len(server.server.sessions)
        run(close_meanwhile())
        assert len(server.server.sessions) == before, "nobody would ever leave it"


@ON_BOTH
def test_the_uuid_of_a_session_is_told_when_other_servers_can_find_it(server, client):
    core, kept, heard = server.server.core, server.server.sessions, list[Any]()
    peer = Peer("here", EVERYTHING)

    async def ask() -> bool:
        Facade(core, kept, peer).call("queue.identify", [], heard.append)
        return bool(heard)

    assert not run(ask()), "the store has not been asked yet"
    until(lambda: heard)
    mine = peer.session
    nobody = mine._replace(uuid=str(uuid.uuid4()))
    assert run(core.execute(ops.Identify(mine.uuid, nobody))).uuid == mine.uuid
    run(kept.leave(peer))


def test_a_server_that_was_killed_finds_leases_again(tmp_path):  # case 154
    with Serving(tmp_path, "tasks.db") as server:
        client = Client(server.port, encoding=None)
        client.call("queue.create_tube", "jobs", "fifottl")
        client.call("queue.cfg", {"ttr": 10 * SOON})  # how long leases are found again
        number, left = put(client), put(client)
        client.call(TAKE, 0)
        client.call(TAKE, 0)
        name = client.call("queue.identify")[0]
        server.kill()
        client.close()
    with Serving(tmp_path, "tasks.db") as server:
        client, other = Client(server.port, encoding=None), Client(server.port, encoding=None)
        assert state(other, number) == b"t"
        assert client.call("queue.identify", name) == [name]
        assert client.call(ACK, number) == [[number, b"-", b"x"]]
        client.close()
        assert other.call(TAKE, SOON) == [[left, b"t", b"x"]], "that session has ended"
        other.close()
        assert server.stop() == 0


def test_the_next_server_gives_a_session_that_lingers_as_long(tmp_path):
    clock, url = ManualClock(), str(tmp_path / "tasks.db")
    with Running(url, clock) as server:
        client = Client(server.server.port(), encoding=None)
        client.call("queue.create_tube", "jobs", "fifottl")
        number = put(client)
        client.call(TAKE, 0)
        name = client.call("queue.identify")[0]
        client.call("queue.cfg", {"ttr": 600})
        client.close()
        until(lambda: not server.server.doors["port"].connections)
    with Running(url, clock) as server:
        clock.advance(599)
        client = Client(server.server.port(), encoding=None)
        assert client.call("queue.identify", name) == [name]
        assert client.call(ACK, number) == [[number, b"-", b"x"]]
        client.close()


def test_a_server_that_ends_leaves_sessions_with_a_ttr_to_the_next_one(tmp_path):
    with Serving(tmp_path, "tasks.db") as server:
        client = Client(server.port, encoding=None)
        client.call("queue.create_tube", "jobs", "fifottl")
        client.call("queue.cfg", {"ttr": 600})
        number = put(client)
        client.call(TAKE, 0)
        name = client.call("queue.identify")[0]
        assert server.stop() == 0
        client.close()
    with Serving(tmp_path, "tasks.db") as server:
        client = Client(server.port, encoding=None)
        client.call("queue.identify", name)
        assert client.call(ACK, number) == [[number, b"-", b"x"]]
        client.close()
        assert server.stop() == 0
