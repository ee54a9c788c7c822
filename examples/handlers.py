"""Handlers and a worker: one function a tube, what they return and raise, and an end that loses nothing.

python examples/handlers.py
"""

from __future__ import annotations

import asyncio

import penstock

q = penstock.connect("memory:")


@q.handler("squares", keep=60)
def square(n: int) -> int:
    """What a handler returns is stored, as the tube keeps its tasks. It is called in a thread."""
    return n * n


@q.handler("pages", keep=60)
async def fetch(url: str) -> int:
    """An async handler is called in the worker's loop."""
    await asyncio.sleep(0.01)
    return len(url)


@q.handler("halves", max_attempts=2, retry=0)
def halve(n: int, run: penstock.Run) -> float:
    """What a handler raises fails the task: it is tried again, and buried after the last attempt."""
    print(f"attempt {run.attempt} to halve {n}{', the last' if run.last_attempt else ''}")
    return n / 0


def main() -> None:
    with q:
        squared, fetched, halved = square.put(12), fetch.put("http://a.example/"), halve.put(7)
        tally = penstock.Worker(q, concurrency=4).run(until_empty=True)
        print("12 squared is", q.tube("squares").result(squared.id))
        print("a page of", q.tube("pages").result(fetched.id), "letters")
        ended = q.tube("halves").peek(halved.id)
        print("7 halved:", ended.state, ended.reason, "after", ended.attempt, "attempts")
        print("in all:", tally.ok, "done,", tally.trouble, "failed")


if __name__ == "__main__":
    main()
