"""The door for those who watch a server: /metrics for Prometheus, /health and /ready."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.model import ops
from penstock.model.errors import AccessDenied, PenstockError, UsageError
from penstock.server.auth import Login
from penstock.server.core import log
from penstock.server.server import Door, Server

if TYPE_CHECKING:
    from penstock.server.metrics import Metrics

MAX_HEAD = 16 * 1024
"""Bytes of a request; nothing that is answered here needs more."""
MAX_CONNECTIONS = 100
PATIENCE = 10.0
"""Seconds that a client has for its request, and for reading the answer."""
STORE_PATIENCE = 3.0
TEXT = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    body: str
    kind: str = TEXT
    more: tuple[str, ...] = ()

    def packed(self, with_body: bool) -> bytes:
        """As it goes over the wire."""
        body = self.body.encode()
        head = [
            f"HTTP/1.1 {self.status} {REASONS[self.status]}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *self.more,
        ]
        return "\r\n".join([*head, "", ""]).encode() + (body if with_body else b"")


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, text: str, *more: str) -> None:
        super().__init__(text)
        self.answer = Answer(status, text + "\n", more=more)


class HttpDoor(Door):
    """Answers one request a connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._metrics: Metrics | None = None

    async def listen(self) -> None:
        """Let clients connect."""
        sock = self.server.listener("http_port")
        tls = self.server.settings.tls
        self.port = sock.getsockname()[1]
        self._listener = await asyncio.start_server(
            self._serve,
            sock=sock,
            ssl=tls.context(demand=False) if tls else None,
            limit=MAX_HEAD,
            ssl_handshake_timeout=PATIENCE if tls else None,
        )

    async def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def close(self) -> None:
        if self._open:
            await asyncio.wait(self._open, timeout=PATIENCE)

    async def retire(self, seconds: float) -> None:
        await self.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) <= MAX_CONNECTIONS:
                async with asyncio.timeout(2 * PATIENCE):
                    await self._converse(reader, writer)
        except (OSError, TimeoutError):
            pass
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = "GET"
        try:
            async with asyncio.timeout(PATIENCE):
                head = await _head(reader)
        except OSError:  # a probe that only connects, or a client that is slow or gone: nothing was asked
            return
        try:
            method, path, headers = _request(head)
            answer = await self._answer(path, headers, writer.get_extra_info("peercert"))
        except Refused as refused:
            answer = refused.answer
            if answer.status in (401, 403):
                host, *_ = writer.get_extra_info("peername") or ("somebody",)
                log.warning("%s was refused over HTTP: %s", host, refused)
        except PenstockError as error:
            answer = Answer(503, f"{error}\n")
        except Exception:
            log.exception("a request over HTTP failed")
            answer = Answer(503, "this server has made a mistake; its log says which\n")
        writer.write(answer.packed(method != "HEAD"))
        await writer.drain()

    async def _answer(self, path: str, headers: Mapping[str, str], certificate: object) -> Answer:
        if path == "/health":
            return Answer(200, "alive\n")
        if path == "/ready":
            return await self._ready()
        if path == "/metrics":
            self._check(self._login(headers, certificate))
            return await self._told()
        raise Refused(404, "there are /metrics, /health and /ready")

    async def _ready(self) -> Answer:
        try:
            async with asyncio.timeout(STORE_PATIENCE):
                await self.server.core.execute(ops.GetMoment())
        except TimeoutError:
            raise Refused(503, f"the store has not answered within {STORE_PATIENCE:g} s") from None
        return Answer(200, "ready\n")

    async def _told(self) -> Answer:
        if self._metrics is None:
            try:
                from penstock.server.metrics import Metrics
            except UsageError as error:  # which says what to install
                raise Refused(503, str(error)) from None
            self._metrics = Metrics(self.server)
        told = await asyncio.get_running_loop().run_in_executor(None, self._metrics.text)
        return Answer(200, told, self._metrics.KIND)

    def _login(self, headers: Mapping[str, str], certificate: object) -> Login:
        """Who asks: by name and secret (HTTP Basic), or by a client certificate."""
        tls = self.server.settings.tls
        if tls is not None and tls.ca is not None and not certificate:
            raise Refused(403, "metrics need a client certificate, as everything else here does")
        given = headers.get("authorization")
        if given is None:
            try:
                return self.server.welcome(certificate)
            except AccessDenied as error:
                raise Refused(403, str(error)) from None
        scheme, _, value = given.partition(" ")
        try:
            if scheme.lower() != "basic":
                raise ValueError
            name, _, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (ValueError, binascii.Error):
            raise Refused(400, "Authorization must be Basic, with the name of a login and its secret") from None
        try:
            return self.server.logins.token(name, secret)
        except AccessDenied as error:
            raise Refused(401, str(error), 'WWW-Authenticate: Basic realm="penstock"') from None

    def _check(self, login: Login) -> None:
        if login.unknown:
            raise Refused(401, "metrics need a login with the role read", 'WWW-Authenticate: Basic realm="penstock"')
        try:
            login.check(ops.GetStatistics())
        except AccessDenied as error:
            raise Refused(403, str(error)) from None


async def _head(reader: asyncio.StreamReader) -> bytes:
    """What a request begins with; nothing if that is too long, or ends too early, or is of another protocol."""
    try:
        first = await reader.readexactly(1)
        # Who waits for an answer in its own protocol would send no more than that.
        return first + await reader.readuntil(b"\r\n\r\n") if first.isalpha() else b""
    except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        return b""


def _request(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers."""
    try:
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, version = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if not version.startswith("HTTP/1."):
            raise ValueError
    except ValueError:
        raise Refused(400, "this is no request") from None
    if method not in ("GET", "HEAD"):
        raise Refused(405, "only GET and HEAD", "Allow: GET, HEAD")
    return method, target.partition("?")[0], headers


async def open_door(server: Server) -> Door:
    """Listen for HTTP."""
    door = HttpDoor(server)
    await door.listen()
    return door
