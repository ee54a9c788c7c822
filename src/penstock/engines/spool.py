"""Where a store without staging tables keeps staged rows until they are promoted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from mmap import mmap

from penstock.model.staging import StagedJob

Buffer = bytes | mmap


class Spool(ABC):
    """Portions of rows by job and part. It takes no part in transactions: what is kept here is nobody's task yet."""

    @abstractmethod
    def add(self, tube: str, job: str, part: str, rows: bytes, now: int) -> None:
        """Keep a portion behind those that the part has."""

    @abstractmethod
    def portions(self, job: str, part: str) -> Sequence[Buffer]:
        """What was kept of a part, in order. It stays readable when the job is discarded."""

    @abstractmethod
    def tube(self, job: str) -> str | None:
        """The tube that a job stages for; None if it has staged nothing."""

    @abstractmethod
    def discard(self, job: str) -> int:
        """Forget a job; answers how many parts it had."""

    @abstractmethod
    def jobs(self) -> list[StagedJob]:
        """Every job that has something here, by name."""


class MemorySpool(Spool):
    """In the memory of the process."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, list[bytes]]] = {}
        self._said: dict[str, tuple[str, int]] = {}

    def add(self, tube: str, job: str, part: str, rows: bytes, now: int) -> None:
        self._jobs.setdefault(job, {}).setdefault(part, []).append(rows)
        self._said[job] = (self.tube(job) or tube, now)

    def tube(self, job: str) -> str | None:
        return self._said[job][0] if job in self._said else None

    def portions(self, job: str, part: str) -> list[bytes]:
        return list(self._jobs.get(job, {}).get(part, ()))

    def discard(self, job: str) -> int:
        self._said.pop(job, None)
        return len(self._jobs.pop(job, {}))

    def jobs(self) -> list[StagedJob]:
        found = sorted(self._jobs.items())
        return [StagedJob(job, self._said[job][0], len(parts), self._said[job][1]) for job, parts in found]
