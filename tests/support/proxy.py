"""What may stand between a client and its PostgreSQL: a line that fails when told to, and a pooler.

Both understand as much of the protocol as they need: where a message ends, and what statement it is about.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from tests.support.reservation import free_port, give_back

LIMIT = 60.0
REQUEST, REPLY = "request", "reply"
"""What is lost: the request before the server has it, or the reply after the server has done it."""


def read_exactly(stream: socket.socket, number: int) -> bytes:
    """So many bytes; EOFError at the end of the stream."""
    parts = bytearray()
    while len(parts) < number:
        try:
            part = stream.recv(number - len(parts))
        except OSError:
            part = b""
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def read_startup(stream: socket.socket) -> bytes:
    """The first packet of a client, which has no type."""
    head = read_exactly(stream, 4)
    return head + read_exactly(stream, struct.unpack("!I", head)[0] - 4)


def read_message(stream: socket.socket) -> tuple[bytes, bytes]:
    """A message: its type, and all of it."""
    head = read_exactly(stream, 5)
    return head[:1], head + read_exactly(stream, struct.unpack("!I", head[1:])[0] - 4)


def reset(stream: socket.socket) -> None:
    """Close so that the other side sees a reset, as when a machine is gone."""
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    stream.close()


class Statements:
    """Which statement a message of a client performs."""

    def __init__(self) -> None:
        self._named: dict[bytes, bytes] = {}

    def performed(self, kind: bytes, message: bytes) -> bytes | None:
        body = message[5:]
        if kind == b"Q":
            return body
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._named[name] = text
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._named.get(name)
        return None


class Listening(ABC):
    """A server on 127.0.0.1 with a thread for each client."""

    def __init__(self) -> None:
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.port = free_port()
        self.open()

    def open(self) -> None:
        """Let clients in, on the same port as before."""
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self._accepting = threading.Thread(target=self._accept, args=(self._socket,), daemon=True)
        self._accepting.start()

    def shut(self) -> None:
        """Let nobody in: the next to call is refused."""
        listening, self._socket = self._socket, None
        if listening is not None:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()
            self._accepting.join()  # the last client to be let in is known now

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._clients.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            self.serve(client)
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self._clients.discard(client)
            client.close()

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """What is done with a connection, until it ends."""

    def close(self) -> None:
        self.shut()
        give_back(self.port)
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            reset(client)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def url(self, database: str = "postgres", **options: Any) -> str:
        # What is encrypted cannot be understood.
        options = {"sslmode": "disable", "gssencmode": "disable", **options}
        query = urlencode(options, quote_via=quote)
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database, safe='')}?{query}"


def call(port: int) -> socket.socket:
    server = socket.create_connection(("127.0.0.1", port), LIMIT)
    server.settimeout(None)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


class Proxy(Listening):
    """A line to a server. It can be told to fail at the next statement that has a text in it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._fault: tuple[bytes, str] | None = None
        self._struck = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()
        self._lines: set[tuple[socket.socket, socket.socket]] = set()
        super().__init__()

    def lose(self, what: str, at: str) -> None:
        """Break the connection on which the next statement with this text is performed."""
        self._struck.clear()
        self._fault = (at.encode(), what)

    def wait(self) -> None:
        """Until that has happened."""
        assert self._struck.wait(LIMIT), "no such statement comes"

    def stall(self) -> None:
        """Replies are held back until go_on()."""
        self._flowing.clear()

    def go_on(self) -> None:
        self._flowing.set()

    def break_all(self) -> None:
        """Every connection is reset."""
        with self._lock:
            streams = [*self._clients, *(server for _, server in self._lines)]
        for stream in streams:
            reset(stream)

    def serve(self, client: socket.socket) -> None:
        server = call(self._to)
        line = (client, server)
        swallowing = threading.Event()
        with self._lock:
            self._lines.add(line)
        try:
            server.sendall(read_startup(client))
            threading.Thread(target=self._reply, args=(*line, swallowing), daemon=True).start()
            self._forward(client, server, swallowing)
        finally:
            with self._lock:
                self._lines.discard(line)
            if not swallowing.is_set():
                reset(server)

    def _forward(self, client: socket.socket, server: socket.socket, swallowing: threading.Event) -> None:
        statements = Statements()
        while True:
            kind, message = read_message(client)
            text = statements.performed(kind, message)
            with self._lock:
                fault = self._fault
                struck = fault is not None and text is not None and fault[0] in text
                if struck:
                    self._fault = None
            if struck and fault is not None:
                if fault[1] == REQUEST:
                    reset(client)
                    self._struck.set()
                    return
                swallowing.set()
            server.sendall(message)

    def _reply(self, client: socket.socket, server: socket.socket, swallowing: threading.Event) -> None:
        try:
            while True:
                kind, message = read_message(server)
                self._flowing.wait(LIMIT)
                if not swallowing.is_set():
                    client.sendall(message)
                elif kind == b"Z":
                    reset(client)
                    self._struck.set()
                    return
        except (EOFError, OSError):
            pass
        finally:
            reset(server)
            reset(client)


class Pooler(Listening):
    """Lends a server's connection to a client for one transaction, and another one for the next."""

    def __init__(self, port: int, number: int = 2) -> None:
        self._to = port
        self._number = number
        self._made = 0
        self._idle: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._servers: list[socket.socket] = []
        self._greeting = b""
        self._greeted = threading.Event()
        self.lent = 0
        """How many transactions there were."""
        super().__init__()

    def serve(self, client: socket.socket) -> None:
        startup = read_startup(client)
        self._grow(startup)
        self._greeted.wait(LIMIT)  # who has come when there were enough of them may be ahead of the first
        client.sendall(self._greeting)
        server: socket.socket | None = None
        try:
            while True:
                kind, message = read_message(client)
                if kind == b"X":
                    return
                if server is None:
                    server = self._idle.get(timeout=LIMIT)
                    self.lent += 1
                server.sendall(message)
                if kind in b"QScf" and self._answer(client, server):
                    self._idle.put(server)
                    server = None
        finally:
            if server is not None:
                reset(server)
                with self._lock:
                    self._made -= 1

    def _grow(self, startup: bytes) -> None:
        with self._lock:
            if self._made >= self._number:
                return
            self._made += 1
        server = call(self._to)
        self._servers.append(server)
        server.sendall(startup)
        greeting = b"".join(message for _, message in until_ready(server))
        self._greeting = self._greeting or greeting
        self._greeted.set()
        self._idle.put(server)

    def _answer(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass on a reply; True if no transaction is open after it."""
        for kind, message in until_ready(server):
            client.sendall(message)
            if kind == b"Z":
                return message[5:] == b"I"
        return False

    def close(self) -> None:
        super().close()
        for server in self._servers:
            reset(server)


def until_ready(server: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Messages of a server until it waits for the client."""
    while True:
        kind, message = read_message(server)
        yield kind, message
        if kind in (b"Z", b"G"):
            return
