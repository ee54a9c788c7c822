"""Frames that nobody would send: whatever comes, the server goes on for the others."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.server.raw import PING, Raw, call, frame, framed, packed
from tests.support.servers import Running
from tests.worker.bench import until

from penstock.server.connection import Connection
from penstock.server.settings import Limits

SEEDS = range(8)
FRAMES = 120
NAMES = (
    "queue.tube.fuzz:put",
    "queue.tube.fuzz:take",
    "queue.tube.fuzz:ack",
    "queue.tube.fuzz:release",
    "queue.tube.fuzz:touch",
    "queue.tube.fuzz:bury",
    "queue.tube.fuzz:kick",
    "queue.tube.fuzz:peek",
    "queue.tube.fuzz:delete",
    "queue.statistics",
    "queue.identify",
    "queue.cfg",
    "queue.tube",
    "queue.create_tube",
    "penstock.hello",
    "penstock.do",
    "penstock.wait",
    "penstock.begin",
    "penstock.nothing",
    "",
    ":",
    "queue.tube.:put",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with Running("memory:", limits=Limits(frame=1 << 16, unsent=1 << 20)) as running:
        with Raw(running.server.port()) as raw:
            raw.call("queue.create_tube", "fuzz", "fifottl")
            raw.call("queue.create_tube", "calm", "fifo")
        yield running


def value(random: random.Random, depth: int = 3) -> Any:
    """Anything that msgpack has."""
    kinds: list[Any] = [
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.choice([0, 1, -1, 5, 1 << 31, 1 << 63, (1 << 64) - 1, -(1 << 63)]),
        lambda: random.choice([0.0, -0.0, 1.5, -1.0, 1e300, float("inf"), float("nan")]),
        lambda: random.choice(["", "x", "queue.tube.fuzz:put", "é" * 40, "\0", "x" * 300]),
        lambda: random.randbytes(random.choice([0, 1, 16, 20, 300])),
    ]
    if depth:
        kinds.append(lambda: [value(random, depth - 1) for _ in range(random.randrange(4))])
        kinds.append(lambda: {random.choice(["ttl", "pri", "x"]): value(random, depth - 1)})
        kinds.append(lambda: {random.choice([0x21, 0x22, 0x23, 0x27, 0x30, 1]): value(random, depth - 1)})
    return random.choice(kinds)()


def asked(random: random.Random, number: int) -> bytes:
    """A request that may be right: a function that exists with arguments that fit only by chance."""
    if random.random() < 0.7:
        args = [value(random) for _ in range(random.randrange(4))]
        if args and random.random() < 0.5:
            args[0] = random.choice([0, 0.01, number])
        return call(number, random.choice(NAMES), *args, kind=random.choice([10, 10, 6]))
    kind = random.choice([1, 6, 7, 8, 10, 64, 73, 99, 0, 128])
    return frame(kind, number, {random.choice([0x10, 0x12, 0x20, 0x21, 0x22, 0x23, 0x27]): value(random)})


def spoiled(random: random.Random, content: bytes) -> bytes:
    """The same, with bytes changed, left out, added or cut off; the length is told as it then is, mostly."""
    inner = bytearray(content[5:])
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(inner)) if inner else 0
        match random.randrange(4):
            case 0 if inner:
                inner[at] = random.randrange(256)
            case 1:
                inner[at:at] = random.randbytes(random.randrange(1, 6))
            case 2:
                del inner[at : at + random.randrange(1, 9)]
            case _:
                del inner[at:]
    return framed(bytes(inner)) if random.random() < 0.95 else random.randbytes(random.randrange(1, 60))


def attack(port: int, seed: int) -> None:
    """Send frames on connections of one's own."""
    rng = random.Random(seed)
    sent = 0
    while sent < FRAMES:
        with Raw(port) as raw, suppress(EOFError, ConnectionError):
            raw.send(frame(PING, 1))
            while sent < FRAMES:
                content = asked(rng, sent)
                if rng.random() < 0.6:
                    content = spoiled(rng, content)
                sent += 1
                if rng.random() < 0.03:
                    raw.send(content[: rng.randrange(len(content)) if content else 0])
                    break  # closed in the middle of a frame
                raw.send(content)
            with suppress(TimeoutError):
                raw.socket.settimeout(0.05)  # some calls are never answered
                while True:
                    raw.answer()


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.exhaustive if n > 2 else ()) for n in SEEDS])
def test_random_frames_hurt_nobody_else(server: Running, seed: int) -> None:
    port = server.server.port()
    with Raw(port) as calm:
        calm.call("queue.tube.calm:put", "before")
        attacker = threading.Thread(target=attack, args=(port, seed))
        attacker.start()
        cycles = 0
        while attacker.is_alive() or not cycles:
            calm.call("queue.tube.calm:put", cycles)
            [[task_id, state, _]] = calm.call("queue.tube.calm:take", 10)
            assert state == "t"
            assert calm.call("queue.tube.calm:ack", task_id)[0][1] == "-"
            cycles += 1
        attacker.join()
        [[_, _, last]] = calm.call("queue.tube.calm:take", 10)
        assert last == cycles - 1
        calm.call("queue.tube.calm:truncate")
    with Raw(port) as other:
        assert other.ask(frame(PING, 2)).sync == 2


def test_the_attacks_are_attacks(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much of what is sent is answered, whether the client is there to hear it or not."""
    answers, write = list[bytes](), Connection.write

    def counted(connection: Connection) -> None:
        answers.extend(connection._out)
        write(connection)

    monkeypatch.setattr(Connection, "write", counted)
    attack(server.server.port(), 99)
    until(lambda: len(answers) > FRAMES // 4)


@pytest.mark.parametrize("size", [*range(12), 40, 60])
def test_a_frame_that_is_cut_by_the_end_of_a_connection_is_forgotten(server: Running, size: int) -> None:
    content = call(1, "queue.tube.calm:put", "x" * 40)
    with Raw(server.server.port()) as raw:
        raw.send(content[:size])
    with Raw(server.server.port()) as raw:
        assert raw.call("queue.tube.calm:take", 0) == []


def test_other_protocols_are_no_harm(server: Running) -> None:
    port = server.server.port()
    with Raw(port) as web, Raw(port) as tls:
        web.send(b"GET / HTTP/1.1\r\nHost: queue\r\nUser-Agent: a browser that has lost its way\r\n\r\n")
        tls.send(bytes.fromhex("160301020001000200030303").ljust(100, b"\x07"))
        answer = web.answer()  # G is a length of 71, and what follows is no header
        assert answer.error == 20
        answer = tls.answer()
        assert answer.error == 20
        with Raw(port) as raw:
            assert raw.ask(frame(PING, 2)).code == 0


def test_packed_values_of_any_kind_are_refused_or_come_back(server: Running) -> None:
    rng = random.Random(5)
    with Raw(server.server.port()) as raw:
        for number in range(300):
            given = value(rng)
            answer = raw.ask(call(number, "queue.tube.calm:put", given))
            assert answer.sync == number
            if answer.error is None:
                assert packed(answer.data[0][2]) == packed(given)
        raw.call("queue.tube.calm:truncate")
