"""The doctor finds what was planted, and nothing in a healthy queue."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.postgres.psql import Psql
from tests.support import postgres
from tests.support.postgres import Server

import penstock
from penstock.engines.postgres import doctor, migrate, program
from penstock.engines.postgres.doctor import Finding, Limits, examine
from penstock.engines.postgres.place import Place

AT_ONCE = Limits(transaction=(0, 1e9), lease=0, ready=0, overdue=0, dead=50, counters=3, tickets=0)


@pytest.fixture
def url() -> Iterator[str]:
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        yield queue


@pytest.fixture
def psql(q: penstock.Queue, url: str) -> Iterator[Psql]:
    psql = Psql(url)
    with psql.connection:
        yield psql


def found(url: str, check: str, limits: Limits = AT_ONCE, subject: str | None = None) -> list[Finding]:
    return [it for it in examine(url, limits) if it.check == check and subject in (None, it.subject)]


def worst(url: str, check: str, **options: Any) -> str:
    return found(url, check, **options)[0].level


def test_a_healthy_queue_has_nothing_worse_than_the_settings_of_tests(q, url):
    jobs = q.create_tube("jobs", lane_concurrency=1)
    jobs.put_many([1, 2, 3], lane="a")
    jobs.take()
    findings = examine(url)
    assert {it.check for it in findings if it.level != "ok"} == {"setting fsync", "setting full_page_writes"}
    assert [it.level for it in findings] == sorted((it.level for it in findings), key=["bad", "warn", "ok"].index)
    assert {"server version", "schema", "connections", "locks", "transaction", "notifications", "dead rows"} <= {
        it.check for it in findings
    }
    for finding in findings:
        assert finding.meaning and (finding.next_step or finding.level == "ok"), finding


def test_a_schema_that_is_not_there():
    (finding,) = found(postgres.place(), "schema")
    assert (finding.level, finding.value) == ("bad", "is not there")


def test_a_schema_of_another_version(q, url, psql):
    q.close()
    psql.do("update penstock.store set code = 'old', release = '0'")
    assert worst(url, "schema") == "warn"
    psql.do("update penstock.store set version = version + 90")
    assert worst(url, "schema") == "bad"
    psql.do("update penstock.store set version = version - 90")
    penstock.connect(url).close()
    assert worst(url, "schema") == "ok"


def test_an_open_transaction_is_named(url, psql):
    psql.connection.execute("set application_name = 'the sleeper'")
    with psql.connection.transaction():
        psql.one("select count(*) from penstock.tubes")
        sleepers = [it for it in found(url, "transaction") if "the sleeper" in it.subject]
        assert [it.level for it in sleepers] == ["warn"]
        pid = psql.connection.info.backend_pid
        assert sleepers[0].next_step == f"select pg_terminate_backend({pid})"
        assert "idle in transaction" in sleepers[0].meaning
    assert not [it for it in found(url, "transaction") if "the sleeper" in it.subject]


def test_dead_rows_and_switched_off_vacuum(q, url, psql):
    q.create_tube("jobs", "fifo")
    number = psql.number("jobs")
    psql.do("alter table penstock.tasks_# set (autovacuum_enabled = false)", number)
    assert worst(url, "dead rows", subject=f"tasks_{number}") == "bad"
    psql.rows("select * from penstock.put_many('jobs', (select jsonb_agg(i) from generate_series(1, 100) i))")
    psql.do("delete from penstock.tasks_#", number)
    psql.one("select pg_stat_force_next_flush()")
    postgres.until(lambda: "100 dead" in found(url, "dead rows", subject=f"tasks_{number}")[0].value, "no dead rows")
    psql.do("alter table penstock.tasks_# reset (autovacuum_enabled)", number)
    (finding,) = found(url, "dead rows", subject=f"tasks_{number}")
    assert finding.level == "warn" and finding.next_step.startswith("vacuum (verbose)")
    psql.do("truncate penstock.counts_#", number)


def test_leases_ready_tasks_and_what_is_overdue(q, url, psql):
    jobs = q.create_tube("jobs")
    assert not found(url, "oldest lease") and not found(url, "oldest ready task")
    jobs.put_many([1, 2])
    jobs.take()
    assert worst(url, "oldest lease") == worst(url, "oldest ready task") == "warn"
    jobs.pause()
    assert worst(url, "oldest ready task") == "ok"
    assert worst(url, "oldest lease", limits=Limits()) == "ok"


def test_a_store_that_nobody_ticks(url, psql, q):
    q.create_tube("jobs")
    q.close()
    psql.one("select penstock.new_session('lost', 1e-6)")
    psql.one("select penstock.put('jobs', '1', delay => 1e-6)")
    limits = AT_ONCE._replace(counters=0)
    assert worst(url, "overdue", limits=limits) == "warn"
    assert worst(url, "sessions", limits=limits) == "warn"
    assert worst(url, "counters", limits=limits) == "warn"


def test_tickets_without_tasks_and_lanes_without_tickets(q, url, psql):
    q.create_tube("jobs").put(1, lane="lost")
    number = psql.number("jobs")
    assert worst(url, "tickets") == "ok" and not found(url, "lane")
    psql.do("update penstock.tickets_# set lane = 'nobody'", number)
    assert worst(url, "tickets") == "warn"
    (finding,) = found(url, "lane")
    assert (finding.level, finding.subject, finding.value) == ("bad", "jobs", "'lost'")
    q.tube("jobs").lane("lost").configure(paused=False)
    assert not found(url, "lane")
    assert q.tube("jobs").take().data == 1


def test_indexes_and_functions_that_are_missing(q, url, psql):
    q.create_tube("jobs", lane_order="strict")
    number = psql.number("jobs")
    assert not found(url, "index") and not found(url, "functions")
    psql.do("drop index penstock.tasks_#_due, penstock.tasks_#_stand", number)
    psql.do("drop function penstock.totals_#", number)
    psql.do("update pg_index set indisvalid = false where indexrelid = 'penstock.tasks_#_key'::regclass", number)
    assert {it.value for it in found(url, "index")} == {
        f"tasks_{number}_due is missing",
        f"tasks_{number}_stand is missing",
        f"tasks_{number}_key is not valid",
    }
    (functions,) = found(url, "functions")
    assert (functions.subject, functions.value) == ("jobs", f"totals_{number} is missing")
    for finding in found(url, "index"):
        psql.connection.execute(finding.next_step)
    perform_here(functions.next_step)
    assert not found(url, "index") and not found(url, "functions")


def perform(command: str) -> None:
    """Do in a shell what a finding says."""
    subprocess.run(command.replace("python ", f"{sys.executable} ", 1), shell=True, check=True, capture_output=True)


def perform_here(command: str) -> None:
    """Do what a finding says without a process of its own, which takes longer to start than to do it."""
    *program, option, url = shlex.split(command)
    assert program == ["python", "-m", "penstock.engines.postgres.migrate"]
    assert migrate.main([option, url]) == 0


@pytest.mark.exhaustive
def test_functions_that_all_tubes_share_are_missing(q, url, psql):
    q.create_tube("jobs")
    psql.do("drop function penstock.act_many, penstock.now_us")
    (finding,) = found(url, "functions")
    assert (finding.subject, finding.value) == ("", "act_many, now_us are missing")
    assert [it.level for it in found(url, "tube", subject="jobs")] == ["bad"]
    perform(finding.next_step)
    assert not found(url, "functions") and not found(url, "tube")


def test_tables_that_are_missing_are_found_and_the_rest_is_looked_at(q, url, psql):
    q.create_tube("jobs", "fifo").put(1)
    q.create_tube("others").put(2)
    q.close()
    number = psql.number("jobs")
    psql.do("drop table penstock.counts_#; drop sequence penstock.places_#", number)
    missing = found(url, "table")
    assert [it.value for it in missing] == [f"counts_{number} is missing", f"places_{number} is missing"]
    assert {(it.level, it.subject) for it in missing} == {("bad", "jobs")}
    assert [it.subject for it in found(url, "tube")] == ["jobs"]
    assert found(url, "oldest ready task", subject="others")
    psql.connection.execute(missing[0].next_step.partition(": ")[2])
    assert not found(url, "table") and not found(url, "tube")


@pytest.mark.parametrize(
    "table", ["tubes", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("sessions", "marker"))]
)
def test_tables_that_all_tubes_share_are_missing(place, table):
    with penstock.connect(place) as q:
        q.create_tube("jobs")
    psql = Psql(place)
    with psql.connection:
        psql.do(f"drop table penstock.{table} cascade")
    (finding,) = found(place, "table")
    assert (finding.level, finding.subject, finding.value) == ("bad", "", f"{table} is missing")


@pytest.mark.exhaustive
def test_an_adopted_table_lacks_nothing(q, url, psql):
    table = f"public.orders_of_{psql.schema}"
    psql.connection.execute(f"create table {table} (id bigint primary key, status text)")
    try:
        q.adopt("orders", table=table, fields={"status": "status"})
        parts = ("table", "index", "functions", "tube", "schema")
        assert {it.level for it in examine(url) if it.check in parts} == {"ok"}
        q.tube("orders").drop()
    finally:
        psql.connection.execute(f"drop table {table}")


def test_what_a_server_of_its_own_can_suffer_from(servers):
    server = servers.enter_context(
        Server.start(
            max_prepared_transactions="5",
            max_connections="40",
            max_locks_per_transaction="10",
            wal_level="logical",
            autovacuum="off",
            synchronous_commit="off",
        )
    )
    url = server.url()
    with penstock.connect(url) as q:
        for number in range(9):
            q.create_tube(f"tube{number}", "fifo")
        with server.connect() as one:
            one.execute("select pg_create_physical_replication_slot('forgotten', true)")
            with one.transaction():
                one.execute("create table something (x integer)")
                one.execute("prepare transaction 'half''done'")
        findings = {(it.check, it.subject): it for it in examine(url, AT_ONCE)}
        assert findings["replication slot", "forgotten"].level == "warn"
        prepared = findings["prepared transaction", "half'done"]
        assert (prepared.level, prepared.next_step) == ("warn", "rollback prepared 'half''done'")
        assert findings["setting autovacuum", ""].level == "bad"
        assert findings["setting synchronous_commit", ""].level == "warn"
        assert findings["locks", ""].level == "warn"
        with server.connect() as one:
            one.execute(prepared.next_step)
            one.execute(findings["replication slot", "forgotten"].next_step)
        assert not [it for it in examine(url) if it.check in ("replication slot", "prepared transaction")]


def test_a_standby_can_be_examined(servers):
    server = servers.enter_context(Server.start())
    with penstock.connect(server.url()) as q:
        q.create_tube("jobs").put(1, lane="a")
        q.create_tube("flying", temporary=True).put(1)
    standby = servers.enter_context(server.standby())
    findings = examine(standby.url())
    assert {it.check for it in findings if it.level != "ok"} <= {
        "setting fsync",
        "setting full_page_writes",
        "sessions",
    }
    assert [it.value for it in findings if it.check == "standby"] == ["in recovery"]


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("off", "warn"),
        ("on", "ok"),
        *(pytest.param(value, "ok", marks=pytest.mark.exhaustive) for value in ("local", "remote_write")),
    ],
)
def test_commits_that_do_not_wait_for_the_disk(url, value, level):
    given = f"{url}&options=-c%20synchronous_commit%3D{value}"
    (finding,) = found(given, "setting synchronous_commit")
    assert (finding.level, finding.value) == (level, value)
    assert finding.next_step == "alter system set synchronous_commit = 'on'; select pg_reload_conf()"


DOCTOR = [sys.executable, "-m", "penstock.engines.postgres.doctor"]
MIGRATE = [sys.executable, "-m", "penstock.engines.postgres.migrate"]
both_programs = pytest.mark.parametrize(
    "command",
    [pytest.param(DOCTOR, id="doctor"), pytest.param(MIGRATE, id="migrate", marks=pytest.mark.exhaustive)],
)
"""They are started and ended by the same code."""


def test_the_program_prints_it(q, url, capsys):
    q.create_tube("jobs").put(1)
    done = subprocess.run([*DOCTOR, url], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == ""
    place = Place.parse(url)
    head, *lines = done.stdout.splitlines()
    assert re.fullmatch(rf"{place.address}, schema {place.schema}: 2 bad, 0 warn, \d+ ok", head)
    assert lines[:2] == ["bad  setting fsync: off", "     a crash of the machine may destroy the database"]
    assert not [line for line in lines if line.startswith("ok")]
    assert doctor.main(["--all", url]) == 2
    everything = capsys.readouterr().out
    assert everything.startswith(done.stdout) and "\nok   oldest ready task jobs: " in everything
    assert "\nok   counters jobs: 1 row\n" in everything and " for 1 tube\n" in everything


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks a role for its password."""
    with Server.start() as server:
        with server.connect() as connection:
            connection.execute("create role guarded login password 'right'")
        (server.data / "pg_hba.conf").write_text("host all guarded all scram-sha-256\nhost all all all trust\n")
        server.configure()
        yield server


@pytest.mark.exhaustive  # the next test shows the same without a process
@both_programs
def test_a_program_tells_in_one_line_what_keeps_it_from_working(command):
    url = postgres.shared_server().url("nowhere")
    failed = subprocess.run([*command, url], capture_output=True, text=True)
    assert failed.stderr.startswith("PostgreSQL has no such database: ") and failed.stderr.count("\n") == 1
    assert (failed.returncode, failed.stdout) == (penstock.EngineUnavailable.exit_status(), "")


@pytest.mark.parametrize("main", [doctor.main, migrate.main], ids=["doctor", "migrate"])
def test_so_it_does_whatever_keeps_it_from_working(main, guarded, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    wrong = guarded.url().replace("postgres@", "guarded:wrong@")
    for url, told, error in (
        (wrong, "PostgreSQL does not let us in: ", penstock.AccessDenied),
        ("postgresql://u:hun%zzter2@h/d", "this is not a URL of PostgreSQL: ", penstock.UsageError),
        ("tasks.db", "this is not a URL of PostgreSQL: ", penstock.UsageError),
    ):
        status = program.reported(functools.partial(main, [url]))
        out, err = capsys.readouterr()
        assert err.startswith(told) and err.count("\n") == 1, err
        assert (status, out) == (error.exit_status(), "")


@pytest.mark.exhaustive
@both_programs
def test_programs_without_the_driver_tell_what_to_install(command, tmp_path):
    (tmp_path / "psycopg.py").write_text("raise ImportError('no psycopg\\nat all')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    failed = subprocess.run([*command, "postgresql://h/d"], capture_output=True, text=True, env=environment)
    assert failed.stderr == "PostgreSQL needs psycopg (no psycopg at all): pip install 'penstock[postgres]'\n"
    assert failed.returncode == penstock.UsageError.exit_status()
    code = f"import {command[-1]}"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert failed.stderr.splitlines()[-2].startswith("penstock.model.errors.UsageError: PostgreSQL needs psycopg")


def test_findings_are_shown_worst_first_with_what_to_do():
    bad = Finding("index", "jobs", "bad", "x is missing", "calls are slow", "create index x")
    fine = Finding("sessions", "", "ok", "1", "who holds leases")
    lines = [
        "bad  index jobs: x is missing",
        "     calls are slow",
        "     next: create index x",
    ]
    assert doctor.shown([bad, fine]).splitlines() == lines
    assert doctor.shown([bad, fine], everything=True).splitlines() == [*lines, "ok   sessions: 1"]
