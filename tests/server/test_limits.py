"""What one client may use, and all of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.server.clients import Client
from tests.server.raw import PING, Raw, call, frame
from tests.support.servers import Running, loop, run
from tests.worker.bench import until

import penstock
from penstock.model import ops
from penstock.model.session import new_session
from penstock.model.task import Draft
from penstock.model.tube import KINDS, new_tube
from penstock.server import connection, link, logins
from penstock.server.auth import new_token
from penstock.server.settings import Limits
from penstock.wire import codec, talk

STATE = "queue.state"


def connections(server: Running) -> int:
    return len(server.server.doors["port"].connections)


def test_one_connection_too_many_is_closed_and_the_others_stay() -> None:
    with Running("memory:", limits=Limits(connections=3)) as server:
        port = server.server.port()
        inside = [Raw(port) for _ in range(3)]
        with pytest.raises((EOFError, ConnectionError)):
            Raw(port)
        assert all(raw.call(STATE) == ["RUNNING"] for raw in inside)
        inside.pop().close()
        until(lambda: connections(server) == 2)
        with Raw(port) as again:
            assert again.call(STATE) == ["RUNNING"]
        for raw in inside:
            raw.close()


def test_requests_beyond_the_pipeline_are_read_later_and_none_is_lost(tmp_path: Path) -> None:
    most = 0
    with Running(str(tmp_path / "tasks.db"), limits=Limits(pipeline=10)) as server, Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        door = server.server.doors["port"]
        (connection,) = door.connections
        core = server.server.core
        ask = core.ask_one

        def watched(*args: Any) -> None:
            nonlocal most
            most = max(most, connection.open_requests)
            ask(*args)

        core.ask_one = watched  # type: ignore[method-assign]
        raw.send(b"".join(call(number, "queue.tube.mail:put", number) for number in range(1000)))
        answers = [raw.answer() for _ in range(1000)]
    assert [answer.sync for answer in answers] == list(range(1000))
    assert all(answer.error is None for answer in answers)
    assert most == 10


def test_takes_that_wait_do_not_fill_the_pipeline() -> None:
    with Running("memory:", limits=Limits(pipeline=10)) as server, Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        raw.send(b"".join(call(number, "queue.tube.mail:take") for number in range(100, 150)))
        until(lambda: server.server.core.waiting == 50)
        raw.send(call(1, "queue.tube.mail:put", "x"))
        assert sorted(raw.answer().sync for _ in range(2)) == [1, 100]


def test_a_client_that_does_not_read_its_answers_is_cut_off() -> None:
    limits = Limits(unsent=4 << 20, frame=2 << 20, slow_seconds=0.2)
    with Running("memory:", limits=limits) as server, Raw(server.server.port()) as greedy:
        greedy.call("queue.create_tube", "mail", "fifo")
        greedy.call("queue.tube.mail:put", "x" * 200_000)
        with Raw(server.server.port()) as other:
            asked = b"".join(call(number, "queue.tube.mail:peek", 1) for number in range(2000))
            sender = threading.Thread(target=_send, args=(greedy.socket, asked))
            sender.start()
            until(lambda: connections(server) == 1)
            sender.join()
            assert other.call(STATE) == ["RUNNING"]


def test_a_client_that_reads_gets_more_at_once_than_may_be_unread() -> None:
    limits = Limits(unsent=4 << 20, frame=2 << 20)
    with Running("memory:", limits=limits) as server, Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        for _ in range(40):
            raw.call("queue.tube.mail:put", "x" * 500_000)
        raw.send(b"".join(call(number, "queue.tube.mail:take", 0) for number in range(40)))
        answers = [raw.answer() for _ in range(40)]
        assert [len(answer.data[0][2]) for answer in answers] == [500_000] * 40


def test_a_remote_engine_gets_more_at_once_than_may_be_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "GRANTED", link.GRANTED // 10)
    limits = Limits(unsent=400_000)
    with (
        Running(str(tmp_path / "tasks.db"), limits=limits, grpc_port=0) as server,
        penstock.connect(server.url) as q,
        penstock.connect(server.grpc_url) as other,
    ):
        mail = q.create_tube("mail")
        mail.put_many(["x" * 50_000] * 30)
        first = mail.take_many(30)
        assert 1 < len(first) <= 30
        last = other.tube("mail").take_many(40)
        assert len(last) == 30 - len(first)
        assert mail.statistics().tasks["taken"] == 30
        mail.put_many(["x" * 50_000] * 25)
        mail.put_many(["x" * 50_000] * 15)
        some = mail.take_many(40)
        assert 1 < len(some) < 40
        assert mail.statistics().tasks["taken"] == 30 + len(some)
        assert {task.attempt for task in mail.tasks(limit=100)} == {0, 1}


def test_transactions_of_one_connection_begin_one_after_the_other(tmp_path: Path) -> None:
    with Running(str(tmp_path / "tasks.db")) as server:
        with Raw(server.server.port()) as raw:
            raw.ask(call(1, "penstock.hello", -1, 0, codec.pack(talk.Hello(codec.VERSION, "idle", None))))
            raw.send(b"".join(call(number, "penstock.begin", number, 0, codec.pack(None)) for number in range(2, 12)))
            assert raw.answer().sync == 2
            (connection,) = server.server.doors["port"].connections
            assert list(connection._link._transactions) == [2]
            raw.send(call(20, "penstock.rollback", 20, 0, codec.pack(2)))
            assert {raw.answer().sync, raw.answer().sync} == {20, 3}
            assert list(connection._link._transactions) == [3]
        with penstock.connect(server.url) as q:
            q.create_tube("mail").put(1)


def _send(target: socket.socket, content: bytes) -> None:
    try:
        target.sendall(content)
    except OSError:
        pass  # that is what the test is about


def test_a_client_that_reads_slowly_gets_every_answer() -> None:
    with Running("memory:") as server, Raw(server.server.port()) as slow:
        slow.call("queue.create_tube", "mail", "fifo")
        slow.call("queue.tube.mail:put", "x" * 100_000)
        sender = threading.Thread(
            target=slow.send, args=(b"".join(call(number, "queue.tube.mail:peek", 1) for number in range(300)),)
        )
        sender.start()
        answers = [slow.answer() for _ in range(300)]
        sender.join()
        assert [answer.sync for answer in answers] == list(range(300))
        assert all(len(answer.data[0][2]) == 100_000 for answer in answers)


def test_more_takes_than_may_wait_are_refused_and_the_others_wait_on() -> None:
    with Running("memory:", limits=Limits(waiting=20)) as server, Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        raw.send(b"".join(call(number, "queue.tube.mail:take") for number in range(25)))
        refused = [raw.answer() for _ in range(5)]
        assert [answer.sync for answer in refused] == list(range(20, 25))
        assert all("20 callers wait here already" in answer.text for answer in refused)
        assert server.server.core.waiting == 20
        raw.send(call(99, "queue.tube.mail:put", "x"))
        assert sorted(raw.answer().sync for _ in range(2)) == [0, 99]
        assert server.server.core.waiting == 19


def test_more_takes_of_one_connection_than_may_wait_are_refused_and_others_may() -> None:
    with (
        Running("memory:", limits=Limits(waiting_each=5)) as server,
        Raw(server.server.port()) as raw,
        Raw(server.server.port()) as other,
    ):
        raw.call("queue.create_tube", "mail", "fifo")
        raw.send(b"".join(call(number, "queue.tube.mail:take") for number in range(7)))
        refused = [raw.answer() for _ in range(2)]
        assert [answer.sync for answer in refused] == [5, 6]
        assert all("wait" in answer.text for answer in refused)
        other.send(call(1, "queue.tube.mail:take"))
        until(lambda: server.server.core.waiting == 6)


def test_a_frame_takes_no_room_before_it_comes() -> None:
    with Running("memory:", limits=Limits(frame=1 << 30)) as server, Raw(server.server.port()) as raw:
        raw.call(STATE)
        (connection,) = server.server.doors["port"].connections
        raw.send(b"\xce\x3f\xff\xff\xff" + b"\x82")
        until(lambda: len(connection._unread) == 6)
        assert connection._unread.__sizeof__() < 1000


def test_the_answers_of_one_turn_are_one_write() -> None:
    with Running("memory:") as server, Raw(server.server.port()) as raw:
        raw.call(STATE)
        (connection,) = server.server.doors["port"].connections
        writes = []
        write = connection.write

        def watched() -> None:
            writes.append(len(connection._out))
            write()

        connection.write = watched
        raw.send(b"".join(frame(PING, number) for number in range(200)))
        assert [raw.answer().sync for _ in range(200)] == list(range(200))
        assert sum(writes) == 200
        assert len(writes) < 20  # a read may end in the middle of a frame
        assert loop().is_running()


def test_what_comes_before_a_login_is_short(tmp_path: Path) -> None:
    file, secret = str(tmp_path / "logins.toml"), new_token()
    logins.write_entries(file, {"ann": logins.new_entry("ann", [logins.new_right(["admin"], ["*"])], secret)})
    with Running("memory:", logins=file) as server:
        with Raw(server.server.port()) as raw:
            assert raw.ask(call(1, STATE, "x" * 1000)).error is not None
            raw.send(call(2, STATE, "x" * 5000))
            assert "over this server's limit of 4096 bytes" in raw.answer().text
            assert raw.is_closed()
        client = Client(server.server.port(), user="ann", password=secret)
        client.call("queue.create_tube", "mail", "fifo")
        assert client.call("queue.tube.mail:put", "x" * 5000)
        client.close()


def test_the_refusal_of_a_frame_that_is_too_long_arrives_while_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PARTING", 600.0)
    with Running("memory:", limits=Limits(frame=1000)) as server, Raw(server.server.port()) as raw:
        raw.send(b"\xce\x00\x40\x00\x00" + b"x" * (1 << 20))
        raw.send(b"x" * (1 << 20))
        assert "packet length 4194304 is over this server's limit of 1000 bytes" in raw.answer().text
        with pytest.raises(EOFError):
            raw.answer()


@pytest.mark.parametrize(
    ("op", "threaded"),
    [
        (ops.GetMoment(), False),
        (ops.ReleaseAll("mail"), True),
        (ops.TruncateTube("mail"), True),
        (ops.Kick("mail", 1), False),
        (ops.Kick("mail", None), True),
        (ops.Take("mail", 10, new_session(None)), False),
        (ops.Take("mail", 100_000, new_session(None)), True),
        (ops.Put("mail", (Draft("1"),) * 2000), True),
    ],
    ids=lambda it: type(it).__name__,
)
def test_what_may_take_long_is_not_done_in_the_loop(op: ops.Op[Any], threaded: bool) -> None:
    where: list[str] = []
    with Running("memory:") as server:
        core = server.server.core
        run(core.execute(ops.CreateTube(new_tube("mail", KINDS["fifo"], False, {}))))

        async def perform() -> bool:
            core.later(lambda: where.append(threading.current_thread().name))
            answered: asyncio.Future[Any] = core.loop.create_future()
            core.ask(op, answered.set_result)
            turn = core.turn
            await answered
            return turn.heavy

        assert run(perform()) is threaded
    assert not threaded or where == ["penstock server"]
