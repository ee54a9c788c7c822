"""The worker: it does not know whether the queue is in its process or far away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobqueue.client import JobQueue


def work(queue: JobQueue, handle: Callable[[Any, int], object]) -> None:
    """Do jobs until none is left; `handle` gets the data and which attempt this is."""
    while job := queue.next():
        try:
            handle(job.data, job.task.attempt)
        except Exception as error:
            job.done(error)
        else:
            job.done()
        print(job.data, job.task.state)
