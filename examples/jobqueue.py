"""next() and done(err), as jobqueue has them, in a few lines over take, ack and fail.

python examples/jobqueue.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import penstock


@dataclass
class Job:
    data: Any
    task: penstock.Task

    def done(self, error: BaseException | None = None) -> None:
        """Finished, or to be tried again after the tube's retry interval."""
        if error is None:
            self.task.ack()
        else:
            self.task.fail(error)


class JobQueue:
    """Jobs with a rate-limiting domain; a job whose worker dies comes back by itself."""

    def __init__(self, url: str, retry: float = 10.0) -> None:
        self._queue = penstock.connect(url)
        self._jobs = self._queue.create_tube("jobs", retry=retry, if_not_exists=True)

    def limit(self, domain: str, rate: float) -> None:
        self._jobs.lane(domain).configure(rate=rate)

    def add(self, data: Any, domain: str | None = None, delay: float = 0) -> None:
        self._jobs.put(data, lane=domain, delay=delay)

    def next(self, timeout: float | None = None) -> Job | None:
        """The next job; None when everything is done, or after the timeout."""
        task = self._jobs.take(timeout, drain=True)
        return None if task is None else Job(task.data, task)

    def close(self) -> None:
        self._queue.close()


def main() -> None:
    queue = JobQueue("memory:", retry=0.01)
    queue.limit("slow.example", rate=100)
    for number in range(3):
        queue.add(f"page {number}", domain="slow.example")
    while job := queue.next():
        first_time = job.task.attempt == 1
        if job.data == "page 1" and first_time:
            job.done(ConnectionError("no answer"))
        else:
            job.done()
        print(job.data, job.task.state)
    queue.close()


if __name__ == "__main__":
    main()
