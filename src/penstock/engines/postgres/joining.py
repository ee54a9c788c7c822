"""transaction=: puts and acks inside a transaction that the caller runs on a connection of their own.

What is sent is one function call with bytes in and bytes out (functions/joined.sql), so that row factories, encodings
and settings of that connection do not matter. A call is a conversation, written once: a generator that yields
statements and is sent their rows, whether the connection blocks or is awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import ByteaBinaryLoader, BytesBinaryDumper

from penstock.engines.line import raised
from penstock.engines.postgres import adopted
from penstock.engines.postgres.answers import BODY, Row, Stale, Tube, record, split, stored_id
from penstock.engines.postgres.call import Call, Context
from penstock.engines.postgres.calls import TUBE_CALLS
from penstock.engines.postgres.visitors import Visitor, visitor
from penstock.engines.transactor import AwaitedTransactor, Transactor
from penstock.model import ops
from penstock.model.errors import (
    AccessDenied,
    EngineUnavailable,
    NotWritable,
    PenstockError,
    TaskNotFound,
    TubeNotFound,
    UsageError,
)
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.postgres.store import PostgresStore

R = TypeVar("R")
Request = tuple[str, tuple[bytes, ...]]
Conversation = Generator[Request | None, Any, R]
"""Yields statements and is sent a row each; for None it is sent where the store is now."""
ROUNDS = 100
"""How often a tube may be altered between two requests for it before that is taken for a fault."""
# Whether the schema can be used from a connection, and where that leads. Nothing in it fails, whatever is missing.
LOOK = """
    select n.oid is not null, coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), false), p.oid is not null,
        coalesce(pg_catalog.has_function_privilege(p.oid, 'execute'), false),
        pg_catalog.convert_to(
            (select system_identifier from pg_catalog.pg_control_system()) operator(pg_catalog.||) '/'
                operator(pg_catalog.||) d.oid, 'UTF8'
        ),
        pg_catalog.convert_to(d.datname, 'UTF8')
    from pg_catalog.pg_database d
    left join pg_catalog.pg_namespace n on n.nspname = pg_catalog.convert_from(%b, 'UTF8')
    left join pg_catalog.pg_proc p on p.pronamespace = n.oid and p.proname = 'joined'
    where d.datname = pg_catalog.current_database()
"""


class Seen(NamedTuple):
    """What a look at a connection's database has shown."""

    schema: bool
    enters: bool
    function: bool
    executes: bool
    home: bytes
    database: bytes


_seen: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
"""Connections that were looked at and found good: the home of each schema's database."""


def join(store: PostgresStore, transaction: object) -> Transactor:
    """What performs ops on a connection of the caller's."""
    found = visitor(transaction)
    if found is None:
        raise UsageError(
            "transaction= takes a connection of psycopg, SQLAlchemy or Django, or what q.transaction() gave, "
            f"not {type(transaction).__module__}.{type(transaction).__name__}"
        )
    found.check()
    return Awaited(store, found) if found.awaited else Joined(store, found)


class Joined(Transactor):
    """A transaction on a connection that blocks."""

    def __init__(self, store: PostgresStore, visited: Visitor) -> None:
        self.store: PostgresStore = store
        self._visitor = visited

    @property
    def begun(self) -> bool:
        return self._visitor.begun

    def execute(self, op: ops.Op[R]) -> R:
        with self._visitor.translated(), _errors():
            connection = self._visitor.connection()
            cursor = _plain(psycopg.Cursor(connection, row_factory=tuple_row))
            talk = _talk(self.store, connection, op)
            with cursor:
                try:
                    request = next(talk)
                    while True:
                        if request is None:
                            request = talk.send(_home(self.store))
                        else:
                            request = talk.send(cursor.execute(*request, prepare=False, binary=True).fetchone())
                except StopIteration as over:
                    result: R = over.value
        return result


class Awaited(AwaitedTransactor):
    """A transaction on a connection that is awaited."""

    def __init__(self, store: PostgresStore, visited: Visitor) -> None:
        self.store: PostgresStore = store
        self._visitor = visited

    @property
    def begun(self) -> bool:
        return self._visitor.begun

    async def perform(self, op: ops.Op[R]) -> R:
        with _errors():
            connection = await self._visitor.awaited_connection()
            cursor = _plain(psycopg.AsyncCursor(connection, row_factory=tuple_row))
            talk = _talk(self.store, connection, op)
            async with cursor:
                try:
                    request = next(talk)
                    while True:
                        if request is None:
                            request = talk.send(await _beside(_home, self.store))
                        else:
                            await cursor.execute(*request, prepare=False, binary=True)
                            request = talk.send(await cursor.fetchone())
                except StopIteration as over:
                    result: R = over.value
        return result


async def _beside(call: Callable[[PostgresStore], bytes], store: PostgresStore) -> bytes:
    """Block in a thread of its own: the loop's default pool may be full of other people's work."""
    thread = ThreadPoolExecutor(1, "penstock join")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call, store)
    finally:
        thread.shutdown(wait=False)


def _plain(cursor: Any) -> Any:
    """A cursor on which bytes are bytes, whatever the caller has registered for them."""
    cursor.adapters.register_dumper(bytes, BytesBinaryDumper)
    cursor.adapters.register_loader("bytea", ByteaBinaryLoader)
    return cursor


@contextmanager
def _errors() -> Iterator[None]:
    """What the server says of the transaction as a whole stays the driver's word: whoever repeats it waits for that."""
    try:
        yield
    except psycopg.errors.InFailedSqlTransaction:
        raise UsageError("the transaction has failed before; roll it back and begin another") from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise AccessDenied(
            f"the role of this connection may not use the queue ({error.diag.message_primary}); roll back"
        ) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise NotWritable("this transaction can only read") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P")):
            raise
        raise EngineUnavailable(f"the connection of the transaction broke: {error}", "not_done") from error


# -- what is said --------------------------------------------------------------------------------------


def _talk(store: PostgresStore, connection: Any, op: ops.Op[Any]) -> Conversation[Any]:
    """One op: a look at the database if it is the first on this connection, and the call."""
    if store.place.schema not in _seen.get(connection, ()):
        seen = Seen(*(yield LOOK, (store.place.schema.encode(),)))
        # A queue may have moved with its server since it was asked.
        if seen.home != _homes.get(store) and seen.home != (yield None):
            raise UsageError(
                f"the connection of the transaction leads to another server or database ({seen.database.decode()!r}) "
                f"than the queue, which is {store.name}"
            )
        _check(store, seen)
        _seen.setdefault(connection, {})[store.place.schema] = seen.home
    build = TUBE_CALLS[type(op)]
    now = store.clock.now() if store.clock.manual else None
    # No callback is told: nobody knows when, or whether, the caller commits.
    context = Context(store.schema, now, store.kept(), [], relaxed=False, joined=True)
    name = op.tube  # type: ignore[attr-defined]
    tube = store._tubes.get(name)
    for _ in range(ROUNDS):
        call = None if tube is None or isinstance(op, ops.Peek) else _built(build, context, op, tube)
        if call is not None and not call.sql.startswith(f"select * from {context.schema}."):
            return raised(_read(call, [(1,)]))
        reply = yield _request(store, name, tube, call, op)
        said = msgspec.json.decode(reply[0])
        if "no" in said:
            raise _refusal(said["no"], name)
        if "tube" in said:
            number, version, config = said["tube"]
            tube = Tube(number, version, TubeConfig.from_json(config))
            continue
        rows = [_row(row) for row in said["rows"]]
        if isinstance(op, ops.Peek):
            return _peeked(rows, op)
        assert call is not None
        try:
            return raised(_read(call, rows))
        except Stale:
            tube = None
    raise TubeNotFound(f"tube {name!r} is altered all the time")


def _built(build: Any, context: Context, op: ops.Op[Any], tube: Tube) -> Call:
    call: Call = build(context, op, tube) if tube.config.adopted is None else adopted.build(context, op, tube, build)
    return call


def _request(store: PostgresStore, name: str, tube: Tube | None, call: Call | None, op: ops.Op[Any]) -> Request:
    request: dict[str, Any] = {"tube": name, "notify": store.place.notify}
    if tube is not None:
        request |= {"number": tube.number, "version": tube.version}
    if call is not None:
        function = call.sql.removeprefix(f"select * from {store.schema}.").partition("(")[0]
        request |= {"call": function, "args": [_argument(value) for value in call.params]}
    elif isinstance(op, ops.Peek):
        counted = isinstance(op.id, int) and not isinstance(op.id, bool)
        request["id"] = stored_id(op.id)
        request["seq"] = op.id if counted and tube is not None and tube.config.id in ("auto", "time64") else None
    return f"select {store.schema}.joined(%b)", (msgspec.json.encode(request),)


def _argument(value: Any) -> Any:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return [_argument(item) for item in value] if isinstance(value, list | tuple) else value


def _row(said: Any) -> Row:
    """A row as the driver would give it."""
    row = list(said.values())
    if len(row) > BODY and isinstance(row[BODY], str):
        row[BODY] = bytes.fromhex(row[BODY][2:])
    return row


def _read(call: Call, rows: list[Row]) -> Any:
    try:
        return call.read(rows if call.raw else split(rows))
    except PenstockError as error:
        return error


def _peeked(rows: list[Row], op: ops.Peek) -> Any:
    if not rows:
        raise TaskNotFound(f"tube {op.tube!r} has no task with the id {op.id!r}")
    return record(rows[0])


def _refusal(why: str, tube: str) -> PenstockError:
    if why == "writing":
        return NotWritable("this transaction can only read")
    return TubeNotFound(f"there is no tube {tube!r}; create_tube({tube!r}) makes it")


# -- the right place -----------------------------------------------------------------------------------

_homes: WeakKeyDictionary[PostgresStore, bytes] = WeakKeyDictionary()


def _home(store: PostgresStore) -> bytes:
    """Which database the queue is in, by the server's own name for it."""
    with store._connections.borrowed() as connection:
        row = connection.execute(LOOK, [store.place.schema.encode()]).fetchone()
    assert row is not None
    _homes[store] = Seen(*row).home
    return _homes[store]


def _check(store: PostgresStore, seen: Seen) -> None:
    """Refuse a connection from which the schema cannot be used, before anything is done on it."""
    schema, database = store.place.schema, seen.database.decode()
    if not seen.schema:
        raise UsageError(f"database {database!r} has no schema {schema!r}")
    if not (seen.enters and (seen.executes or not seen.function)):
        raise AccessDenied(
            f"the role of this connection may not use schema {schema!r}: "
            "it needs usage on the schema, execute on its functions, and all on its tables and sequences"
        )
    if not seen.function:
        raise UsageError(f"schema {schema!r} of database {database!r} is not one of Penstock")
