"""Who holds tasks of a store in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from penstock.engines.holdings import COUNTED, Holding, Lookout
from penstock.engines.memory.store import MemoryStore
from penstock.model.duration import SECOND
from penstock.model.lane import LaneInfo


class MemoryLookout(Lookout):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def sessions(self) -> int:
        return len(self._store.data.sessions)

    def holdings(self) -> list[Holding]:
        now = self._store.clock.now()
        with self._store._mutex:
            names = {holder.number: holder.session.name for holder in self._store.data.holders()}
            found = defaultdict[tuple[str, str | None, int], list[int]](list)
            for name, tube in self._store.data.tubes.items():
                for record in (tube._records[seq] for seq in tube._taken):
                    assert record.session is not None
                    found[name, record.lane, record.session].append(record.taken_at or now)
        return [
            Holding(tube, lane, names[session], len(moments), (now - min(moments)) / SECOND)
            for (tube, lane, session), moments in found.items()
        ]

    def lanes(self, tube: str, first: Sequence[str], limit: int) -> list[LaneInfo]:
        now = self._store.clock.now()
        with self._store._mutex:
            found = self._store.data.tube(tube)
            others = [lane.name for lane in found.lanes(len(first) + limit, None, now)]
            names = [name for name in dict.fromkeys([*first, *others]) if name in found._lanes][:limit]
            lanes = [found._lane_info(name, found._lanes[name], now) for name in names]
        return [lane._replace(ready=min(COUNTED, lane.ready)) for lane in lanes]


def lookout(store: MemoryStore) -> MemoryLookout:
    """What looks at a store."""
    return MemoryLookout(store)
