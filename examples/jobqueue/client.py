"""The queue: jobs keyed by time, limited by domain, leased to workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import penstock


@dataclass
class Job:
    """A job that this worker has. Its lease is kept while the program lives; if that dies, another worker gets it."""

    data: Any
    task: penstock.Task

    def done(self, error: BaseException | None = None) -> None:
        """Finished, or to be tried again after the retry interval."""
        if error is None:
            self.task.ack()
        else:
            self.task.fail(error)


class JobQueue:
    """A thin client; the URL says where the queue is."""

    def __init__(self, url: str, name: str = "jobs", retry: float = 10.0) -> None:
        self._queue = penstock.connect(url)
        self._jobs = self._queue.create_tube(name, retry=retry, if_not_exists=True)

    def limit(self, domain: str, rate: float) -> None:
        """At most so many jobs of a domain a second. Domains need not be known before."""
        self._jobs.lane(domain).configure(rate=rate)

    def add(self, data: Any, domain: str | None = None, at: datetime | None = None, delay: float = 0) -> None:
        """A job for now, for a moment, or for so many seconds from now."""
        self._jobs.put(data, lane=domain, delay=at or delay)

    def next(self, timeout: float | None = None) -> Job | None:
        """The next job; None when everything is done, or after the timeout."""
        task = self._jobs.take(timeout, drain=True)
        return None if task is None else Job(task.data, task)

    def close(self) -> None:
        """Give back what is unfinished."""
        self._queue.close()
