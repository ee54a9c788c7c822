"""Servers that restart, crash, are away for a while or full: every process goes on by itself, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.conftest import Background
from tests.support.postgres import Server, until

import penstock
from penstock import AccessDenied, EngineUnavailable, NotWritable, PenstockError, SchemaMismatch
from penstock.engines.postgres import migrate
from penstock.engines.postgres.connections import refused
from penstock.testing import waiting


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With a database that has the schema, for copies: to make it takes longer than most of these tests."""
    with Server.start(max_connections="20") as server:
        server.create_database("model")
        migrate.run(server.url("model"))
        yield server


@pytest.fixture
def template() -> str:
    return "model"


@pytest.fixture
def url(server: Server, template: str) -> Iterator[str]:
    if not server.is_running:
        server.start_again()
    server.create_database("here", template)
    yield server.url("here", patience="100")
    if not server.is_running:
        server.start_again()
    server.drop_database("here")


without_schema = pytest.mark.parametrize("template", ["template1"])
"""For roles that make the schema themselves."""


def value(server: Server, ask: str) -> Any:
    with server.connect("here") as connection:
        return connection.execute(ask).fetchone()[0]


@pytest.mark.parametrize(
    ("mode", "notify"),
    [
        ("fast", "on"),
        ("immediate", "off"),
        *(pytest.param(*it, marks=pytest.mark.exhaustive) for it in (("fast", "off"), ("immediate", "on"))),
    ],
)
def test_everybody_goes_on_after_a_restart(server, url, mode, notify):
    with penstock.connect(f"{url}&notify={notify}", session_ttl=60) as q:
        jobs = q.create_tube("jobs", "fifo")
        empty = q.create_tube("empty", "fifo")
        jobs.put("held")
        held = jobs.take()
        jobs.put("kept")  # a put is synced, and what came before it with it; a take alone a crash may forget
        taker = Background(lambda: empty.take(timeout=60))
        until(lambda: waiting(q) == 1, "nobody waits")
        server.restart(mode)
        assert held.ack().reason == "success"
        assert jobs.take().data == "kept"
        empty.put("new")
        assert taker.result().data == "new"
        assert q.statistics()["jobs"].tasks["taken"] == 1


def test_calls_wait_for_a_server_that_is_away(server, url):
    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put("first")
        server.stop("fast")
        store: Any = q._engine.store
        calls = [
            Background(lambda: jobs.put("second").data),
            Background(lambda: jobs.statistics().tasks["total"] >= 1),
            Background(lambda: jobs.take(timeout=60).data),
        ]
        until(lambda: store._connections.down, "nobody has noticed")
        assert all(call.running for call in calls)
        server.start_again()
        assert [call.result() for call in calls] == ["second", True, "first"]


def test_a_call_gives_up_when_its_patience_is_over_and_the_queue_goes_on_later(server, url):
    with penstock.connect(url.replace("patience=100", "patience=0.1")) as q:
        jobs = q.create_tube("jobs", "fifo")
        taker = Background(lambda: jobs.take(timeout=60))
        until(lambda: waiting(q) == 1, "nobody waits")
        server.stop("immediate")
        for call in (lambda: jobs.put("x"), q.statistics, q.transaction().__enter__, q.state):
            with pytest.raises(EngineUnavailable) as caught:
                call()
            assert caught.value.outcome == "not_done"
        server.start_again()
        until(lambda: not q._engine.store._connections.down, "the keeper does not look for the server")
        jobs.put("y")
        assert taker.result().data == "y"


@pytest.mark.parametrize("restarts", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_sessions_are_kept_alive_after_a_restart(server, url, restarts):
    with penstock.connect(url, session_ttl=1.5) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put("work")
        held = jobs.take()
        for _ in range(restarts):
            server.restart("fast")
            expires = value(server, "select expires_at from penstock.sessions")
            until(
                lambda expires=expires: value(server, "select expires_at from penstock.sessions") > expires,
                "the session gets no heartbeat",
            )
        assert held.ack().reason == "success"


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_nothing_is_lost_and_nothing_done_twice_while_backends_are_killed(server, url, kills):
    done: list[str] = []
    put: list[str] = []
    stop, all_put = threading.Event(), threading.Event()
    with penstock.connect(url, session_ttl=60) as q:
        jobs = q.create_tube("jobs", "fifo")

        def produce(name: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                jobs.put(f"{name}{number}", put_id=f"{name}{number}")
                put.append(f"{name}{number}")

        def consume() -> None:
            over = False
            while not over:
                over = all_put.is_set()
                while (task := jobs.take(timeout=0 if over else 0.05)) is not None:
                    task.ack()
                    done.append(task.data)

        producers = [Background(lambda n=n: produce(n)) for n in "ab"]
        consumers = [Background(consume) for _ in range(2)]
        for _ in range(kills):
            before = len(done)
            server.kill_backends("here")
            until(lambda before=before: len(done) > before + 3, "nobody goes on")
        stop.set()
        for producer in producers:
            producer.result()
        all_put.set()
        for consumer in consumers:
            consumer.result()
        assert jobs.statistics().tasks["total"] == 0, "all was found, and nothing is held by a lost reply"
        assert sorted(done) == sorted(put)


def test_a_full_server_is_worked_with_over_the_connection_one_has(server, url):
    with ExitStack() as crowd, penstock.connect(f"{url}&notify=off", session_ttl=0.3) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put("work")
        held = jobs.take()
        first = crowd.enter_context(server.connect("here"))
        ask = "select count(*) from pg_stat_activity where backend_type = 'client backend' and datname = 'here'"

        def is_full() -> bool:
            try:
                crowd.enter_context(server.connect("here"))
            except psycopg.OperationalError:  # who has left another database may be there for a moment still
                return first.execute(ask).fetchone() == (20,)
            return False

        until(is_full, "there is room")
        assert jobs.statistics().tasks["taken"] == 1
        with pytest.raises(EngineUnavailable, match="too many clients") as caught:
            penstock.connect(server.url("here", schema="other", patience="0.1"))
        assert caught.value.outcome == "not_done"
        expires = q._engine.store._alive_at
        first = dict(expires)
        until(lambda: all(expires[uuid] > first[uuid] + 600_000 for uuid in first), "the keeper stops")
        assert held.ack().reason == "success", "the session was kept alive over the one connection"


@without_schema
def test_a_role_with_a_single_connection_is_enough(server, url):
    with server.connect("here") as admin:
        admin.execute("create role lonely login connection limit 1; grant create on database here to lonely")
    mine = url.replace("postgres@", "lonely@")
    try:
        with penstock.connect(mine, session_ttl=0.3) as q:
            jobs = q.create_tube("jobs", "fifo")
            expires = "select expires_at from penstock.sessions"
            end = value(server, expires) + 600_000
            until(lambda: value(server, expires) > end, "the session is not kept alive over the one connection")
            taker = Background(lambda: jobs.take(timeout=60))
            until(lambda: waiting(q) == 1, "nobody waits")
            jobs.put("work")
            assert taker.result().ack().reason == "success"
            assert q.statistics()["jobs"].calls["ack"] == 1
            with pytest.raises(EngineUnavailable, match="too many connections"), penstock_patience(q, 0.1):
                q.transaction().__enter__()
    finally:
        with server.connect("here") as admin:
            admin.execute("drop owned by lonely cascade; drop role lonely")


class penstock_patience:
    """Less of it for a moment."""

    def __init__(self, q: penstock.Queue, seconds: float) -> None:
        self._connections: Any = q._engine.store._connections
        self._seconds = seconds

    def __enter__(self) -> None:
        self._place = self._connections._place
        self._connections._place = self._place._replace(patience=self._seconds)

    def __exit__(self, *error: object) -> None:
        self._connections._place = self._place


def test_all_connections_for_transactions_in_use(server, url):
    with penstock.connect(f"{url}&pool=1") as q:
        jobs = q.create_tube("jobs", "fifo")
        with q.transaction() as tx:
            jobs.put("one", transaction=tx)
            with penstock_patience(q, 0.05), pytest.raises(EngineUnavailable, match="pool="):
                Background(lambda: q.transaction().__enter__()).result()
            assert Background(lambda: jobs.statistics().tasks["total"]).result() == 0
        assert jobs.statistics().tasks["total"] == 1


# -- errors of the driver --------------------------------------------------------------------------------


def test_a_role_without_rights_is_denied(server, url):
    penstock.connect(url).close()
    with server.connect("here") as admin:
        admin.execute("create role stranger login; revoke connect on database here from public")
    mine = url.replace("postgres@", "stranger@")
    try:
        with pytest.raises(AccessDenied):
            penstock.connect(mine)
        with server.connect("here") as admin:
            admin.execute("grant connect on database here to stranger")
        with pytest.raises(AccessDenied):
            penstock.connect(mine)
    finally:
        with server.connect("here") as admin:
            admin.execute("drop owned by stranger cascade; drop role stranger")


@without_schema
def test_rights_that_are_taken_away_are_missed_as_ours(server, url):
    with server.connect("here") as admin:
        admin.execute("create role worker login; grant create on database here to worker")
    try:
        with penstock.connect(url.replace("postgres@", "worker@") + "&notify=off") as q:
            jobs = q.create_tube("jobs", "fifo")
            jobs.put("x")
            with server.connect("here") as admin:
                admin.execute("alter schema penstock owner to postgres; revoke all on schema penstock from worker")
                admin.execute("reassign owned by worker to postgres")
            for call in (lambda: jobs.put("y"), jobs.statistics, lambda: jobs.peek(1), q.tubes):
                with pytest.raises(AccessDenied):
                    call()
            with pytest.raises(AccessDenied), q.transaction() as tx:
                jobs.put("z", transaction=tx)
            with server.connect("here") as admin:
                admin.execute("grant all on schema penstock to worker")
                admin.execute("grant all on all tables in schema penstock to worker")
                admin.execute("grant all on all sequences in schema penstock to worker")
                admin.execute("grant all on all functions in schema penstock to worker")
            assert jobs.put("z").data == "z"
    finally:
        with server.connect("here") as admin:
            admin.execute("drop owned by worker cascade; drop role worker")


def test_a_database_that_may_only_be_read_is_not_written_to(server, url):
    penstock.connect(url).close()
    with penstock.connect(f"{url}&notify=off") as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put("x")
        with server.connect("postgres") as admin:
            admin.execute("alter database here set default_transaction_read_only = on")
        server.kill_backends("here")
        for call in (lambda: jobs.put("y"), jobs.take, jobs.truncate):
            with pytest.raises(NotWritable):
                call()
        with server.connect("postgres") as admin:
            admin.execute("alter database here reset default_transaction_read_only")
        server.kill_backends("here")
        assert jobs.put("z").data == "z"


def test_a_schema_that_is_gone_is_a_mismatch(server, url):
    with penstock.connect(f"{url}&notify=off") as q:
        jobs = q.create_tube("jobs", "fifo")
        with server.connect("here") as admin:
            admin.execute("set client_min_messages = warning; drop schema penstock cascade")
        with pytest.raises(PenstockError):
            jobs.put("x")
        with pytest.raises(PenstockError):
            q.statistics()
        with server.connect("here") as admin:
            admin.execute("create schema penstock")
        with pytest.raises(PenstockError):
            q.close()


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (psycopg.errors.DiskFull, EngineUnavailable),
        (psycopg.errors.OutOfMemory, EngineUnavailable),
        (psycopg.errors.QueryCanceled, EngineUnavailable),
        (psycopg.errors.LockNotAvailable, EngineUnavailable),
        (psycopg.errors.IoError, EngineUnavailable),
        (psycopg.errors.InsufficientPrivilege, AccessDenied),
        (psycopg.errors.ReadOnlySqlTransaction, NotWritable),
        (psycopg.errors.UndefinedFunction, SchemaMismatch),
        (psycopg.InterfaceError, EngineUnavailable),
    ],
)
def test_errors_of_the_driver_are_told_as_ours(error, ours):
    found = refused(error("the text\nand more"))
    assert type(found) is ours and "the text" in str(found) and "more" not in str(found)
    assert getattr(found, "outcome", "not_done") == "not_done"


@pytest.mark.exhaustive
def test_a_statement_that_takes_too_long_is_told_as_ours(server, url):
    with penstock.connect(f"{url}&notify=off") as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put("x")
        with server.connect("here") as blocker:
            others = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where application_name = 'penstock'"
            blocker.execute("alter database here set statement_timeout = '300ms'")
            blocker.execute("begin")
            blocker.execute("lock table penstock.tasks_1 in access exclusive mode")
            blocker.execute(others)  # they come back with the new setting
            with pytest.raises(EngineUnavailable, match="statement timeout") as caught:
                jobs.put("y")
            assert caught.value.outcome == "not_done"
            blocker.execute("alter database here reset statement_timeout; commit")
            blocker.execute(others)
        assert [task.data for task in jobs.tasks()] == ["x"]
