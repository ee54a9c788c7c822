"""Answers that come in pieces: how often they are looked at, and how much of them is copied."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from penstock.engines.remote import frames
from penstock.engines.remote.iproto_link import IprotoLink
from penstock.engines.remote.place import Place
from penstock.engines.remote.transport import Wire
from penstock.model.errors import EngineUnavailable
from penstock.wire import iproto

PIECE = 1000
LIMIT = 90


def frame(number: int, payload: bytes) -> bytes:
    """An answer as a server sends it."""
    header = msgspec.msgpack.encode({iproto.TYPE: 0, iproto.SYNC: number})
    body = msgspec.msgpack.encode({iproto.DATA: [False, payload]})
    return b"\xce" + len(header + body).to_bytes(4, "big") + header + body


class Piece(bytes):
    """Counts what is copied when pieces are added to each other."""

    copied = 0

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, bytearray):
            Piece.copied += len(self)  # grows in place
            return NotImplemented
        Piece.copied += len(other)
        return Piece(bytes(other) + bytes(self))

    def __add__(self, other: Any) -> Piece:
        Piece.copied += len(self)
        return Piece(bytes(self) + bytes(other))


class Script(Wire):
    """A connection on which pieces arrive, one by one."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def patience(self, seconds: float | None) -> None:
        pass

    def send(self, data: bytes) -> None:
        raise AssertionError("nothing is asked")

    def send_some(self, data: bytes) -> bytes:
        raise AssertionError("nothing is asked")

    def receive(self, size: int) -> bytes:
        return next(self._pieces, b"")

    def shut(self) -> None:
        pass

    def close(self) -> None:
        pass


class Hearing:
    """Writes down what a link brings."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bool, bytes]] = []
        self.over = threading.Event()

    def heard(self, link: Any, number: int, failed: bool, payload: bytes) -> None:
        self.answers.append((number, failed, payload))

    def lost(self, link: Any, why: str) -> None:
        self.over.set()


def split(data: bytes, size: int) -> list[bytes]:
    return [Piece(data[at : at + size]) for at in range(0, len(data), size)]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes there were each time that somebody looked where a frame ends."""
    seen: list[int] = []
    look = frames.frame_end

    def counted(data: bytes | bytearray, at: int) -> int | None:
        seen.append(len(data) - at)
        return look(data, at)

    monkeypatch.setattr(frames, "frame_end", counted)
    return seen


def hear(pieces: list[bytes]) -> list[tuple[int, bool, bytes]]:
    greeting = b"Tarantool 3.0.0 (Binary)".ljust(iproto.GREETING_SIZE)
    hearing = Hearing()
    IprotoLink(Place("penstock", "127.0.0.1", 1), hearing, Script([greeting, *pieces]))
    assert hearing.over.wait(LIMIT)
    return hearing.answers


def test_an_answer_of_many_pieces_is_copied_once_and_looked_at_twice(looks: list[int]) -> None:
    payload = bytes(1000 * PIECE)
    Piece.copied = 0
    assert hear(split(frame(7, payload), PIECE)) == [(7, False, payload)]
    assert Piece.copied < 2 * len(payload)
    assert len(looks) <= 4


@pytest.mark.parametrize("size", [1, 2, 4, 5, 6, 7, 33, 10_000])
def test_frames_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    payloads = [b"", b"x", bytes(300), b"", bytes(5000), b"y" * 70]
    sent = b"".join(frame(number, payload) for number, payload in enumerate(payloads, 1))
    assert hear(split(sent, size)) == [(number, False, payload) for number, payload in enumerate(payloads, 1)]


def test_what_came_before_nonsense_is_heard() -> None:
    cut = frames.Frames().cut(frame(1, b"x") + b"nonsense")
    assert next(cut)
    with pytest.raises(EngineUnavailable, match="does not speak as it should"):
        next(cut)
