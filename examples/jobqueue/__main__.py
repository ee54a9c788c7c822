"""Three pages of a slow site, one of which does not answer at first."""

from __future__ import annotations

import sys

from jobqueue import JobQueue, work


def fetch(page: str, attempt: int) -> None:
    if page == "page 1" and attempt == 1:
        raise ConnectionError("no answer")


def main() -> None:
    queue = JobQueue(sys.argv[1] if len(sys.argv) > 1 else "memory:", retry=0.01)
    queue.limit("slow.example", rate=100)
    for number in range(3):
        queue.add(f"page {number}", domain="slow.example")
    work(queue, fetch)
    queue.close()


if __name__ == "__main__":
    main()
