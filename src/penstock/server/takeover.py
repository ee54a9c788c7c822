"""A restart that nobody notices: the sockets a server listens on are handed to a new process, which then serves.

The two speak over a Unix socket that belongs to the address, in lines of JSON:

    new: {"penstock": 1, "store": ..}
    old: {"doors": [..], "ports": {..}, "pid": ..} with the sockets of the doors, or {"error": ..}
    new: {"ready": pid}, once it has opened the store and accepts
    old: {"bye": pid}; it accepts no more, serves who is connected until they go, and ends

Whatever goes wrong before `ready` leaves the old one as it was. A new one that only looks says {"leave": true} instead.
An old one that is told to stop meanwhile says {"error": ..}, and the new one stops as well; one that dies says nothing,
and the new one serves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.model.errors import EngineUnavailable, UsageError

log = logging.getLogger("penstock.server")
VERSION = 1
VARIABLE = "PENSTOCK_CONTROL"
"""Tells a process that a server has started where that server can be asked; ports may have been free ones."""
MAX_LINE = 64 * 1024
MAX_SOCKETS = 16
ASKING = 30.0
"""Seconds that the old process may take for an answer."""
SILENCE = 2.0
"""Seconds that the new process may take for its first word; whoever comes next waits behind it."""
STARTING = 120.0
"""Seconds that the new process may take to open the store."""
MAX_PATH = 107
"""Bytes of a Unix socket's name."""
OTHERS = 0o077
STOPPED = "the server was told to stop before it was ready to be taken over from, so nobody serves here any more"


class Handed(NamedTuple):
    """What a server that goes has given."""

    sockets: dict[str, socket.socket]
    ports: dict[str, int]
    """Of all its doors, also of those that make their own socket."""
    pid: int


def control_path(host: str, port: int) -> Path:
    """Where the server of an address can be asked to hand over."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    name = f"{host.replace(':', '_').replace('/', '_')}-{port}.sock"
    return _folder() / name


def _folder() -> Path:
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        found = os.environ.get(variable)
        if found:
            return Path(found.partition(":")[0]) / "penstock"
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"


# -- the one that goes ---------------------------------------------------------------------------------


class Control:
    """Listens for processes that want to take over. One thread does it; nothing else of the server waits for it."""

    def __init__(
        self,
        path: Path,
        store: str,
        sockets: Mapping[str, socket.socket],
        ports: Mapping[str, int],
        on_taken: Callable[[int], None],
        refusal: str | None = None,
    ) -> None:
        self.path = path
        self._store = store
        self._sockets = dict(sockets)
        self._ports = dict(ports)
        self._on_taken = on_taken
        self._refusal = refusal
        self._closed = False
        self._lock = threading.Lock()
        """Decides whether a takeover or the end came first."""
        self._talking: socket.socket | None = None
        """To a process that has the sockets and is not ready yet."""
        self._socket = _bound(path)
        self._inode = os.stat(_unplaced(path)).st_ino
        self._thread = threading.Thread(target=self._work, name="penstock control", daemon=True)

    def place(self) -> None:
        """Be found from now on, instead of whoever was before."""
        os.replace(_unplaced(self.path), self.path)
        self._thread.start()

    def close(self) -> None:
        """Listen no more; the path is freed unless somebody else has it by now. Who is about to take over is told."""
        with self._lock:
            self._closed = True
            if self._talking is not None:
                with contextlib.suppress(OSError):
                    _send(self._talking, {"error": STOPPED})
                    self._talking.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for path in (self.path, _unplaced(self.path)):
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == self._inode:
                    os.unlink(path)

    def _work(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    taken = self._converse(connection)
                except Exception as error:  # whatever the other one says, the next one is listened to
                    if not self._closed:
                        log.warning("a takeover came to nothing, this process goes on: %s", error or type(error))
                    continue
            if taken:
                return

    def _converse(self, connection: socket.socket) -> bool:
        """Talk to a process that wants to take over; answers whether it has."""
        connection.settimeout(SILENCE)
        _check_peer(connection)
        asked = _read(connection)
        refusal = self._refusal or self._unfit(asked)
        if refusal is not None:
            _send(connection, {"error": refusal})
            raise UsageError(refusal)
        doors = list(self._sockets)
        said = {"doors": doors, "ports": self._ports, "pid": os.getpid()}
        descriptors = [self._sockets[name].fileno() for name in doors]
        connection.settimeout(STARTING)
        with self._lock:
            if self._closed:
                raise UsageError(STOPPED)
            socket.send_fds(connection, [_line(said)], descriptors)
            self._talking = connection
        try:
            heard = _read(connection)
            if "leave" in heard:
                log.info("another process has looked whether it could take over; this one goes on")
                return False
            new = int(heard["ready"])
        finally:
            with self._lock:
                self._talking = None
                stopped = self._closed
        if stopped:
            raise UsageError(STOPPED)
        self._on_taken(new)
        with contextlib.suppress(OSError):  # it serves already, whether it hears this or not
            _send(connection, {"bye": os.getpid()})
        return True

    def _unfit(self, asked: Mapping[str, Any]) -> str | None:
        if asked.get("penstock") != VERSION:
            return (
                f"this server hands over by version {VERSION} of the protocol, you asked by {asked.get('penstock')!r}"
            )
        if asked.get("store") != self._store:
            return f"this server serves {self._store}, not {asked.get('store')}: stop it, or use another port"
        return None


def _unplaced(path: Path) -> Path:
    """What a socket is called until it is in place; shorter than any name it may get."""
    return path.with_name(f".{os.getpid()}")


def _bound(path: Path) -> socket.socket:
    """A Unix socket that only this user can reach, under a name for the time being."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise UsageError(f"{path} is too long for a Unix socket")
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & OTHERS:
        raise UsageError(f"{folder} must be a folder of this user that nobody else can use: chmod 700 {folder}")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = _unplaced(path)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        made.bind(os.fspath(name))
        os.chmod(name, 0o600)
        made.listen(4)
    except OSError:
        made.close()
        raise
    return made


def _check_peer(connection: socket.socket) -> None:
    """Only the same user, or root, gets the sockets."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user not in (os.getuid(), 0):
            raise UsageError(f"user {user} asked for a takeover of a server of user {os.getuid()}")


# -- the one that comes --------------------------------------------------------------------------------


class Asking:
    """A takeover as the new process sees it: sockets first, then `ready`."""

    def __init__(self, path: Path, store: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(ASKING)
        try:
            self._connection.connect(os.fspath(path))
        except OSError as error:
            self._connection.close()
            raise EngineUnavailable(
                f"there is no server to take over from at {path} ({error.strerror}): start without --takeover"
            ) from None
        try:
            self.handed = self._ask(store)
        except BaseException:
            self._connection.close()
            raise

    def _ask(self, store: str) -> Handed:
        try:
            _send(self._connection, {"penstock": VERSION, "store": store})
            text, descriptors, _, _ = socket.recv_fds(self._connection, MAX_LINE, MAX_SOCKETS)
            sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            while not text.endswith(b"\n"):
                text += self._connection.recv(MAX_LINE) or b"\n"
            said = json.loads(text)
        except (OSError, ValueError) as error:
            raise EngineUnavailable(f"the server did not hand over: {error}") from None
        if "error" in said:
            raise UsageError(str(said["error"]))
        for made in sockets:
            made.setblocking(False)
        return Handed(dict(zip(said["doors"], sockets, strict=True)), said["ports"], said["pid"])

    def ready(self) -> None:
        """Say that this process serves; come back when the old one accepts no more, or has died.

        EngineUnavailable if it was told to stop meanwhile: then this one was meant as well.
        """
        said: dict[str, Any] = {}
        with contextlib.suppress(OSError):  # what it has said last can be read nevertheless
            _send(self._connection, {"ready": os.getpid()})
        with contextlib.suppress(OSError, ValueError):
            said = _read(self._connection)
        self.close()
        if "error" in said:
            raise EngineUnavailable(str(said["error"]))

    def leave(self) -> None:
        """It was only to be seen whether this would work: the old process goes on."""
        with contextlib.suppress(OSError):
            _send(self._connection, {"leave": True})
        self.close()

    def close(self) -> None:
        """Without `ready` the old process goes on."""
        self._connection.close()


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _send(connection: socket.socket, document: Mapping[str, Any]) -> None:
    connection.sendall(_line(document))


def _read(connection: socket.socket) -> dict[str, Any]:
    text = b""
    while not text.endswith(b"\n"):
        more = connection.recv(MAX_LINE)
        if not more or len(text) > MAX_LINE:
            raise ValueError("the other process has ended, or says nothing that makes sense")
        text += more
    said = json.loads(text)
    if not isinstance(said, dict):
        raise ValueError("the other process says nothing that makes sense")
    return said
