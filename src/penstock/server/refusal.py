"""What a client of Tarantool's protocol is told when its request is refused."""

from __future__ import annotations

NO_FUNCTION = 33
IN_LUA = 32
"""What the queue's module raises itself; a client looks for words in the text."""
NO_ACCESS = 42


class Refusal(Exception):
    """An error of Tarantool's: a number, the text, and the class that net.box shows."""

    def __init__(self, text: str, code: int = IN_LUA, kind: str = "LuajitError") -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.kind = kind
