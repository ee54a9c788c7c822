"""A link over gRPC: one stream of frames both ways."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

from penstock.engines.remote.link import CONNECT_SECONDS, Ear, Link
from penstock.engines.remote.place import Place
from penstock.engines.remote.transport import hint, untrusted
from penstock.model.errors import EngineUnavailable, UsageError

# gRPC writes lines of its own about every handshake that fails. It looks here when it is loaded, and no later.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
try:
    import grpc

    from penstock.wire import status
    from penstock.wire._generated import penstock_pb2 as pb
    from penstock.wire._generated import penstock_pb2_grpc
except ImportError as missing:
    raise UsageError(f"grpc:// URLs need the extra `grpc`: pip install 'penstock[grpc]' ({missing})") from None

OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # links do not share a connection
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_retries", 0),
)
_pid: int | None = None
"""The process that gRPC was started in; it does not work in children of it."""
_inherited: list[Any] = []
"""Links of the parent, kept so that nothing of theirs is ever freed in a child."""


def open_link(place: Place, ear: Ear) -> GrpcLink:
    """Connect and log in."""
    global _pid
    if _pid is None:
        _pid = os.getpid()
    if _pid != os.getpid():
        raise UsageError(
            "gRPC does not work in a process that was forked after it had been used: connect in the child alone, "
            "start children with 'spawn', or use the penstock:// URL of the same server"
        )
    address = place.address
    if place.tls:
        channel = grpc.secure_channel(address, _credentials(place), OPTIONS)
    else:
        channel = grpc.insecure_channel(address, OPTIONS)
    try:
        return GrpcLink(place, ear, channel)
    except BaseException:
        channel.close()
        raise


def _credentials(place: Place) -> Any:
    try:
        ca, cert, key = (
            None if name is None else Path(name).read_bytes() for name in (place.ca, place.cert, place.key)
        )
    except OSError as error:
        raise UsageError(f"a certificate for {place.name} cannot be read: {error}") from None
    return grpc.ssl_channel_credentials(ca, key, cert)


def _why(place: Place, details: str) -> str:
    """What gRPC says of a server that it cannot talk to, with what to change in its URL."""
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification" in details:
        return untrusted(place, details, "Hostname" in details)
    if "WRONG_VERSION_NUMBER" in details:
        return f"what listens at {place.name} does not encrypt: leave tls=on out of the URL, or use another port"
    if "parsing HTTP/2" in details:
        return f"what listens at {place.name} does not speak gRPC: that has a port of its own ({details})"
    closed = "Socket closed" in details or "handshake" in details
    more = hint(place) if closed else "; does `penstock serve` run there, with this as its --grpc-port?"
    return f"no server answers at {place.name}: {details}{more}"


class GrpcLink(Link):
    """One channel with one stream, and a thread that reads from it."""

    patience = 60.0  # only whole frames are seen to move; gRPC itself notices a machine that is gone

    def __init__(self, place: Place, ear: Ear, channel: Any) -> None:
        self._ear = ear
        self._channel = channel
        self._unsent: queue.SimpleQueue[pb.Frame | None] = queue.SimpleQueue()
        self._closed = False
        login = () if place.login is None else (("authorization", f"Bearer {place.login}:{place.password()}"),)
        stub = penstock_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        self._frames = stub.Engine(iter(self._unsent.get, None), metadata=login)
        self._come_in(place)
        threading.Thread(target=self._read, name=f"penstock link to {place.name}", daemon=True).start()

    def _come_in(self, place: Place) -> None:
        """Wait until the server has let the client in, or has not."""
        patience = threading.Timer(CONNECT_SECONDS, self._frames.cancel)
        patience.daemon = True
        patience.start()
        try:
            # A refusal has no such word; whether the stream is over may be known only later.
            let_in = any(name == "penstock" for name, _ in self._frames.initial_metadata())
        finally:
            patience.cancel()
        if not let_in:
            self._unsent.put(None)
            error = status.error_of(self._frames)
            if isinstance(error, EngineUnavailable):
                raise EngineUnavailable(_why(place, str(self._frames.details())))
            raise error

    def send(self, number: int, seen: int, kind: str, payload: bytes) -> None:
        self._unsent.put(pb.Frame(number=number, seen=seen, kind=kind, payload=payload))

    def _read(self) -> None:
        why = "the server closed it"
        try:
            for frame in self._frames:
                self.moved_at = time.monotonic()
                self._ear.heard(self, frame.number, frame.failed, frame.payload)
        except grpc.RpcError as error:
            why = f"{error.code().name}, {error.details()}"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        self.close()
        self._ear.lost(self, why)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._unsent.put(None)
            self._frames.cancel()
            self._channel.close()

    def disown(self) -> None:
        self._closed = True
        _inherited.append(self)
