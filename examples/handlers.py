"""A handler loop: one function a tube, some threads a function, an end that loses nothing.

python examples/handlers.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import penstock

Handler = Callable[[Any], Any]


def serve(tube: penstock.Tube, handler: Handler, stopping: threading.Event) -> None:
    """Run a handler for every task. What it returns is the result; what it raises fails the task."""
    while not stopping.is_set():
        task = tube.take(timeout=0.5)
        if task is None:
            continue
        try:
            result = handler(task.data)
        except Exception as error:
            task.fail(error)
        else:
            task.ack(result)


def start(q: penstock.Queue, handlers: dict[str, Handler], threads: int = 2) -> Callable[[], None]:
    """Serve tubes until the returned function is called; that one waits for what still runs."""
    stopping = threading.Event()
    workers = [
        threading.Thread(target=serve, args=(q.tube(name), handler, stopping))
        for name, handler in handlers.items()
        for _ in range(threads)
    ]
    for worker in workers:
        worker.start()

    def stop() -> None:
        stopping.set()
        for worker in workers:
            worker.join()

    return stop


def main() -> None:
    with penstock.connect("memory:") as q:
        squares = q.create_tube("squares", keep=60)
        halves = q.create_tube("halves", max_attempts=2, retry=0)
        stop = start(q, {"squares": lambda n: n * n, "halves": lambda n: n / 0})
        try:
            task = squares.put(12)
            print("12 squared is", squares.result(task.id, timeout=10))
            ended = halves.wait(halves.put(7).id, timeout=10)
            print("7 halved:", ended.state, ended.reason, "after", ended.attempt, "attempts")
        finally:
            stop()


if __name__ == "__main__":
    main()
