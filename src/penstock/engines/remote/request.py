"""What is asked of a server, until it is answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from queue import SimpleQueue

from penstock.engines.remote.link import Link
from penstock.model.errors import PenstockError
from penstock.wire import codec


class Request(ABC):
    """Something asked of a server."""

    __slots__ = ("abandoned", "asked_at", "era", "kind", "link", "number", "payload", "pinned")
    waits = False
    takes = False
    """True if its answer may grant tasks."""
    patience: float | None = None
    """Seconds that it waits for a server, if that is not as long as other calls do."""

    def __init__(self, kind: str, payload: bytes, pinned: Link | None = None) -> None:
        self.kind = kind
        self.payload = payload
        self.number = 0
        self.link: Link | None = None
        """The connection it was sent over last; None: nobody can have done it."""
        self.pinned = pinned
        """The only connection it makes sense on."""
        self.asked_at = 0.0
        self.era = 0
        """Of the channel, when it was sent."""
        self.abandoned = False
        """True once the caller has gone: what the answer grants has to be given back."""

    @abstractmethod
    def answered(self, failed: bool, payload: bytes) -> None:
        """The answer has come; called in a link's thread."""

    @abstractmethod
    def failed(self, error: PenstockError) -> None:
        """There will be no answer."""

    def again(self, why: str) -> bytes | None:
        """What to ask of a server that cannot know whether this was done; None: nothing."""
        return self.payload


class Note(Request):
    """A request whose answer nobody waits for."""

    __slots__ = ()

    def answered(self, failed: bool, payload: bytes) -> None:
        pass

    def failed(self, error: PenstockError) -> None:
        pass


class Call(Request):
    """A request that a thread waits for."""

    __slots__ = ("_said", "repeatable")

    def __init__(self, kind: str, payload: bytes, pinned: Link | None = None, repeatable: bool = False) -> None:
        super().__init__(kind, payload, pinned)
        self.repeatable = repeatable
        self._said: SimpleQueue[bytes | PenstockError] = SimpleQueue()

    def answered(self, failed: bool, payload: bytes) -> None:
        self._said.put(codec.decode_error(payload) if failed else payload)

    def failed(self, error: PenstockError) -> None:
        self._said.put(error)

    def again(self, why: str) -> bytes | None:
        return self.payload if self.repeatable else None

    def result(self) -> bytes:
        """The answer; errors are raised."""
        said = self._said.get()
        if isinstance(said, PenstockError):
            raise said
        return said
