"""A line between a client and a server that passes on any bytes."""

from __future__ import annotations

import socket
import threading

from tests.support.proxy import LIMIT, Listening, call, reset


class Relay(Listening):
    """What the server says goes on in pieces, and only while it flows."""

    def __init__(self, port: int, piece: int = 65536) -> None:
        self._to = port
        self._piece = piece
        self.flowing = threading.Event()
        self.flowing.set()
        super().__init__()

    def serve(self, client: socket.socket) -> None:
        server = call(self._to)
        threading.Thread(target=self._reply, args=(client, server), daemon=True).start()
        try:
            while data := client.recv(65536):
                self.said()
                server.sendall(data)
        finally:
            reset(server)

    def said(self) -> None:
        """The client has said something."""

    def _reply(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := server.recv(self._piece):
                self.flowing.wait(LIMIT)
                client.sendall(data)
        except OSError:
            pass
        finally:
            reset(client)
