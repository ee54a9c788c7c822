"""A server that cannot be reached: what is told, and what is not hidden by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from tests.support.postgres import Server, shared_server

import penstock
from penstock import AccessDenied, EngineUnavailable
from penstock.engines.postgres import connections


@pytest.fixture(scope="module")
def stopped() -> Iterator[Server]:
    """A server that tests stop; the schema stays on it."""
    with Server.start() as server:
        yield server


@pytest.fixture
def server(stopped: Server) -> Server:
    if not stopped.is_running:
        stopped.start_again()
    return stopped


def interrupted(server: Server) -> None:
    with penstock.connect(server.url(patience="0.1")):
        server.stop("immediate")
        raise KeyError("mine")


async def interrupted_async(server: Server) -> None:
    async with await penstock.aconnect(server.url(patience="0.1")):
        server.stop("immediate")
        raise KeyError("mine")


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_the_error_of_a_block_is_not_hidden_by_a_queue_that_cannot_be_closed(server, colour):
    with pytest.raises(KeyError) as caught:
        interrupted(server) if colour == "blocking" else asyncio.run(interrupted_async(server))
    assert caught.value.__notes__[0].startswith("penstock: the queue could not be closed: ")


def test_a_block_without_an_error_says_that_the_queue_could_not_be_closed(server):
    q = penstock.connect(server.url(patience="0.1"))
    server.stop("immediate")
    with pytest.raises(EngineUnavailable), q:
        pass


# -- what cannot heal is not waited for ----------------------------------------------------------------

LONG = "10000"
"""Seconds of patience with which a test that waits does not end."""


@pytest.mark.parametrize(
    ("host", "query", "told"),
    [
        ("nowhere.invalid", {}, "failed to resolve host|could not translate host"),
        ("a..b", {}, "failed to resolve host"),
        ("127.0.0.1:99999", {}, "invalid port number"),
        ("127.0.0.1", {"port": "none"}, "invalid integer value"),
        ("127.0.0.1", {"sslmode": "perhaps"}, "invalid sslmode"),
    ],
)
def test_a_url_that_leads_nowhere_is_told_at_once(host, query, told):
    url = shared_server().url(patience=LONG, **query).replace(f"127.0.0.1:{shared_server().port}", host)
    with pytest.raises(EngineUnavailable, match=f"^PostgreSQL cannot be reached: .*({told})"):
        penstock.connect(url)


def test_a_server_without_tls_is_told_at_once():
    with pytest.raises(EngineUnavailable, match="server does not support SSL, but SSL was required"):
        penstock.connect(shared_server().url(patience=LONG, sslmode="require"))


def test_a_database_or_role_that_there_is_not_is_told_with_what_makes_it():
    with pytest.raises(
        EngineUnavailable, match=r"^PostgreSQL has no such database: .*; create it \(`createdb 'no db'`"
    ):
        penstock.connect(shared_server().url("no db", patience=LONG))
    with pytest.raises(
        EngineUnavailable, match=r"^PostgreSQL has no such role: .*`createuser nobody`\) or correct the "
    ):
        penstock.connect(shared_server().url(patience=LONG).replace("postgres@", "nobody@"))


def test_a_password_that_is_wrong_or_missing_is_told_with_where_it_belongs(server, monkeypatch, tmp_path):
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with server.connect() as connection:
        connection.execute("create role guarded login password 'right'")
    (server.data / "pg_hba.conf").write_text("host all guarded all scram-sha-256\nhost all all all trust\n")
    server.configure()
    url = server.url(patience=LONG)
    for user, told in (("guarded:wrong", "password authentication failed"), ("guarded", "no password supplied")):
        with pytest.raises(AccessDenied, match=f"{told}.*; check user and password of the URL, or ~/.pgpass$") as it:
            penstock.connect(url.replace("postgres@", f"{user}@"))
        assert "wrong" not in str(it.value)


def test_a_server_that_is_down_is_told_with_how_long_it_was_tried(server):
    server.stop()
    with pytest.raises(
        EngineUnavailable, match=r"^PostgreSQL cannot be reached: .*refused; it was tried for 0.1 s \(pat"
    ):
        penstock.connect(server.url(patience="0.1"))


def test_a_server_that_is_too_old_is_refused(place, monkeypatch):
    monkeypatch.setattr(connections, "OLDEST_SERVER", 99)
    with pytest.raises(EngineUnavailable, match=r"^this server is PostgreSQL 18\.\d+; Penstock needs 99 or later$"):
        penstock.connect(place)


class Asked(threading.Event):
    """Keeps for how long somebody would have waited."""

    seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds = timeout or 0.0
        return False


def test_patience_is_used_up_by_a_shorter_pause(monkeypatch):
    monkeypatch.setattr(connections, "FIRST_PAUSE", 5000.0)
    asked = Asked()
    assert connections.Pauses(1000, asked).wait()
    assert 0 < asked.seconds <= 1000
    assert not connections.Pauses(0, asked).wait()
