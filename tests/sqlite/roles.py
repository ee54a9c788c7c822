"""What other processes do in the tests of this folder. Imports little, so that they start fast."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.crash.children import PATIENCE, Wire

import penstock
from penstock import LeaseLost, PenstockError


def put_and_take(wire: Wire, path: str, name: str, number: int) -> None:
    """Put so many tasks, then take and ack until told that nothing is left."""
    q = penstock.connect(path)
    jobs = q.tube("jobs")
    wire.say("ready")
    wire.hear()
    for n in range(number):
        jobs.put(f"{name}:{n}", lane=f"lane{n % 7}" if jobs.kind == "utube" else None)
        take_one(wire, jobs)
    while take_one(wire, jobs, drain=True):
        pass
    wire.say("end")
    q.close()


def take_one(wire: Wire, jobs: penstock.Tube, drain: bool = False) -> bool:
    task = jobs.take(timeout=60 if drain else 0, drain=drain)
    if task is not None:
        task.ack()
        wire.say("did", task.data)
    return task is not None


def take_and_say(wire: Wire, path: str) -> None:
    """Wait for one task and say what it is."""
    q = penstock.connect(path)
    jobs = q.tube("jobs")
    wire.say("ready")
    task = jobs.take(timeout=60)
    wire.say("took", task and task.data)
    wire.hear()
    q.close()


def put_when_told(wire: Wire, path: str, session_ttl: str = "30") -> None:
    """Put whatever is heard."""
    q = penstock.connect(path, session_ttl=float(session_ttl))
    wire.say("ready")
    while (data := wire.hear()) is not None:
        wire.say("put", q.tube("jobs").put(data).id)
    q.close()
    wire.say("closed")


def hold(wire: Wire, path: str, session_ttl: float, number: int) -> None:
    """Take tasks and keep them."""
    q = penstock.connect(path, session_ttl=session_ttl)
    tasks = q.tube("jobs").take_many(number)
    wire.say("holds", [task.id for task in tasks], [task.token for task in tasks])
    wire.hear()
    q.close()
    wire.say("closed")


def take_and_ack(wire: Wire, path: str) -> None:
    """Take a task and ack it."""
    q = penstock.connect(path)
    task = q.tube("jobs").take()
    wire.say("holds", task.id)
    wire.say("acked", str(task.ack().reason))


def hold_and_compute(wire: Wire, path: str) -> None:
    """Take a task and never leave Python code until the session was kept alive; the keeper has to get in between."""
    q = penstock.connect(path, session_ttl=1000)
    task = q.tube("jobs").take()
    store: Any = q._engine.store
    wire.say("holds", task.id)
    wire.hear()
    store._cancelled.clear()  # what the store has answered to the last sign of life
    store._alive_at[q._session.uuid] = store._next_alive = 0  # which was long ago
    end = time.monotonic() + PATIENCE
    while not store._cancelled and time.monotonic() < end:
        pass
    wire.say("kept", len(store._cancelled))
    wire.hear()
    wire.say("acked", str(task.ack().reason))


def stop_and_go(wire: Wire, path: str, session_ttl: float) -> None:
    """Take a task, be stopped for longer than the session lives, and try to ack it."""
    q = penstock.connect(path, session_ttl=session_ttl)
    task = q.tube("jobs").take()
    wire.say("holds", task.id)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        task.ack()
        wire.say("acked")
    except LeaseLost as lost:
        wire.say("lost", lost.now)
    again = q.tube("jobs").put("goes on")
    wire.say("put", again.id)
    wire.hear()
    q.close()


def forking(wire: Wire, path: str) -> None:
    """A parent and its forked child, which share a queue object that only one of them may use."""
    q = penstock.connect(path)
    jobs = q.tube("jobs")
    held = jobs.take()
    wire.say("parent", held.id)
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        wire.say("child", *errors_of(lambda: jobs.put(1), jobs.take, held.ack, q.statistics, q.tubes))
        q.close()
        wire.say("child closed")
        os.write(here, b"x")
        os._exit(0)
    os.read(there, 1)
    os.waitpid(child, 0)
    wire.say("parent", str(held.ack().reason), jobs.put("after").data, q.state())
    q.close()


def errors_of(*calls: Any) -> list[str]:
    names = []
    for call in calls:
        try:
            call()
            names.append("nothing")
        except PenstockError as error:
            names.append(type(error).__name__)
    return names


def fork_and_connect(wire: Wire, path: str, order: str) -> None:
    """The child opens the store anew; then one of them closes first and the other goes on."""
    q = penstock.connect(path)
    jobs = q.tube("jobs")
    jobs.take(timeout=0.01)
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    child = os.fork()
    if child == 0:
        mine = penstock.connect(path)
        tube = mine.tube("jobs")
        tube.put("child 1")
        os.write(from_child, b"x")
        os.read(to_child, 1)
        tube.put("child 2")
        if order == "child first":
            mine.close()
        os.write(from_child, b"x")
        os.read(to_child, 1)
        if order == "parent first":
            tube.put("child 3")
            wire.say("child", [task.data for task in tube.tasks()])
            mine.close()
        os._exit(0)
    os.read(to_parent, 1)
    jobs.put("parent 1")
    if order == "parent first":
        q.close()
    os.write(from_parent, b"x")
    os.read(to_parent, 1)
    if order == "child first":
        jobs.put("parent 2")
        wire.say("parent", [task.data for task in jobs.tasks()])
    os.write(from_parent, b"x")
    os.waitpid(child, 0)
    q.close()
    wire.say("end")


def fork_in_transaction(wire: Wire, path: str) -> None:
    """A child that is born inside a transaction cannot open the store, and does the parent no harm."""
    q = penstock.connect(path)
    jobs = q.tube("jobs")
    with q.transaction() as tx:
        jobs.put("before", transaction=tx)
        child = os.fork()
        if child == 0:
            wire.say("child", *errors_of(lambda: penstock.connect(path), lambda: jobs.put("x", transaction=tx)))
            os._exit(0)
        os.waitpid(child, 0)
        jobs.put("after", transaction=tx)
    wire.say("parent", [task.data for task in jobs.tasks()])
    q.close()


def fork_and_die(wire: Wire, path: str) -> None:
    """The child outlives its killed parent."""
    q = penstock.connect(path, session_ttl=60)
    task = q.tube("jobs").take()
    child = os.fork()
    if child == 0:
        wire.say("child", os.getpid())
        wire.hear()
        os._exit(0)
    wire.say("parent", task.id)
    signal.pause()


def fork_while_busy(wire: Wire, path: str, number: int) -> None:
    """Threads put all the time while the process forks again and again."""
    import threading

    from penstock.engines import store

    store.FORK_PATIENCE = PATIENCE  # a machine may stand still for longer than a program waits
    q = penstock.connect(path, durability="relaxed")
    jobs = q.tube("jobs")
    stop = threading.Event()
    counts = [0] * 4

    def work(n: int) -> None:
        while not stop.is_set():
            jobs.put(n)
            counts[n] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    statuses = []
    for _ in range(number):
        child = os.fork()
        if child == 0:
            try:
                mine = penstock.connect(path, durability="relaxed")
                mine.tube("jobs").put("child")
                mine.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        statuses.append(os.waitpid(child, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    wire.say("end", statuses, sum(counts), jobs.statistics().tasks["ready"])
    q.close()
