"""Ledgers in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile

from penstock.model.ledger import Note

Undo = Callable[[], None]


class Ledger:
    """Notes by number, and up to where they were forgotten."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.texts: dict[int, str] = {}
        self.floor = -1

    def write(self, number: int, text: str) -> None:
        insort(self.numbers, number)
        self.texts[number] = text

    def remove(self, number: int) -> None:
        del self.numbers[bisect_left(self.numbers, number)]
        del self.texts[number]

    def between(self, after: int, upto: int) -> Iterator[Note]:
        start = bisect_right(self.numbers, after)
        found = takewhile(lambda number: number <= upto, islice(self.numbers, start, None))
        return (Note(number, self.texts[number]) for number in found)


class Ledgers:
    """All ledgers of a store. What changes them answers how to undo it."""

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._names: list[str] = []

    def written(self, name: str, first: int, last: int) -> int | None:
        ledger = self._ledgers.get(name)
        if ledger is None:
            return None
        if first <= ledger.floor:
            return first
        return next((note.number for note in ledger.between(first - 1, last)), None)

    def write(self, name: str, first: int, notes: Sequence[str]) -> Undo:
        ledger = self._named(name)
        for number, text in enumerate(notes, first):
            ledger.write(number, text)

        def undo() -> None:
            for number in range(first, first + len(notes)):
                ledger.remove(number)

        return undo

    def notes(self, name: str, after: int, upto: int, limit: int) -> list[Note]:
        ledger = self._ledgers.get(name)
        return [] if ledger is None else list(islice(ledger.between(after, upto), limit))

    def last(self, name: str, limit: int) -> list[Note]:
        ledger = self._ledgers.get(name)
        return [] if ledger is None else [Note(n, ledger.texts[n]) for n in islice(reversed(ledger.numbers), limit)]

    def trim(self, name: str, upto: int) -> tuple[int, Undo]:
        ledger = self._named(name)
        floor, forgotten = ledger.floor, list(ledger.between(-1, upto))
        ledger.floor = max(floor, upto)
        del ledger.numbers[: len(forgotten)]
        for note in forgotten:
            del ledger.texts[note.number]

        def undo() -> None:
            ledger.floor = floor
            ledger.numbers[:0] = [note.number for note in forgotten]
            ledger.texts.update(forgotten)

        return len(forgotten), undo

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        start = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        found = takewhile(lambda name: name.startswith(prefix), islice(self._names, start, None))
        return list(islice((name for name in found if self._ledgers[name].numbers), limit))

    def _named(self, name: str) -> Ledger:
        if name not in self._ledgers:
            self._ledgers[name] = Ledger()
            insort(self._names, name)
        return self._ledgers[name]
