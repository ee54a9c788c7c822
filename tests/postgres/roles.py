"""What other processes do in the tests of this folder. Imports little, so that they start fast."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from tests.crash.children import Wire
from tests.sqlite.roles import errors_of

import penstock
from penstock import EngineUnavailable, LeaseLost, NotWritable


def take_and_say(wire: Wire, url: str, number: int) -> None:
    """Wait for tasks, one after the other, and say what they are and when they came."""
    q = penstock.connect(url)
    jobs = q.tube("jobs")
    wire.say("ready")
    for _ in range(number):
        task = jobs.take(timeout=60)
        wire.say("took", task and task.data, time.monotonic())
        if task is not None:
            task.ack()
    wire.hear()
    q.close()


def put_and_note(wire: Wire, url: str, name: str) -> None:
    """Put with put ids until told to stop; say what was acknowledged. A server that is away is waited for."""
    q = connected(url)
    number = 0
    while not wire._orders.poll():
        number += 1
        persist(lambda n=number: q.tube("jobs").put(f"{name}:{n}", put_id=f"{name}:{n}"))
        wire.say("put", f"{name}:{number}")
    wire.hear()
    q.close()


def take_and_ack(wire: Wire, url: str) -> None:
    """Take and ack until told to stop; say what was acked, with its token."""
    q = connected(url)
    while not wire._orders.poll():
        task = persist(lambda: q.tube("jobs").take(timeout=0.05))
        if task is not None:
            wire.say("took", task.data, task.token)
            try:
                task.ack()
            except penstock.LeaseLost:
                wire.say("lost", task.data)
            except EngineUnavailable:
                wire.say("unknown", task.data)
            else:
                wire.say("acked", task.data)
    wire.hear()
    q.close()


def connected(url: str) -> penstock.Queue:
    return persist(lambda: penstock.connect(url, session_ttl=60))


def persist(call: Any) -> Any:
    """What an application does that means it: again, until it is done."""
    end = time.monotonic() + 60
    pause = threading.Event()
    while True:
        try:
            return call()
        except (EngineUnavailable, NotWritable):
            if time.monotonic() > end:
                raise
            pause.wait(0.02)


def take_and_finish(wire: Wire, url: str) -> None:
    """Take a task and ack it."""
    q = penstock.connect(url)
    task = q.tube("jobs").take()
    wire.say("holds", task.id)
    wire.say("acked", str(task.ack().reason))
    q.close()


def compute(wire: Wire, url: str, session_ttl: float) -> None:
    """Take a task and never leave Python code until a signal comes; the keeper has to get in between."""
    told: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: told.append(number))
    q = penstock.connect(url, session_ttl=session_ttl)
    task = q.tube("jobs").take()
    wire.say("holds", task.id)
    while not told:
        pass
    try:
        wire.say("acked", str(task.ack().reason))
    except LeaseLost as lost:
        wire.say("lost", lost.now)
    q.close()


def fork_with_open_connections(wire: Wire, url: str) -> None:
    """A child closes, collects and exits with all that it inherited while the parent waits and listens."""
    import gc

    q = penstock.connect(url)
    jobs = q.tube("jobs")
    q.statistics()
    taken: list[Any] = []
    taker = threading.Thread(target=lambda: taken.append(jobs.take(timeout=60)))
    taker.start()
    store: Any = q._engine.store
    pause = threading.Event()
    while not store._listener.hears:
        pause.wait(0.01)

    def backend() -> int:
        with store._group.alone():  # the connection is for one thread at a time
            pid: int = store._connections.main().info.backend_pid
            return pid

    pid = backend()
    child = os.fork()
    if child == 0:
        q.close()
        del store, q, jobs
        gc.collect()
        mine = penstock.connect(url)
        mine.tube("jobs").put("from the child")
        mine.close()
        gc.collect()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    taker.join(60)
    wire.say("parent", status, taken[0].data, backend() == pid)
    wire.say("acked", str(taken[0].ack().reason), q.statistics()["jobs"].tasks["total"])
    q.close()


def fork_in_transaction(wire: Wire, url: str) -> None:
    """A child that is born inside a transaction may connect anew, and does its parent no harm."""
    q = penstock.connect(url)
    jobs = q.tube("jobs")
    with q.transaction() as tx:
        jobs.put("before", transaction=tx)
        child = os.fork()
        if child == 0:
            wire.say("child", *errors_of(lambda: penstock.connect(url).close(), lambda: jobs.put("x", transaction=tx)))
            os._exit(0)
        os.waitpid(child, 0)
        jobs.put("after", transaction=tx)
    wire.say("parent", [task.data for task in jobs.tasks()])
    q.close()


def fork_and_die(wire: Wire, url: str) -> None:
    """The child outlives its killed parent."""
    q = penstock.connect(url, session_ttl=0.5)
    task = q.tube("jobs").take()
    child = os.fork()
    if child == 0:
        wire.say("child", os.getpid())
        wire.hear()
        os._exit(0)
    wire.say("parent", task.id)
    signal.pause()


def wait_for_ever(wire: Wire, url: str) -> None:
    """Wait for a task that does not come; a keeper ticks meanwhile."""
    q = penstock.connect(url, session_ttl=1000)
    wire.say("ready")
    q.tube("jobs").take(timeout=600)
