"""Who holds tasks of a queue behind a server."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engines.holdings import Holding, Lookout
from penstock.engines.remote.store import RemoteStore
from penstock.model.lane import LaneInfo
from penstock.wire import codec, talk

_read_held = codec.reader(tuple[int, list[Holding]], "a list of holdings")
_read_lanes = codec.reader(list[LaneInfo], "a list of lanes")


class RemoteLookout(Lookout):
    """Asks the server to look."""

    def __init__(self, store: RemoteStore) -> None:
        self._store = store

    def sessions(self) -> int:
        number: int = self._held()[0]
        return number

    def holdings(self) -> list[Holding]:
        found: list[Holding] = self._held()[1]
        return found

    def _held(self) -> tuple[int, list[Holding]]:
        found: tuple[int, list[Holding]] = _read_held(self._look(talk.Look()))
        return found

    def lanes(self, tube: str, first: Sequence[str], limit: int) -> list[LaneInfo]:
        found: list[LaneInfo] = _read_lanes(self._look(talk.Look(tube, tuple(first), limit)))
        return found

    def _look(self, asked: talk.Look) -> bytes:
        return self._store.channel.call("look", codec.pack(asked), repeatable=True)


def lookout(store: RemoteStore) -> RemoteLookout:
    """What looks at a store."""
    return RemoteLookout(store)
