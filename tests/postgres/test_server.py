"""The PostgreSQL that the tests run on does what tests ask of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.support import postgres
from tests.support.postgres import Server, until

ROOT = Path(__file__).resolve().parents[2]
# Tests of what tests are made with: where it fails them, those of `make test` that need it fail too.
pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def lasting() -> Iterator[Server]:
    with Server.start() as server:
        yield server


@pytest.fixture
def server(lasting: Server) -> Server:
    """A server that others have had: it runs and has no numbers, but its log is not empty."""
    if not lasting.is_running:
        lasting.start_again()
    with lasting.connect() as connection:
        connection.execute("set client_min_messages = warning; drop table if exists numbers")
    return lasting


def numbers(server: Server) -> list[int]:
    with server.connect() as connection:
        return [row[0] for row in connection.execute("select id from numbers order by id")]


def put_number(server: Server, number: int) -> None:
    with server.connect() as connection:
        connection.execute("create table if not exists numbers (id int primary key)")
        connection.execute("insert into numbers values (%s)", (number,))


def show(server: Server, setting: str) -> str:
    with server.connect() as connection:
        return connection.execute("select current_setting(%s)", (setting,)).fetchone()[0]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_server_keeps_committed_rows_after_every_stop_mode(server: Server, mode):
    put_number(server, 1)
    url = server.url()
    server.stop(mode)
    assert not server.is_running
    with pytest.raises(psycopg.OperationalError):
        server.connect()
    server.start_again()
    assert server.is_running and server.url() == url
    assert numbers(server) == [1]


def test_a_fast_stop_is_orderly_and_an_immediate_one_a_crash(server: Server):
    crash = "not properly shut down"
    before = server.log.read_text().count(crash)
    server.restart("fast")
    assert server.log.read_text().count(crash) == before
    server.restart("immediate")
    assert server.log.read_text().count(crash) == before + 1


def test_an_open_connection_is_lost_in_a_restart(server: Server):
    with server.connect() as connection:
        server.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


def test_a_server_has_the_settings_it_was_given(servers: ExitStack):
    server = servers.enter_context(Server.start(synchronous_commit="off", application_name="it's"))
    assert (show(server, "synchronous_commit"), show(server, "application_name")) == ("off", "it's")
    with server.connect() as connection:
        ask = "select pg_encoding_to_char(encoding), datcollate from pg_database where datname = 'template1'"
        assert connection.execute(ask).fetchone() == ("UTF8", "C")
    assert show(server, "listen_addresses") == "127.0.0.1"
    server.configure(synchronous_commit="local")
    assert show(server, "synchronous_commit") == "local"
    assert show(server, "server_version").startswith("18")


def test_a_server_that_cannot_start_says_why(servers: ExitStack):
    with pytest.raises(AssertionError, match="has ended") as caught:
        Server.start(max_connections="none")
    assert "max_connections" in "".join(caught.value.__notes__)


def test_a_url_leads_to_its_database_over_tcp_or_a_socket(server: Server):
    server.create_database("a b/ü")
    assert urlsplit(server.url("x", schema="a&b")).hostname == "127.0.0.1"
    assert parse_qs(urlsplit(server.url("x", schema="a&b")).query) == {"schema": ["a&b"]}
    ask = "select current_database(), inet_server_addr() is null, current_setting('application_name')"
    for query, local in (({}, False), ({"host": server.sockets}, True)):
        with psycopg.connect(server.url("a b/ü", application_name="1 2", **query)) as connection:
            assert connection.execute(ask).fetchone() == ("a b/ü", local, "1 2")
    server.drop_database("a b/ü")


def test_a_database_is_made_from_a_template_and_dropped_under_its_users(server: Server):
    server.create_database("old")
    with server.connect("old") as connection:
        connection.execute("create table numbers (id int)")
    server.create_database("new", template="old")
    with server.connect("new") as connection:
        assert connection.execute("select count(*) from numbers").fetchone() == (0,)
        server.drop_database("new")
        server.drop_database("new")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    server.drop_database("old")


def test_backends_of_one_database_are_killed_and_no_others(server: Server):
    server.create_database("one")
    with server.connect("one") as first, server.connect("one") as second, server.connect() as other:
        assert server.kill_backends("one") == 2
        assert server.kill_backends("one") == 0
        for connection in (first, second):
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
        assert other.execute("select 1").fetchone() == (1,)
    server.drop_database("one")


def test_a_standby_follows_and_takes_over(server: Server, servers: ExitStack):
    put_number(server, 1)
    standby = servers.enter_context(server.standby())
    put_number(server, 2)
    until(lambda: numbers(standby) == [1, 2], "the standby does not follow")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        put_number(standby, 3)
    server.stop("immediate")
    standby.promote()
    put_number(standby, 3)
    standby.restart()
    assert numbers(standby) == [1, 2, 3]


def test_commits_wait_for_a_synchronous_standby_and_those_of_a_promoted_one_for_nobody(servers: ExitStack):
    server = servers.enter_context(Server.start(synchronous_commit="remote_apply"))
    standby = servers.enter_context(server.standby(synchronous=True, name="second"))
    put_number(server, 1)
    assert numbers(standby) == [1]
    standby.stop()
    commit = threading.Thread(target=put_number, args=(server, 2))
    commit.start()
    waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
    with server.connect() as connection:
        until(lambda: connection.execute(waits).fetchone() == (1,), "nobody waits for the standby")
    standby.start_again()
    commit.join(postgres.PATIENCE)
    assert not commit.is_alive()
    assert numbers(standby) == [1, 2]
    third = servers.enter_context(server.standby(name="third"))
    third.promote()
    put_number(third, 3)
    assert numbers(third) == [1, 2, 3]


def test_a_server_is_where_it_was_told_to_be_if_it_can_be(servers: ExitStack, tmp_path):
    server = servers.enter_context(Server.start(tmp_path / "server"))
    put_number(server, 1)
    if os.geteuid() != 0:
        assert server.data == tmp_path / "server" / "data"
    server.close()
    assert not server.data.exists()


def test_servers_do_not_survive_the_process_that_started_them():
    code = """
import sys
from tests.support.postgres import Server, shared_server
servers = [shared_server(), Server.start()]
print(servers[0].data.parent.parent, *((server.data / "postmaster.pid").read_text().split()[0] for server in servers))
sys.stdout.flush()
sys.stdin.read()
"""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **options) as process:
        root, *pids = process.stdout.readline().split()
        assert Path(root).is_dir() and len(pids) == 2
        process.send_signal(signal.SIGKILL)
    until(lambda: not Path(root).exists(), "the directory stays")
    for pid in pids:
        until(lambda pid=pid: not exists(int(pid)), "a server stays")


def test_places_are_new_and_empty_until_dropped(place):
    other = postgres.place()
    assert other != place and urlsplit(other)._replace(query="") == urlsplit(place)._replace(query="")
    (schema,) = parse_qs(urlsplit(place).query)["schema"]
    count = "select count(*) from pg_namespace where nspname = %s"
    with postgres.shared_server().connect(postgres.DATABASE) as connection:
        assert connection.execute(count, (schema,)).fetchone() == (0,)
        connection.execute(f"create schema {schema} create table numbers (id int)")
        postgres.drop_place(place)
        assert connection.execute(count, (schema,)).fetchone() == (0,)
    postgres.drop_place(other)
