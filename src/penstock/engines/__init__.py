"""Engines: where a queue's state lives, and how to open one by its URL."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.engines.line import Answer, Waiter
from penstock.engines.scan import NotPlain, Scan
from penstock.engines.store import Callback, Store
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import UsageError
from penstock.model.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")
MEMORY = "memory:"
_stores: dict[str, Store] = {}
_opening = threading.RLock()
_anonymous = 0


class Engine:
    """What a queue talks to: ops go in, answers come out."""

    def __init__(self, store: Store, strict: bool) -> None:
        self.store = store
        self.clock = store.clock
        self._strict = strict
        self._waiters: set[Waiter] = set()
        self._closed = False
        self._dismissed = False
        self._kept: dict[str, Session] = {}
        self._dropped = weakref.finalize(self, _forsake, store, id(self), self._kept)
        self._dropped.atexit = False

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def writable(self) -> bool:
        """False for a store that can only be read."""
        return self.store.writable

    @property
    def occupied(self) -> bool:
        """True while another thread is at work on the store."""
        return self.store.occupied

    @property
    def usable(self) -> bool:
        """False once the store was closed under this engine, or in a child after fork."""
        return self.store.usable

    @property
    def cancelled(self) -> set[int]:
        """Tokens of tasks held in this process that were asked to stop."""
        return self.store.cancelled

    def execute(self, op: ops.Op[R]) -> R:
        """Perform an op; what it refuses is raised."""
        if self._closed:
            self._check()
        return self.store.execute(op, self._strict)

    def execute_many(self, requests: Sequence[ops.Op[Any]]) -> list[Answer]:
        """Perform ops in one transaction; an answer or an exception each."""
        self._check()
        return self.store.execute_many(requests, self._strict)

    def ask(self, requests: Sequence[ops.Op[Any]], then: Callable[[Callable[[], list[Answer]]], None]) -> None:
        """Ask a prompt store; `then` is called in any thread, with what tells the answers."""
        self._check()
        self.store.ask(requests, then)

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Read tasks or events in batches of Arrow, in the order of their seq."""
        self._check()
        return self.store.scan(scan.check())

    def wait(self, waiter: Waiter, seconds: float | None) -> Answer:
        """Block until the waiter was served or its time is over."""
        self._check_waiting()
        self._waiters.add(waiter)
        try:
            return self.store.wait(waiter, seconds, self._strict)
        finally:
            self._waiters.discard(waiter)

    def enlist(self, waiter: Waiter) -> None:
        """Put a waiter in line without blocking."""
        self._check_waiting()
        self._waiters.add(waiter)
        self.store.enlist(waiter, self._strict)

    def perform_all(self, requests: Sequence[ops.Op[Any]], waiters: Sequence[Waiter]) -> list[Answer]:
        """Perform ops as execute_many() does, and put waiters in line, all in as few transactions as can be."""
        self._check_waiting()
        self._waiters.update(waiters)
        return self.store.perform_all(requests, waiters, self._strict)

    def withdraw(self, waiter: Waiter) -> None:
        """Take a waiter out of the line; its answer is final after this."""
        self._waiters.discard(waiter)
        self.store.withdraw(waiter)

    def forget(self, waiter: Waiter) -> None:
        """A waiter that was enlisted has its answer."""
        self._waiters.discard(waiter)

    def transaction(self) -> AbstractContextManager[Transactor]:
        self._check()
        return self.store.transaction()

    def join(self, transaction: object) -> Transactor:
        """The caller's own transaction, as something that performs ops."""
        self._check()
        if not self.store.usable:
            self.store.check_usable()
        if not isinstance(transaction, Transactor):
            return self.store.join(transaction)
        if transaction.ended:
            raise UsageError("this transaction has ended; begin another with q.transaction()")
        if transaction.store is not self.store:
            raise UsageError(f"this transaction is one of {transaction.store.name}, the queue is {self.name}")
        return transaction

    def twin(self) -> Engine:
        """Another engine on the same store, closed on its own."""
        self._check()
        with _opening:
            self.store.users += 1
        return Engine(self.store, self._strict)

    def listen(self, tube: str, callback: Callback | None) -> Callback | None:
        return self.store.listen(tube, callback)

    def keep(self, session: Session) -> None:
        self._kept[session.uuid] = session
        self.store.keep(session, id(self))

    def lose(self, session: Session) -> None:
        self._kept.pop(session.uuid, None)
        self.store.lose(session, id(self))

    def check_owner(self) -> None:
        """Refuse what would make this thread wait for its own transaction."""
        self.store.check_owner()

    def dismiss(self) -> None:
        """Nobody waits here any more: who does gets nothing, and nothing of what is given back now."""
        self._dismissed = True
        for waiter in list(self._waiters):
            self.store.withdraw(waiter)

    def close(self) -> None:
        """Let go of the store; the last one out closes it."""
        if self._closed:
            return
        self._closed = True
        self._dropped.detach()
        self.dismiss()
        with _opening:
            self.store.users -= 1
            if self.store.users <= 0 and not self.store.lasting:
                release_store(self.store)

    def _check_waiting(self) -> None:
        if self._dismissed:
            raise UsageError("this queue is closed; connect() again")

    def _check(self) -> None:
        if self._closed:
            raise UsageError("this queue is closed; connect() again")


def _forsake(store: Store, engine: int, kept: dict[str, Session]) -> None:
    """A queue was dropped without close(): stop keeping its sessions, and let the keeper close the store.

    This runs in the middle of anything, so it must not wait for a lock.
    """
    for session in kept.values():
        store.lose(session, engine)
    store.users -= 1
    store.forsaken = None if store.lasting else _close_forsaken


def _close_forsaken(store: Store) -> None:
    with _opening:
        if store.users <= 0:
            release_store(store)


def open_engine(url: str | os.PathLike[str], clock: Clock | None, durability: str) -> Engine:
    """Open the engine that a URL names; optional parts are imported only when asked for."""
    if durability not in ("strict", "relaxed"):
        raise UsageError(f"durability must be 'strict' or 'relaxed', got {durability!r}")
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str) or not url:
        raise UsageError(f"connect() needs a URL or a file name, got {url!r}")
    with _opening:
        store = _find_store(url, clock)
        store.users += 1
    return Engine(store, durability == "strict")


def scan_place(url: str, scan: Scan) -> Iterator[pa.RecordBatch]:
    """Read what is at a URL without opening it: no thread keeps time here, and one connection is enough."""
    scan.check()
    engine, url = _split(url)
    try:
        if engine == "postgresql":
            place = _postgres_place(url)
            from penstock.engines.postgres.scan import visited

            yield from visited(place, scan)
            return
        if engine == "sqlite":
            from penstock.engines.sqlite import scan as sqlite
            from penstock.engines.sqlite.place import Place

            yield from sqlite.visited(Place.parse(url), scan)
            return
    except NotPlain:
        pass
    opened = open_engine(url, None, "strict")
    try:
        yield from opened.scan(scan)
    finally:
        opened.close()


def _find_store(url: str, clock: Clock | None) -> Store:
    name = store_name(url)
    store = _stores.get(name)
    if store is not None and not store.closed:
        if not store.usable:
            raise UsageError(f"{name} was in the middle of something when this process forked; fork before or after")
        if clock is not None and clock is not store.clock:
            raise UsageError(f"{name} is open in this process with another clock; use that one or close it first")
        _check_same(store, url)
        return store
    store = _new_store(url, name, clock)
    _stores[name] = store
    return store


def _check_same(store: Store, url: str) -> None:
    """Refuse parameters that would have no effect, because the store is open with others."""
    engine, url = _split(url)
    if engine in ("postgresql", "remote"):
        place: Any = getattr(store, "place")  # noqa: B009
        others = (_postgres_place(url) if engine == "postgresql" else _remote_place(url)).unlike(place)
        if others:
            raise UsageError(
                f"{store.name} is open in this process with {', '.join(others)}; use the same URL or close it first"
            )


def store_name(url: str) -> str:
    """What tells two stores apart."""
    engine, url = _split(url)
    if engine == "memory":
        name = _memory_name(url)
        return MEMORY + name if name else _anonymous_name()
    if engine == "postgresql":
        return str(_postgres_place(url).name)
    if engine == "remote":
        return str(_remote_place(url).name)
    from penstock.engines.sqlite.place import Place

    return str(Place.parse(url).name)


def engine_name(url: str) -> str:
    """The engine that a URL names: memory, sqlite, postgresql or remote.

    >>> engine_name("tasks.db"), engine_name("POSTGRES://host/shop"), engine_name("penstock://host")
    ('sqlite', 'postgresql', 'remote')
    """
    return _split(url)[0]


def _split(url: str) -> tuple[str, str]:
    """The engine that a URL names, and the URL with its scheme in small letters; what has no scheme is a file."""
    scheme, colon, rest = url.partition(":")
    known = scheme.lower()
    if colon and known in ("memory", "sqlite"):
        return known, f"{known}:{rest}"
    if colon and known.partition("+")[0] in ("postgresql", "postgres"):
        return "postgresql", f"{known}:{rest}"
    if known in ("penstock", "grpc") and rest.startswith("//"):
        return "remote", f"{known}:{rest}"
    if "://" in url:
        raise UsageError(
            f"no engine for {url.partition('://')[0]}:// URLs; there are a file name, sqlite:///path, "
            "postgresql://user@host/database, penstock://host:port, grpc://host:port and memory:"
        )
    return "sqlite", url


def _postgres_place(url: str) -> Any:
    try:
        from penstock.engines.postgres.place import Place
    except ImportError as error:
        from penstock.engines.postgres.program import missing_driver

        raise missing_driver(error) from None
    return Place.parse(url)


def _remote_place(url: str) -> Any:
    from penstock.engines.remote.place import Place

    return Place.parse(url)


def _memory_name(url: str) -> str:
    return url.removeprefix(MEMORY).removeprefix("//")


def _anonymous_name() -> str:
    """A name that no URL leads to: in memory the others begin with `memory:`, and files have absolute paths."""
    global _anonymous
    _anonymous += 1
    return f"memory #{_anonymous}"


def _new_store(url: str, name: str, given: Clock | None) -> Store:
    engine, url = _split(url)
    if engine == "remote":
        from penstock.engines.remote.store import RemoteStore

        return RemoteStore(_remote_place(url), given)
    clock = given or SystemClock()
    if engine == "memory":
        from penstock.engines.memory import MemoryStore

        return MemoryStore(name, clock, lasting=bool(_memory_name(url)))
    if engine == "postgresql":
        from penstock.engines.postgres.store import PostgresStore

        return PostgresStore(_postgres_place(url), clock)
    from penstock.engines.sqlite.place import Place
    from penstock.engines.sqlite.store import SqliteStore

    return SqliteStore(Place.parse(url), clock)


def release_store(store: Store) -> None:
    """Close a store and forget it."""
    if _stores.get(store.name) is store:
        del _stores[store.name]
    if not store.closed:
        store.close()


def open_store(url: str) -> Store | None:
    """The store of a URL if this process has it open."""
    return _stores.get(store_name(url))


def replace_store(old: Store, new: Store) -> None:
    """Put another store in the place of one that is closed."""
    _stores[old.name] = new


def _before_fork() -> None:
    """Let no store be in the middle of something while the process doubles."""
    _opening.acquire()
    for store in _stores.values():
        store.hold()


def _after_fork_in_parent() -> None:
    for store in _stores.values():
        store.let_go()
    _opening.release()


def _after_fork_in_child() -> None:
    """The stores belong to the parent. Those that could be put away can be opened anew here."""
    for name, store in list(_stores.items()):
        if store.let_go():
            store.disown()
            del _stores[name]
    _opening.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


__all__ = [
    "Engine",
    "engine_name",
    "open_engine",
    "open_store",
    "release_store",
    "replace_store",
    "scan_place",
    "store_name",
]
