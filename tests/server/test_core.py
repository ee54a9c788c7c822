"""The core of a server: turns of the loop, and callers that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.raw import PING, Raw, call, frame
from tests.support.servers import Running, run
from tests.worker.bench import until

from penstock.engines.line import Taker
from penstock.model import ops
from penstock.model.session import Session, new_session
from penstock.model.task import Draft
from penstock.model.tube import KINDS, new_tube
from penstock.server.core import Core
from penstock.testing import ManualClock


@pytest.fixture(params=["memory relaxed", "sqlite relaxed", "sqlite strict"])
def server(request: Any, tmp_path: Path) -> Iterator[Running]:
    """Relaxed, ops are performed in the loop; strict, in a thread beside it. Nobody else does anything in the store."""
    engine, durability = request.param.split()
    url = "memory:" if engine == "memory" else str(tmp_path / "tasks.db")
    with Running(url, ManualClock(), durability=durability) as running:
        run(running.server.core.execute(ops.CreateTube(new_tube("mail", KINDS["fifo"], False, {}))))
        yield running


@pytest.fixture
def session(server: Running) -> Session:
    made = new_session(60_000_000, direct=False)
    run(server.server.core.execute(ops.OpenSession(made)))
    return made


def put(text: str) -> ops.Put:
    return ops.Put("mail", (Draft(f'"{text}"'),))


def taker(session: Session) -> Taker:
    return Taker(ops.Take("mail", 1, session), None)


async def answer_of(core: Core, waiter: Taker) -> Any:
    future = asyncio.get_running_loop().create_future()
    core.wait(waiter, None, future.set_result)
    return await future


def data(records: Any) -> list[str]:
    return [record.data.strip('"') for record in records]


def test_who_comes_with_a_put_does_not_overtake_who_waits(server: Running, session: Session) -> None:
    core = server.server.core

    async def both() -> tuple[Any, Any]:
        first = asyncio.ensure_future(answer_of(core, taker(session)))
        await core.execute(ops.GetState())
        second = asyncio.ensure_future(answer_of(core, taker(session)))
        await asyncio.sleep(0)  # it asks in the same turn as the put
        core.ask(put("a"), lambda answer: None)
        got = await first
        assert not second.done()
        await core.execute(put("b"))
        return got, await second

    first, second = run(both())
    assert (data(first), data(second)) == (["a"], ["b"])


def test_a_take_that_does_not_wait_does_not_overtake_either(server: Running, session: Session) -> None:
    core = server.server.core

    async def both() -> tuple[Any, Any]:
        waits = asyncio.ensure_future(answer_of(core, taker(session)))
        await core.execute(ops.GetState())
        core.ask(put("a"), lambda answer: None)
        at_once = await core.execute(ops.Take("mail", 1, session))
        return at_once, await waits

    at_once, waited = run(both())
    assert (at_once, data(waited)) == ([], ["a"])


def test_a_wait_that_is_left_before_it_was_tried_takes_nothing(server: Running, session: Session) -> None:
    core = server.server.core

    async def leave_at_once() -> Any:
        await core.execute(put("a"))
        future = asyncio.get_running_loop().create_future()
        core.wait(taker(session), None, future.set_result).leave()
        return await future

    assert run(leave_at_once()) == []
    assert run(core.execute(ops.GetStatistics("mail")))["mail"].tasks["ready"] == 1
    assert core.waiting == 0


def test_a_wait_that_is_left_has_what_it_was_granted(server: Running, session: Session) -> None:
    core = server.server.core

    async def leave_later() -> Any:
        future = asyncio.get_running_loop().create_future()
        wait = core.wait(taker(session), None, future.set_result)
        await core.execute(put("a"))
        wait.leave()
        return await future

    assert data(run(leave_later())) == ["a"]


def test_a_refused_wait_is_answered_with_why(server: Running, session: Session) -> None:
    nowhere = Taker(ops.Take("nowhere", 1, session), None)
    answer = run(answer_of(server.server.core, nowhere))
    assert "there is no tube 'nowhere'" in str(answer)


def test_ops_of_one_turn_share_a_transaction(server: Running) -> None:
    core = server.server.core

    async def many() -> int:
        before = core.tally.groups
        await asyncio.gather(*(core.execute(put(str(number))) for number in range(100)))
        return core.tally.groups - before

    assert run(many()) == 1
    assert run(core.execute(ops.GetStatistics("mail")))["mail"].tasks["ready"] == 100


def test_what_is_called_soon_by_a_turn_comes_before_its_answers(server: Running) -> None:
    core, order = server.server.core, []
    core.engine.listen("mail", lambda config, record, event: core.soon(order.append, "told"))

    async def change() -> None:
        await core.execute(put("a"))
        order.append("answered")

    run(change())
    assert order == ["told", "answered"]


def test_an_answer_that_fails_to_be_given_keeps_nobody_else_from_theirs(server: Running, caplog: Any) -> None:
    core = server.server.core

    async def both() -> str:
        def wrong(answer: Any) -> None:
            raise RuntimeError("nobody is there")

        core.ask(ops.GetState(), wrong)
        return await core.execute(ops.GetState())

    assert run(both()) == "RUNNING"
    assert "an answer could not be given" in caplog.text


def test_while_somebody_holds_the_store_the_others_are_heard(server: Running) -> None:
    engine = server.server.core.engine
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.transaction():
            inside.set()
            assert leave.wait(90)

    holder = threading.Thread(target=hold)
    with Raw(server.server.port()) as raw, Raw(server.server.port()) as other:
        raw.call("queue.state")
        holder.start()
        assert inside.wait(90)
        try:
            raw.send(call(1, "queue.tube.mail:put", "x"))
            until(lambda: any(c.open_requests for c in list(server.server.doors["port"].connections)))
            for number in range(5):
                assert other.ask(frame(PING, number)).sync == number
        finally:
            leave.set()
            holder.join()
        assert raw.answer().data[0][1:] == ["r", "x"]
