"""A link over Tarantool's binary protocol: a request is a CALL of a function `penstock.<kind>`."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from base64 import b64decode
from collections import deque
from typing import Any

import msgspec

from penstock.engines.remote.frames import Frames
from penstock.engines.remote.link import CONNECT_SECONDS, Ear, Link
from penstock.engines.remote.place import Place
from penstock.engines.remote.transport import Plain, Tunnel, Wire, hint, refusal, stranger
from penstock.model.errors import AccessDenied, EngineUnavailable
from penstock.wire import codec, iproto

CHUNK = 256 * 1024
SMALL = 64 * 1024
"""More than this is sent by a thread of its own, so that no caller has to wait for the network."""
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
APART = 1 << 62
"""Numbers below 0 are counted from here: in this protocol there are none."""
PROBE = APART
"""The number of a request that is only to make a server speak."""
SILENT = 1.0
"""Seconds after which a server that has said nothing is asked something: ours greet at once."""
GREETING = b"Tarantool "
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[dict[int, int], dict[int, Any]]).decode
_heads: dict[str, bytes] = {}


def open_link(place: Place, ear: Ear) -> IprotoLink:
    """Connect and log in."""
    try:
        sock = socket.create_connection((place.host, place.port), CONNECT_SECONDS)
    except OSError as error:
        why = error.strerror or error
        raise EngineUnavailable(
            f"no server answers at {place.name}: {why}; does `penstock serve` run there, with this port?"
        ) from None
    wire: Wire | None = None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        wire = Tunnel(sock, place) if place.tls else Plain(sock)
        return IprotoLink(place, ear, wire)
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):
            raise EngineUnavailable(refusal(place, error)) from None
        raise


class IprotoLink(Link):
    """One socket, a thread that reads from it, and one that writes what is long."""

    def __init__(self, place: Place, ear: Ear, wire: Wire) -> None:
        self._place = place
        self._ear = ear
        self._wire = wire
        self._sending = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._writer: threading.Thread | None = None
        self._closed = False
        self._frames = Frames()
        self._greet()
        wire.patience(None)
        threading.Thread(target=self._read, name=f"penstock link to {place.name}", daemon=True).start()

    # -- the first words ---------------------------------------------------------------------------

    def _greet(self) -> None:
        greeting = self._first()
        while GREETING.startswith(greeting[: len(GREETING)]) and len(greeting) < iproto.GREETING_SIZE:
            greeting += self._more()
        if not greeting.startswith(GREETING):
            raise EngineUnavailable(stranger(self._place, greeting))
        said = list(self._frames.cut(greeting[iproto.GREETING_SIZE :]))
        if self._place.login is None:
            return
        salt = b64decode(greeting[64:108])[: iproto.LOGIN_SALT_SIZE]
        proof = _scramble(self._place.password(), salt)
        body = _encode({iproto.USER: self._place.login, iproto.TUPLE: ["chap-sha1", proof]})
        header = _encode({iproto.TYPE: iproto.AUTH, iproto.SYNC: 0})
        self._wire.send(_sized(header + body))
        answer: dict[int, int] = {iproto.SYNC: PROBE}
        text: dict[int, Any] = {}
        while answer[iproto.SYNC] == PROBE:
            while not said:
                said.extend(self._frames.cut(self._more()))
            answer, text = _decode(said.pop(0))
        if answer[iproto.TYPE]:
            raise AccessDenied(
                f"{self._place.name} does not let {self._place.login!r} in: {text.get(iproto.ERROR_TEXT)}"
            )

    def _first(self) -> bytes:
        """The first bytes of the server. One that is silent may be waiting for ours: it is asked something."""
        self._wire.patience(SILENT)
        try:
            return self._more()
        except TimeoutError:
            self._wire.patience(CONNECT_SECONDS)
            self._wire.send(_sized(_encode({iproto.TYPE: iproto.PING, iproto.SYNC: PROBE}) + _encode({})))
            return self._more()
        finally:
            self._wire.patience(CONNECT_SECONDS)

    def _more(self) -> bytes:
        data = self._wire.receive(CHUNK)
        if not data:
            name = self._place.name
            raise EngineUnavailable(
                f"the server at {name} closed the connection before it was logged in{hint(self._place)}"
            )
        return data

    # -- requests ----------------------------------------------------------------------------------

    def send(self, number: int, seen: int, kind: str, payload: bytes) -> None:
        head = _heads.get(kind)
        if head is None:
            head = _heads[kind] = b"\x82\x22" + _encode(f"penstock.{kind}") + b"\x21\x93"
        frame = (
            b"\x82\x00\x0a\x01"
            + _encode(number if number > 0 else APART - number)
            + head
            + _encode(number)
            + _encode(seen)
            + iproto.bin_header(len(payload))
            + payload
        )
        self._push(_sized(frame))

    def _push(self, frame: bytes) -> None:
        with self._sending:
            if self._closed:
                return
            if not self._unsent and len(frame) <= SMALL:
                try:
                    rest = self._wire.send_some(frame)
                except OSError:
                    self._wire.shut()
                    return
                if not rest:
                    return
                frame = rest
            self._unsent.append(frame)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="penstock writer", daemon=True)
                self._writer.start()

    def _write(self) -> None:
        """Send what is left, and end."""
        while True:
            with self._sending:
                if not self._unsent or self._closed:
                    self._writer = None
                    return
                frame = self._unsent[0]
            try:
                for start in range(0, len(frame), CHUNK):
                    self._wire.send(frame[start : start + CHUNK])
                    self.moved_at = time.monotonic()
            except OSError:
                self._wire.shut()
                return
            with self._sending:
                self._unsent.popleft()

    # -- answers -----------------------------------------------------------------------------------

    def _read(self) -> None:
        why = "the server closed it"
        frames = self._frames
        try:
            while data := self._wire.receive(CHUNK):
                self.moved_at = time.monotonic()
                for frame in frames.cut(data):
                    self._hear(frame)
        except OSError as error:
            why = error.strerror or str(error)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        self.close()
        self._ear.lost(self, why)

    def _hear(self, frame: bytes) -> None:
        header, body = _decode(frame)
        code, number = header[iproto.TYPE], header[iproto.SYNC]
        if number == PROBE:
            return
        number = number if number < APART else APART - number
        if code in (0, iproto.CHUNK):
            failed, payload = body[iproto.DATA]
            self._ear.heard(self, number if code == 0 else 0, failed, payload)
            return
        text = f"{self._place.name} refused a request: {body.get(iproto.ERROR_TEXT)}"
        denied = code & 0xFFF == iproto.ACCESS_DENIED
        if denied and self._place.login is None:
            text += "; if it needs a login, that is in the URL: penstock://NAME:SECRET@host:port"
        error = AccessDenied(text) if denied else EngineUnavailable(text)
        self._ear.heard(self, number, True, codec.encode_error(error))

    def close(self) -> None:
        with self._sending:
            if not self._closed:
                self._closed = True
                self._wire.close()

    def disown(self) -> None:
        self._closed = True
        self._wire.disown()


def _sized(frame: bytes) -> bytes:
    return b"\xce" + len(frame).to_bytes(4, "big") + frame


def _scramble(secret: str, salt: bytes) -> bytes:
    """The proof of chap-sha1 that one knows the secret."""
    once = hashlib.sha1(secret.encode()).digest()
    twice = hashlib.sha1(once).digest()
    mask = hashlib.sha1(salt + twice).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))
