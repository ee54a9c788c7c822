"""The queue that a command works on, and the session that it works as."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.blocking import Queue, connect
from penstock.cli import settings
from penstock.engines import engine_name, open_engine, store_name
from penstock.model import ops
from penstock.model.duration import SECOND, Seconds
from penstock.model.errors import EngineUnavailable, PenstockError, UsageError
from penstock.model.session import check_ttl, new_session

FILE = "sqlite:///"


@contextmanager
def opened(create: bool = False, memory: bool = False) -> Iterator[Queue]:
    """The queue of --url or PENSTOCK_URL, for one command; closed at the end.

    create: a file that is not there is made. Otherwise that is an error, so that a wrong name makes no file.
    memory: a queue that ends with the command is of use
    """
    url = settings.url()
    if not memory:
        _check_lasts(url)
    if not create:
        _check_exists(url)
    with connect(url) as queue:
        yield queue


def check_store(url: str) -> None:
    """An error if a command could not use the queue there: it is in memory, or a file that is not there."""
    _check_lasts(url)
    _check_exists(url)


def _check_lasts(url: str) -> None:
    if engine_name(url) == "memory":
        raise UsageError(
            f"{url} is a queue that lives and ends with one process, so this command would see an empty one of its "
            "own; pass --url tasks.db (a file name, or postgresql://user@host/database)"
        )


def _check_exists(url: str) -> None:
    name = store_name(url)
    path = Path(name.removeprefix(FILE).removesuffix("?mode=ro"))
    if name.startswith(FILE) and not path.exists():
        raise EngineUnavailable(f"there is no file {path}; `penstock create TUBE` makes it, with a first tube")


@contextmanager
def holding(seconds: Seconds | None = None, uuid: str | None = None) -> Iterator[Queue]:
    """A queue whose session outlives this program: what is taken stays taken until it is finished or time is up.

    seconds: how long
    uuid: a session that another run of the program left; it lives as long again, or longer if that is asked for

    An error ends a new session, and so gives back what it took.
    """
    url = settings.url()
    _check_lasts(url)
    _check_exists(url)
    # Not direct: on SQLite the sessions of processes end when nobody has the file open any more. [rule 13]
    session = new_session(None if seconds is None or uuid else check_ttl(seconds), direct=False)
    engine = open_engine(url, None, "strict")
    queue = Queue(engine, session)
    begun = False
    try:
        queue._start()
        begun = True
        if uuid:
            queue.identify(uuid)
            if seconds is not None and check_ttl(seconds) > queue._session.ttl:
                queue.configure(session_ttl=seconds)
        yield queue
    except BaseException as error:
        if not begun and isinstance(error, PenstockError):
            engine.close()  # who refuses the session need not be asked to end it
        else:
            with suppress(PenstockError):  # the first error is the one to tell
                leave(queue) if uuid and queue.identify() != session.uuid else queue.close()
        raise
    leave(queue)


def leave(queue: Queue) -> None:
    """Close a queue without the end of its session, which lives on for its ttl from now."""
    engine, held = queue._engine, queue._session
    # A session is left for another one; this one is over before anybody looks.
    exit = new_session(SECOND)
    try:
        engine.execute(ops.OpenSession(exit))
        engine.execute(ops.Identify(exit.uuid, held))
    finally:
        engine.lose(held)
        engine.close()
        queue._closed = True
