"""The bytes of a link: as they are, or encrypted.

One thread reads and others write at the same time, which a socket of the ssl module is not made for. So encryption is
a filter beside the socket, and nobody waits for the network while it is at work.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from abc import ABC, abstractmethod

from penstock.engines.remote.place import Place
from penstock.model.errors import UsageError
from penstock.wire.certificates import fault

CHUNK = 256 * 1024
OTHER_NAMES = (62, 64)
"""What OpenSSL says of a certificate that is for another host, or another address."""
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
"""What it says of bytes that are not encrypted."""


class Wire(ABC):
    """Bytes in and out."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def patience(self, seconds: float | None) -> None:
        """How long to wait for bytes."""
        self._socket.settimeout(seconds)

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send all, however long that takes."""

    @abstractmethod
    def send_some(self, data: bytes) -> bytes:
        """Send what goes out without waiting; answers the rest."""

    @abstractmethod
    def receive(self, size: int) -> bytes:
        """Some bytes; none at the end."""

    def shut(self) -> None:
        """Wake who reads: the connection is over."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Let go of it."""
        self.shut()
        self._socket.close()

    def disown(self) -> None:
        """Forget it in a child; the parent's is as it was."""
        os.close(self._socket.detach())


class Plain(Wire):
    """Bytes as they are."""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_some(self, data: bytes) -> bytes:
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return data
        return b"" if sent == len(data) else data[sent:]

    def receive(self, size: int) -> bytes:
        return self._socket.recv(size)


class Tunnel(Wire):
    """Encrypted bytes."""

    def __init__(self, sock: socket.socket, place: Place) -> None:
        super().__init__(sock)
        self._lock = threading.Lock()
        """Of the filter; never held while waiting for the network, or both ends might wait for each other."""
        self._sending = threading.Lock()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context(place).wrap_bio(self._in, self._out, server_hostname=place.host)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._socket.sendall(self._out.read())
                self._feed(self._socket.recv(CHUNK))
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the server's log shall say why, too
                    self._socket.sendall(self._out.read())
                raise
        self._socket.sendall(self._out.read())

    def _feed(self, data: bytes) -> None:
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def send(self, data: bytes) -> None:
        with self._sending:
            with self._lock:
                self._tls.write(data)
                sealed = self._out.read()
            self._socket.sendall(sealed)

    def send_some(self, data: bytes) -> bytes:
        return data  # by the thread that may wait

    def receive(self, size: int) -> bytes:
        while True:
            with self._lock:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            data = self._socket.recv(size)
            with self._lock:
                self._feed(data)


def context(place: Place) -> ssl.SSLContext:
    """What a client trusts and shows."""
    asked = f"ca={place.ca}"
    try:
        made = ssl.create_default_context(cafile=place.ca)
        if place.cert is not None:
            asked = f"cert={place.cert} and key={place.key}"
            made.load_cert_chain(place.cert, place.key)
    except OSError as error:  # those of ssl are, too
        raise UsageError(f"{asked} of {place.name} cannot be used: {fault(error)}") from None
    return made


def refusal(place: Place, error: OSError) -> str:
    """Why there is no talking to a server, and what to change in its URL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return untrusted(place, error.verify_message, error.verify_code in OTHER_NAMES)
    if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
        return f"what listens at {place.name} does not encrypt: leave tls=on out of the URL, or use another port"
    if isinstance(error, TimeoutError):
        return f"the server at {place.name} has not said a word{hint(place)}"
    if isinstance(error, ssl.SSLError | ConnectionError):
        return f"the server at {place.name} ended the connection before it was logged in ({error}){hint(place)}"
    return f"the server at {place.name} does not speak as it should: {error}"


def stranger(place: Place, said: bytes) -> str:
    """What listens somewhere is no server of ours, as its first bytes show; and what to change in the URL."""
    who = f"what listens at {place.name}"
    if said[:1] == b"\x15" and not place.tls:
        return f"{who} answers as one that encrypts{hint(place)}"
    if said[:1] == b"\x00" and said[3:4] == b"\x04":  # the settings of HTTP/2
        return f"{who} speaks gRPC, which has a port of its own: write grpc:// instead of penstock://, or use the other"
    if said.startswith(b"HTTP/"):
        return f"{who} speaks HTTP, as a server's port for metrics does: use its other port"
    return f"{who} is no server of penstock: is this the right port?"


def untrusted(place: Place, why: str, other_name: bool) -> str:
    """A server's certificate is not what it should be."""
    if other_name:
        return f"the certificate of {place.name} is not for {place.host}: connect to a name that it has ({why})"
    known = "" if place.ca is None else f" instead of {place.ca}"
    return f"the certificate of {place.name} is not trusted here: name that of its authority by &ca=FILE{known} ({why})"


def hint(place: Place) -> str:
    """What may be wrong in a URL if a server closes the connection without a word."""
    other = "gRPC has a port of its own and grpc:// URLs" if place.scheme == "penstock" else "penstock:// has another"
    if not place.tls:
        return f"; if it is encrypted add ?tls=on to the URL, and is this the right port: {other}"
    if place.cert is None:
        return (
            f"; if it wants client certificates add &cert=FILE&key=FILE to the URL, and is this the right port: {other}"
        )
    return f"; it may not trust the client certificate {place.cert}"
