"""What remote engines send to a server, as no engine of ours would send it, and what they do not hear."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.raw import Raw, call
from tests.support.servers import Running, loop, run
from tests.worker.bench import until

from penstock.engines.signs import LONGEST, MOST, Signs
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.session import Session
from penstock.model.task import Draft
from penstock.model.tube import KINDS, new_tube
from penstock.server import book
from penstock.server.auth import EVERYTHING
from penstock.server.core import STALLED
from penstock.server.link import Link
from penstock.server.peer import Peer
from penstock.server.settings import Limits
from penstock.testing import ManualClock
from penstock.wire import codec, talk


@pytest.fixture
def server() -> Iterator[Running]:
    with Running("memory://") as running:
        run(running.server.core.execute(ops.CreateTube(new_tube("jobs", KINDS["fifo"], False, {}))))
        yield running


def fresh(ttl: int = 30_000_000) -> Session:
    return Session(str(uuid.uuid4()), "far", ttl, direct=False)


class Far:
    """A remote engine's connection, of which every answer is kept."""

    def __init__(self, running: Running, name: str, incarnation: str | None = None) -> None:
        self.core = running.server.core
        self.answers: dict[int, tuple[bool, bytes]] = {}
        self._came: dict[int, asyncio.Future[None]] = {}
        self.link = Link(
            running.server.book, Peer("far", EVERYTHING), self._send, lambda: None, running.server.settings.limits
        )
        self.welcome = talk.decode_welcome(run(self._hello(name, incarnation)))

    def _send(self, number: int, failed: bool, payload: bytes) -> None:
        self.answers[number] = (failed, payload)
        if number in self._came:
            self._came[number].set_result(None)

    async def _hello(self, name: str, incarnation: str | None) -> bytes:
        self.link.receive(-1, 0, "hello", codec.pack(talk.Hello(codec.VERSION, name, incarnation)))
        failed, payload = self.answers[-1]
        assert not failed, codec.decode_error(payload)
        return payload

    def ask(self, number: int, kind: str, payload: bytes, seen: int = 0) -> tuple[bool, bytes]:
        async def asked() -> tuple[bool, bytes]:
            self._came[number] = self.core.loop.create_future()
            self.link.receive(number, seen, kind, payload)
            await self._came[number]
            del self._came[number]
            return self.answers.pop(number)

        return run(asked())

    def do(self, number: int, *asked: ops.Op[Any], seen: int = 0) -> list[Any]:
        failed, payload = self.ask(number, "do", codec.encode_ops(asked), seen)
        if failed:
            raise codec.decode_error(payload)
        return codec.decode_answers(asked, payload)


def put(far: Far, *data: str) -> None:
    far.do(-2, ops.Put("jobs", tuple(Draft(item) for item in data)))


def states(far: Far) -> list[tuple[str, str, int]]:
    [found] = far.do(-3, ops.ListTasks("jobs"))
    return [(record.data, record.state, record.attempt) for record in found]


# -- signs of life -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["not-a-uuid", '}{"', "5a96d33d-47eb-4883-a40e-bfa08bbec609"])
def test_signs_of_life_of_sessions_that_a_client_does_not_have_are_not_heard(server: Running, name: str) -> None:
    far = Far(server, "a")
    assert far.ask(1, "alive", codec.pack([(name, 10**15)]))[0] is False
    assert name not in server.server.core.engine.store.lives()
    mine = fresh()
    far.do(2, ops.OpenSession(mine))
    far.ask(3, "alive", codec.pack([(mine.uuid, mine.ttl)]))
    assert mine.uuid in server.server.core.engine.store.lives()


def test_a_sign_of_life_lasts_no_longer_than_the_server_allows() -> None:
    with Running("memory:", ManualClock(), limits=Limits(session_seconds=2)) as server:
        far, mine = Far(server, "long"), fresh(1_000_000)
        far.do(1, ops.OpenSession(mine))
        store = server.server.core.engine.store
        far.ask(2, "alive", codec.pack([(mine.uuid, 20_000_000)]))
        assert store._signs.alive(store.clock.now()) == {mine.uuid}
        assert store._signs.alive(store.clock.now() + 3_000_000) == set()


def test_signs_of_life_are_bounded_and_end() -> None:
    signs = Signs()
    for number in range(2 * MOST):
        signs.hear(str(number), 1 << 62, number)
    assert len(signs) == MOST
    assert len(signs.alive(LONGEST)) == MOST - 1  # the first one was heard at moment 0
    signs.hear("late", 10, 2 * LONGEST)
    assert signs.alive(2 * LONGEST) == {"late"}
    assert len(signs) == 1


# -- what has another shape ----------------------------------------------------------------------------


def test_a_number_that_is_too_large_is_refused_and_the_connection_goes_on(server: Running) -> None:
    hello = codec.pack(talk.Hello(codec.VERSION, "b", None))
    with Raw(server.server.port()) as raw:
        assert raw.ask(call(1, "penstock.hello", -1, 0, hello)).data[0] is False
        moment = codec.encode_ops([ops.GetMoment()])
        assert raw.ask(call(2, "penstock.do", 1, 0, moment)).data[0] is False
        failed, payload = raw.ask(call(3, "penstock.do", 2, 2**64 - 1, moment)).data
        assert failed
        assert isinstance(codec.decode_error(payload), UsageError)
        assert raw.ask(call(4, "penstock.do", 3, 2, moment)).data[0] is False


def test_a_connection_is_of_one_client(server: Running) -> None:
    far = Far(server, "c")
    for name in ("d", "c" * 101):
        far.answers.clear()
        with pytest.raises(AssertionError, match="a connection is of one client"):
            run(far._hello(name, None))


# -- grants that nobody hears of -----------------------------------------------------------------------


def test_who_has_been_at_another_server_gets_no_answer_of_before(server: Running) -> None:
    far = Far(server, "e")
    put(far, "1", "2")
    session = fresh()
    [[first]] = far.do(1, ops.Take("jobs", 1, session))
    lease = ops.Lease(first.id, first.token)
    far.do(-4, ops.Release("jobs", lease, session, refund=True))  # as the other server does
    again = Far(server, "e", "another")
    assert again.welcome.remembered is False
    [[granted]] = again.do(1, ops.Take("jobs", 1, session))
    assert granted.token > first.token
    assert states(again) == [("1", "taken", 1), ("2", "ready", 0)]
    assert Far(server, "e", again.welcome.incarnation).welcome.remembered is True


def test_what_is_granted_when_the_client_has_gone_comes_back(server: Running) -> None:
    far = Far(server, "f")
    put(far, "1")
    session = fresh()

    async def go() -> None:
        far.link.receive(1, 0, "do", codec.encode_ops([ops.Take("jobs", 1, session)]))
        far.link.end()

    run(go())
    other = Far(server, "g")
    assert states(other) == [("1", "ready", 0)]
    again = Far(server, "f", other.welcome.incarnation)
    assert again.welcome.remembered is True
    [[granted]] = again.do(1, ops.Take("jobs", 1, session))
    assert (granted.data, granted.attempt) == ("1", 1)


def test_what_is_granted_beside_something_else_comes_back_too(server: Running) -> None:
    far = Far(server, "h")
    put(far, "1")
    session = fresh()
    asked = [ops.Take("jobs", 1, session), ops.Put("jobs", (Draft("2"),))]

    async def go() -> None:
        far.link.receive(1, 0, "do", codec.encode_ops(asked))
        far.link.end()

    run(go())
    again = Far(server, "h", far.welcome.incarnation)
    none, [placed] = again.do(1, *asked)
    assert (none, placed.outcome) == ([], "new")
    assert states(again) == [("1", "ready", 0), ("2", "ready", 0)]


def test_a_wait_that_is_granted_a_task_when_the_client_has_gone_gives_it_back(server: Running) -> None:
    far, other = Far(server, "i"), Far(server, "j")
    session = fresh()

    async def go() -> None:
        far.link.receive(1, 0, "wait", talk.encode_wait(ops.Take("jobs", 1, session), None, ()))
        far.link.end()

    run(go())
    put(other, "1")
    assert states(other) == [("1", "ready", 0)]
    run(gone(far))
    assert server.server.core.waiting == 0


async def gone(far: Far) -> None:
    far.link.lost()
    await far.core.execute(ops.GetMoment())


def test_what_a_server_is_asked_while_it_stands_still_is_not_done_for_who_has_gone(server: Running) -> None:
    other, session, stands, gone = Far(server, "m"), fresh(), threading.Event(), threading.Event()
    put(other, "1")

    def stand_still() -> None:
        stands.set()
        gone.wait()
        threading.Event().wait(2 * STALLED)

    with Raw(server.server.port()) as raw:
        raw.ask(call(1, "penstock.hello", -1, 0, codec.pack(talk.Hello(codec.VERSION, "n", None))))
        loop().call_soon_threadsafe(stand_still)
        stands.wait()
        raw.send(call(2, "penstock.do", 1, 0, codec.encode_ops([ops.Take("jobs", 1, session)])))
    gone.set()
    until(lambda: len(server.server.doors["port"].connections) == 0)
    run(server.server.core.execute(ops.GetMoment()))  # what it was granted has been given back by then
    assert states(other) == [("1", "ready", 0)]


def test_an_answer_that_there_was_no_room_for_is_given_again_with_what_is_there_then(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "BYTES", 1000)
    far = Far(server, "k")
    put(far, *('"' + "x" * 600 + '"' for _ in range(4)))
    session = fresh()
    first = [far.do(number, ops.Take("jobs", 1, session))[0][0] for number in (1, 2, 3)]
    again = Far(server, "k", far.welcome.incarnation)
    granted = [again.do(number, ops.Take("jobs", 1, session))[0][0] for number in (1, 2, 3)]
    assert [state for _, state, _ in states(again)] == ["taken"] * 3 + ["ready"]
    assert {record.id for record in granted} == {record.id for record in first}
    assert all(attempt <= 1 for _, _, attempt in states(again))


def test_answers_that_have_arrived_are_not_given_back(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "BYTES", 1000)
    far = Far(server, "l")
    long = f'"{"x" * 2000}"'
    put(far, long)
    far.do(1, ops.Take("jobs", 1, fresh()))
    far.do(2, ops.GetMoment(), seen=1)
    again = Far(server, "l", far.welcome.incarnation)
    assert again.do(1, ops.Take("jobs", 1, fresh())) == [[]]
    assert states(again) == [(long, "taken", 1)]
