"""Calls that are killed at every point: what comes before, and the call itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from tests.crash.children import Wire
from tests.crash.fuses import LEVELS, Fuse

import penstock
from penstock.testing import ManualClock

START = 1_800_000_000_000_000
Act = Callable[[], Any]


def prepare(path: str) -> None:
    """The store that every scene begins with."""
    with penstock.connect(path, clock=ManualClock(START)) as q:
        q.create_tube("plain", "fifo").put_many(range(4))
        q.create_tube("lanes", "utube").put_many([penstock.Entry(n, lane="ab"[n % 2]) for n in range(6)])
        full = q.create_tube("full", history=True, max_attempts=3, retry=[5], keep=60, ttr=100)
        full.put_many([penstock.Entry(n, key=f"k{n}", lane="ab"[n % 2], ttl=1000) for n in range(4)])
        full.put("later", delay=50)
        full.bury(full.put("aside").id)
        with q.transaction() as tx:
            tx.connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, note TEXT)")
            tx.connection.execute("INSERT INTO orders VALUES (1, 'R', 'x'), (2, 'B', 'y'), (3, 'R', 'z')")
            # An epoch above the clock's: the next ones count from it, so tokens are the same in every rehearsal.
            tx.connection.execute("UPDATE penstock_store SET epoch = ?", (1 << 30,))


def _both(q: penstock.Queue) -> None:
    plain, lanes = q.tube("plain"), q.tube("lanes")
    with q.transaction() as tx:
        plain.put("one", transaction=tx)
        lanes.put("two", lane="c", transaction=tx)


SCENES: dict[str, tuple[Callable[[penstock.Queue], Any], Callable[[Any], Any]]] = {
    "put": (lambda q: q.tube("plain"), lambda t: t.put("new")),
    "put_many": (lambda q: q.tube("plain"), lambda t: t.put_many(["x", "y", "z"])),
    "put in a lane": (lambda q: q.tube("lanes"), lambda t: t.put("new", lane="c")),
    "put by the long way": (lambda q: q.tube("full"), lambda t: t.put("new", key="new", lane="c", pri=-1)),
    "replace": (lambda q: q.tube("full"), lambda t: t.put("new", key="k1", on_conflict="replace")),
    "take": (lambda q: q.tube("plain"), lambda t: t.take()),
    "take_many": (lambda q: q.tube("plain"), lambda t: t.take_many(3)),
    "take from a lane": (lambda q: q.tube("lanes"), lambda t: t.take()),
    "take by the long way": (lambda q: q.tube("full"), lambda t: t.take_many(2)),
    "ack": (lambda q: q.tube("plain").take(), lambda task: task.ack()),
    "ack in a lane": (lambda q: q.tube("lanes").take(), lambda task: task.ack()),
    "ack and keep": (lambda q: q.tube("full").take(), lambda task: task.ack("result")),
    "ack_many": (lambda q: (q.tube("plain"), q.tube("plain").take_many(3)), lambda p: p[0].ack_many(p[1])),
    "release": (lambda q: q.tube("lanes").take(), lambda task: task.release()),
    "release later": (lambda q: q.tube("full").take(), lambda task: task.release(delay=5, pri=7)),
    "fail": (lambda q: q.tube("full").take(), lambda task: task.fail("no")),
    "bury": (lambda q: q.tube("full").take(), lambda task: task.bury("no")),
    "touch": (lambda q: q.tube("full").take(), lambda task: task.touch(5)),
    "kick": (lambda q: q.tube("full"), lambda t: t.kick(5)),
    "delete": (lambda q: q.tube("lanes"), lambda t: t.delete(1)),
    "cancel": (lambda q: q.tube("full"), lambda t: t.cancel(key="k1")),
    "create_tube": (lambda q: q, lambda q: q.create_tube("new", "utubettl")),
    "alter": (lambda q: q.tube("full"), lambda t: t.alter(lane_concurrency=1)),
    "configure": (lambda q: q.tube("lanes"), lambda t: t.lane("a").configure(rate=1)),
    "truncate": (lambda q: q.tube("lanes"), lambda t: t.truncate()),
    "drop": (lambda q: q.tube("lanes"), lambda t: t.drop()),
    "adopt": (lambda q: q, lambda q: q.adopt("orders", table="orders", fields={"status": "status"})),
    "transaction": (lambda q: q, _both),
}
TEMPORARY: dict[str, tuple[Callable[[penstock.Queue], Any], Callable[[Any], Any]]] = {
    "create_tube": (lambda q: q, lambda q: q.create_tube("new", "fifo", temporary=True)),
    "put": (lambda q: q.tube("cache"), lambda t: t.put("new")),
    "take": (lambda q: q.tube("cache"), lambda t: t.take()),
    "ack": (lambda q: q.tube("cache").take(), lambda task: task.ack()),
    "drop": (lambda q: q.tube("cache"), lambda t: t.drop()),
    "close": (lambda q: (q, q.tube("cache").take()), lambda p: p[0].close()),
}


def play(wire: Wire, path: str, scene: str, level: str, point: int, temporary: bool = False) -> None:
    """Act, and die at a point of it; else say how many points there were, and die after it."""
    fuse = Fuse(point)
    LEVELS[level](fuse)
    q = penstock.connect(path, clock=None if temporary else ManualClock(START))
    before, act = (TEMPORARY if temporary else SCENES)[scene]
    prop = before(q)
    die_in(wire, fuse, lambda: act(prop))


def open_store(wire: Wire, path: str, level: str, point: int) -> None:
    """Die while a store is being opened."""
    fuse = Fuse(point)
    LEVELS[level](fuse)
    die_in(wire, fuse, lambda: penstock.connect(path, clock=ManualClock(START)))


def close_store(wire: Wire, path: str, level: str, point: int) -> None:
    """Die while a store is being closed."""
    fuse = Fuse(point)
    LEVELS[level](fuse)
    q = penstock.connect(path, clock=ManualClock(START))
    q.tube("plain").take()
    q.tube("lanes").take_many(2)
    die_in(wire, fuse, q.close)


def die_in(wire: Wire, fuse: Fuse, act: Act) -> None:
    wire.say("ready")
    fuse.lit = True
    act()
    fuse.lit = False
    wire.say("done", fuse.count)
    os.kill(os.getpid(), signal.SIGKILL)


def hold(wire: Wire, path: str) -> None:
    """Take tasks and be killed with them."""
    q = penstock.connect(path, clock=ManualClock(START))
    q.tube("plain").take()
    q.tube("lanes").take_many(2)
    q.tube("full").take()
    q.create_tube("cache", "fifo", temporary=True).put(1)
    wire.say("ready")
    wire.hear()
