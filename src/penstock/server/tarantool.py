"""The remote API of tarantool/queue, for one connection.

Arguments come as they were unpacked: MP_STR as str (what is no UTF-8 with surrogateescape), MP_BIN as bytes, a map
as dict, an array as list or tuple, extensions as any object. Return values are what msgspec packs: str, bytes
(MP_BIN), int, float, dict, list, None, and msgspec.Raw for pieces that are packed already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.server.core import Core
from penstock.server.peer import Peer
from penstock.server.refusal import NO_FUNCTION, Refusal
from penstock.server.sessions import Sessions

Reply = Callable[[list[Any] | Refusal], None]
"""Gets the return values of a function, or why it was refused; called once, at once or later."""


class Facade:
    """Calls of one connection."""

    def __init__(self, core: Core, sessions: Sessions, peer: Peer) -> None:
        self._core = core
        self._sessions = sessions
        self._peer = peer

    def call(self, name: bytes, args: Sequence[Any], then: Reply) -> None:
        """CALL and CALL_16: a function by its name."""
        then(Refusal(f"Procedure '{name.decode(errors='replace')}' is not defined", NO_FUNCTION, "ClientError"))

    def evaluate(self, text: str, args: Sequence[Any], then: Reply) -> None:
        """EVAL: no Lua runs here; a few texts that clients send are known."""
        then(Refusal("this server runs no Lua"))
