"""The door of gRPC: verbs in batches for other languages, and grpc:// URLs of this library."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2_grpc

from penstock.model.errors import UsageError
from penstock.server.grpc_calls import Desk, granting, handler
from penstock.server.grpc_engine import EngineStream
from penstock.server.grpc_health import Health
from penstock.server.grpc_streams import SessionStream, TakeStream
from penstock.server.grpc_verbs import VERBS, take
from penstock.server.listening import resolve
from penstock.server.peer import Peer
from penstock.server.server import Door
from penstock.wire._generated import penstock_pb2 as pb
from penstock.wire._generated import penstock_pb2_grpc

if TYPE_CHECKING:
    from penstock.server.server import Server

SERVICE = pb.DESCRIPTOR.services_by_name["Queue"].full_name
PING_MS = 20_000
PING_PATIENCE_MS = 10_000
"""A client machine that died is noticed within both."""
CLOSING_SECONDS = 5.0
"""How long calls have that were asked to end."""
STREAMS: dict[str, type[SessionStream] | type[TakeStream] | type[EngineStream]] = {
    "Session": SessionStream,
    "TakeStream": TakeStream,
    "Engine": EngineStream,
}


class Queue(penstock_pb2_grpc.QueueServicer):
    """All verbs of a server."""

    def __init__(self, desk: Desk) -> None:
        for name, verb in VERBS.items():
            setattr(self, name, handler(desk, verb))
        for name, stream in STREAMS.items():
            setattr(self, name, stream(desk).serve)


class Services:
    """What the made stubs add methods to. None is registered with gRPC: it finds them by name as well.

    It waits for the next call of each registered method apart, and begins all these waits anew after every call.
    """

    def __init__(self, listener: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = listener.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Leave it at what has been added."""


class GrpcDoor(Door):
    """Listens for gRPC."""

    def __init__(self, server: Server, listener: grpc.aio.Server, port: int) -> None:
        self.port = port
        self.desk = Desk(server)
        self._listener = listener
        self._health = Health(server.core)
        self._closing_seconds = min(CLOSING_SECONDS, server.settings.drain_seconds / 2)
        services = Services(listener)
        takes = {"Take": _take(self.desk)}  # a method is served by the first that knows it
        services.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, takes),))
        penstock_pb2_grpc.add_QueueServicer_to_server(Queue(self.desk), services)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, services)

    @property
    def connections(self) -> list[Peer]:
        """Streams of sessions, and engines of the library."""
        return list(self.desk.inside)

    async def start(self) -> None:
        """Let clients in."""
        await self._listener.start()

    async def stop_listening(self) -> None:
        """Let no new sessions in; those that are there can still finish their tasks."""
        self.desk.leaving = True
        self._health.leave()

    async def close(self) -> None:
        """End waits and streams, answer what was asked, and close all connections."""
        await self.stop_listening()
        self.desk.end_waits()
        await self._listener.stop(self._closing_seconds)
        await self.desk.settled()

    async def retire(self, seconds: float) -> None:
        """Clients go over to the process that listens now; sessions are resumed there."""
        self.desk.retiring = True
        for link in tuple(self.desk.links):
            link.bye()
        self._health.leave()
        stopping = asyncio.ensure_future(self._listener.stop(seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stopping), seconds / 2)
        self.desk.end_waits()
        await stopping
        await self.desk.settled()


def _take(desk: Desk) -> Any:
    return grpc.unary_stream_rpc_method_handler(
        granting(desk, take),
        request_deserializer=pb.TakeRequest.FromString,
        response_serializer=pb.TakeReply.SerializeToString,
    )


async def open_door(server: Server) -> GrpcDoor:
    """Listen on the port of the settings."""
    limits = server.settings.limits
    listener = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limits.frame),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", limits.calls),
            ("grpc.so_reuseport", 1),  # a process that takes over listens beside the one that goes
            ("grpc.keepalive_time_ms", PING_MS),
            ("grpc.keepalive_timeout_ms", PING_PATIENCE_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", PING_MS // 4),
        ],
        maximum_concurrent_rpcs=limits.waiting + limits.connections,
    )
    reserved = reserve(server)
    host, port = reserved.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    tls = server.settings.tls
    if tls is None:
        listener.add_insecure_port(address)
    else:
        cert, key, ca = tls.contents()
        credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=ca is not None)
        listener.add_secure_port(address, credentials)
    door = GrpcDoor(server, listener, port)
    await door.start()
    return door


def reserve(server: Server) -> socket.socket:
    """A socket that has the port and does not listen: gRPC opens its own beside it, and can be given none.

    It is handed over to the next process, which finds the port taken by itself alone.
    """
    if "grpc_port" in server.sockets:
        return server.sockets["grpc_port"]
    settings = server.settings
    family, address = resolve(settings.host, settings.grpc_port or 0)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as free:  # refused if anybody has the port, shared or not
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(address)
            address = free.getsockname()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise UsageError(
            f"nobody can listen on {settings.host}:{settings.grpc_port} ({error.strerror}); another port, or 0 for a "
            "free one"
        ) from None
    server.sockets["grpc_port"] = made
    return made
