"""The queue from SQL answers as it does from Python: the same tasks, the same refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import Background
from tests.postgres.psql import Psql
from tests.support import postgres

import penstock
from penstock.engines.postgres import migrations, templates
from penstock.model import errors
from penstock.testing import waiting

STATES = [
    ("", "ready", None, 0),
    ("take release", "ready", None, 1),
    ("take", "taken", None, 2),
    ("cancel", "done", "cancelled", 95),
    ("take bury", "buried", "asked", 96),
    ("take abort", "buried", "aborted", 96),
    ("take fail", "buried", "no_attempts", 99),
    ("take ack", "done", "success", 100),
]


DOCS = Path(__file__).resolve().parents[2] / "docs"
COUNTED = ("ready", "taken", "delayed", "buried", "total", "kept", "done")


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        yield queue


@pytest.fixture
def psql(q: penstock.Queue, url: str) -> Iterator[Psql]:
    psql = Psql(url)
    with psql.connection:
        yield psql


def test_every_option_of_put_arrives(q, psql):
    jobs = q.create_tube("jobs")
    id = psql.one(
        """select penstock.put('jobs', '{"b": [1, 2.5, null], "a": "x"}', lane => 'l', pri => -3, delay => 60,
               ttl => 100.5, ttr => 7, key => 'k', put_id => 'p', max_attempts => 4, keep => 'infinity')"""
    )
    task = jobs.peek(int(id))
    assert (task.data, task.lane, task.pri, task.key) == ({"a": "x", "b": [1, 2.5, None]}, "l", -3, "k")
    assert (task.state, task.ttl, task.ttr, task.max_attempts) == ("delayed", 100.5, 7, 4)
    assert (task.ready_at - task.created_at).total_seconds() == 60
    assert psql.one("select penstock.put('jobs', '0', put_id => 'p')") == id
    assert psql.one("select penstock.put('jobs', '0', key => 'k', on_conflict => 'ignore')") == id
    assert psql.one("select penstock.put('jobs', '0', key => 'k', on_conflict => 'replace')") == id
    assert jobs.take().data == 0


def test_a_put_can_name_a_date(q, psql):
    q.create_tube("jobs")
    date = datetime(2099, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    id = psql.one("select penstock.put('jobs', '1', delay_until => %s)", date)
    assert q.tube("jobs").peek(int(id)).ready_at == date
    assert psql.one("select ready_at from penstock.peek('jobs', %s)", id) == date


def test_many_tasks_are_put_all_or_none(q, psql):
    jobs = q.create_tube("jobs", capacity=3)
    put = psql.rows("select * from penstock.put_many('jobs', '[1, null]', lane => 'x')")
    assert put == [("1", "new"), ("2", "new")]
    assert [(task.data, task.lane) for task in jobs.tasks()] == [(1, "x"), (None, "x")]
    assert psql.refused("select * from penstock.put_many('jobs', '[3, 4]')")[0] == "PS072"
    assert jobs.statistics().tasks["total"] == 2
    assert psql.rows("select * from penstock.put_many('jobs', '[]')") == []


def test_entries_have_options_of_their_own(q, psql):
    jobs = q.create_tube("jobs")
    psql.rows(
        """select * from penstock.put_entries('jobs', '[
            {"data": 1, "key": "a", "keep": true, "delay": 500},
            {"data": 2, "key": 7, "ttl": "derived", "ttr": 200, "max_attempts": 3},
            {"data": 3, "key": "a", "on_conflict": "ignore"}
        ]')"""
    )
    one, two = jobs.tasks()
    assert (one.data, one.key, one.state) == (1, "a", "delayed")
    assert (two.data, two.key, two.ttl) == (2, "7", 600)
    for wrong in ('{"data": 1, "lanes": "x"}', '{"data": 1, "pri": 1.5}', '{"data": 1, "delay": "soon"}', '{"pri": 1}'):
        assert psql.refused("select * from penstock.put_entries('jobs', %s)", f"[{wrong}]")[0] == "PS064"


def test_a_tube_of_bytes_takes_bytea(q, psql):
    blobs = q.create_tube("blobs", payload="bytes")
    psql.one("select penstock.put('blobs', body => '\\x00ff')")
    psql.rows("select * from penstock.put_many('blobs', bodies => array['\\x01', '\\x02']::bytea[])")
    assert [task.data for task in blobs.tasks()] == [b"\x00\xff", b"\x01", b"\x02"]
    id, token = psql.take("blobs")
    assert psql.one("select body from penstock.peek('blobs', %s)", id) == b"\x00\xff"
    psql.one("select penstock.release('blobs', %s, %s, %s, body => '\\x03')", id, token, psql.session)
    assert blobs.take().data == b"\x03"


@pytest.mark.parametrize("options", [{}, {"id": "time64"}, {"id": "uuid"}, {"id": "required"}], ids=str)
def test_ids_are_text_that_comes_back(q, psql, options):
    tube = q.create_tube("jobs", **options)
    given = [5, "5", "five", '"', "[", -7, 2**63 - 1, "O'Hara"] if options.get("id") == "required" else [None]
    for id in given:
        task = tube.put("x", id=id)
        shown = psql.rows("select id from penstock.tasks('jobs')")[-1][0]
        assert psql.one("select data from penstock.peek('jobs', %s)", shown) == "x"
        assert psql.one("select state from penstock.delete('jobs', %s)", shown) == "done"
        with pytest.raises(penstock.TaskNotFound):
            tube.peek(task.id)
    assert psql.refused("select penstock.peek('jobs', 'none')")[0] == "PS073"
    assert psql.refused("select penstock.peek('jobs', '')")[0] == "PS064"


def test_a_put_in_sql_can_give_ids(q, psql):
    tube = q.create_tube("jobs", id="required")
    for id in ("5", "five", '"5"'):
        assert psql.one("select penstock.put('jobs', '1', id => %s)", id) == id
    assert [task.id for task in tube.tasks()] == [5, "five", "5"]
    assert psql.refused("select penstock.put('jobs', '1', id => '5')") == (
        "PS071",
        "tube 'jobs' has a task with the id 5",
    )


def test_a_task_goes_through_its_life(q, psql):
    jobs = q.create_tube("jobs", ttr=30, keep=True)
    jobs.put({"n": 1})
    id, token = psql.take("jobs", ttr=60)
    task = jobs.peek(int(id))
    assert psql.one("select deadline from penstock.peek('jobs', %s)", id) == task.deadline
    assert psql.one("select token from penstock.peek('jobs', %s)", id) is None
    touched = psql.one("select deadline from penstock.touch('jobs', %s, 5.5, %s, %s)", id, token, psql.session)
    assert (touched - task.deadline).total_seconds() == 5.5
    release = "penstock.release('jobs', %s, %s, %s, delay => 0, pri => 4, data => '2', refund => true)"
    assert psql.one(f"select state, attempt from {release}", id, token, psql.session) == ("ready", 0)  # noqa: S608
    id, token = psql.take("jobs")
    assert jobs.peek(int(id)).pri == 4
    ack = "select state, reason, result from penstock.ack('jobs', %s, %s, %s, result => '[1]')"
    assert psql.one(ack, id, token, psql.session) == ("done", "success", [1])
    assert jobs.result(int(id)) == [1]


def test_states_have_the_numbers_of_pgqueue(q, psql):
    jobs = q.create_tube("jobs", keep=True)
    for moves, state, reason, code in STATES:
        id = str(jobs.put(1).id)
        token = None
        for move in moves.split():
            if move == "take":
                _, token = psql.take("jobs")
            elif move == "cancel":
                psql.one("select penstock.cancel('jobs', %s)", id)
            else:
                verb, more = ("fail", ", abort => true") if move == "abort" else (move, "")
                psql.one(f"select penstock.{verb}('jobs', %s, %s, %s{more})", id, token, psql.session)
        assert psql.rows("select state, reason, code from penstock.tasks('jobs')") == [(state, reason, code)], moves
        jobs.delete(int(id))


def test_expired_and_lost_tasks_have_their_numbers_too(q, psql):
    q.create_tube("jobs", keep=True, max_attempts=1)
    psql.one("select penstock.put('jobs', '1', ttl => 0)")
    psql.one("select penstock.put('jobs', '2')")
    psql.take("jobs", ttr=0)
    assert psql.rows("select reason, code from penstock.tasks('jobs')") == [("expired", 98), ("lost", 97)]


def test_what_a_person_does(q, psql):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put_many(range(4))
    for id in "1234":
        psql.one("select penstock.bury('jobs', %s, error => 'Bad: luck')", id)
    assert psql.one("select penstock.kick('jobs')") == 1
    assert psql.one("select state from penstock.dig('jobs', '2', delay => 900)") == "delayed"
    assert psql.one("select state from penstock.restart('jobs', '2')") == "ready"
    assert psql.one("select penstock.plow('jobs')") == 2
    assert psql.one("select state from penstock.switch('jobs', '4', 'buried')") == "buried"
    psql.take("jobs")
    assert psql.one("select state from penstock.snatch('jobs', '1')") == "ready"
    psql.take("jobs")
    assert psql.one("select penstock.release_all('jobs')") == 1
    assert psql.one("select error from penstock.peek('jobs', '4')") == "Bad: luck"
    assert psql.one("select state from penstock.delete('jobs', '3')") == "done"
    assert psql.rows("select id from penstock.tasks('jobs', 'ready', n => 1, after => '1')") == [("2",)]
    assert psql.one("select penstock.add_retries('jobs', 1)") == 0


def test_counters_lanes_and_tubes_are_those_of_python(q, psql):
    jobs = q.create_tube("jobs", lane_rate=2, ttr=1000.5)
    q.create_tube("plain", "fifo")
    jobs.put_many([1, 2, 3], lane="a")
    jobs.take()
    numbers = jobs.statistics()
    name, *tasks, calls = psql.one("select * from penstock.statistics('jobs')")
    assert (name, tasks) == ("jobs", [numbers.tasks[k] for k in COUNTED])
    assert calls == {event: n for event, n in numbers.calls.items() if n}
    assert [row[0] for row in psql.rows("select * from penstock.statistics()")] == ["jobs", "plain"]
    (lane,) = jobs.lanes()
    shown = psql.one("select lane, ready, taken, rate, burst, next_at from penstock.lanes('jobs')")
    assert shown == (lane.name, lane.ready, lane.taken, lane.limits.rate, lane.limits.burst, lane.next_at)
    tubes = psql.rows("select name, kind, ttr from penstock.tubes()")
    assert tubes == [("jobs", "standard", 1000.5), ("plain", "fifo", None)]
    assert len(psql.rows("select * from penstock.tasks()")) == 3


def test_a_session_holds_and_gives_back(q, psql):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    _, token = psql.take("jobs")
    with pytest.raises(penstock.NotOwner, match="held by tests"):
        jobs.ack(1)
    jobs.cancel(1)
    assert psql.one("select penstock.keep_alive(%s)", psql.session) == [token]
    assert psql.one("select penstock.end_session(%s)", psql.session) == 1
    gone = "no session with this uuid lives: it is unknown or has ended"
    assert psql.refused("select penstock.keep_alive(%s)", psql.session) == ("PS082", gone)
    assert psql.refused("select penstock.take('jobs', session => %s)", psql.session) == ("PS082", gone)
    assert psql.refused("select penstock.take('jobs')")[0] == "PS064"
    assert psql.refused("select penstock.new_session('x', 0)")[0] == "PS064"


@pytest.mark.parametrize(
    "verb", ["ack", "release", *(pytest.param(verb, marks=pytest.mark.exhaustive) for verb in ("bury", "fail"))]
)
def test_a_session_that_is_over_finishes_nothing(q, psql, verb):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    id, token = psql.take("jobs")
    psql.do("update penstock.sessions set expires_at = 1, ttl = 1 where name = 'tests'")
    assert psql.refused(f"select penstock.{verb}('jobs', %s, %s, %s)", id, token, psql.session)[0] == "PS076"
    assert jobs.take(timeout=60).attempt == 2


def refusals() -> list[tuple[str, Callable[[Any], Any], str]]:
    """A name, a call in Python and the same in SQL."""
    return [
        ("no tube", lambda q: q.tube("none"), "put('none', '1')"),
        ("delay", lambda q: q.tube("fifo").put(1, delay=1), "put('fifo', '1', delay => 1)"),
        ("pri", lambda q: q.tube("fifo").put(1, pri=1), "put('fifo', '1', pri => 1)"),
        ("ttl", lambda q: q.tube("fifo").put(1, ttl=1), "put('fifo', '1', ttl => 1)"),
        ("ttr", lambda q: q.tube("fifo").put(1, ttr=1), "put('fifo', '1', ttr => 1)"),
        ("repeat", lambda q: q.tube("fifo").put(1, repeat=1), "put('fifo', '1', repeat => 1)"),
        ("lane", lambda q: q.tube("fifo").put(1, lane="x"), "put('fifo', '1', lane => 'x')"),
        ("id", lambda q: q.tube("fifo").put(1, id=1), "put('fifo', '1', id => '1')"),
        ("dig delay", lambda q: q.tube("fifo").dig(1, delay=1), "dig('fifo', '1', delay => 1)"),
        ("dig ttl", lambda q: q.tube("fifo").dig(1, ttl=1), "dig('fifo', '1', ttl => 1)"),
        ("plow", lambda q: q.tube("fifo").plow(delay=1), "plow('fifo', delay => 1)"),
        ("touch", lambda q: q.tube("fifo").touch(1, 1), "touch('fifo', '1', 1)"),
        ("lanes", lambda q: q.tube("fifo").lanes(), "lanes('fifo')"),
        ("negative", lambda q: q.tube("jobs").put(1, ttl=-1), "put('jobs', '1', ttl => -1)"),
        ("nan", lambda q: q.tube("jobs").put(1, ttr=math.nan), "put('jobs', '1', ttr => 'nan')"),
        ("no repeat", lambda q: q.tube("jobs").put(1, repeat=0), "put('jobs', '1', repeat => 0)"),
        (
            "attempts",
            lambda q: q.tube("jobs").put(1, max_attempts=0),
            "put('jobs', '1', max_attempts => 0)",
        ),
        (
            "conflict",
            lambda q: q.tube("jobs").put(1, on_conflict="x"),
            "put('jobs', '1', on_conflict => 'x')",
        ),
        ("key", lambda q: q.tube("jobs").put(1, key="k"), "put('jobs', '1', key => 'k')"),
        ("large", lambda q: q.tube("small").put("x" * 9), "put('small', '\"xxxxxxxxx\"')"),
        ("deep", lambda q: q.tube("jobs").put(nested(65)), f"put('jobs', '{'[' * 65}{']' * 65}')"),
        ("full", lambda q: q.tube("full").put(1), "put('full', '1')"),
        ("needs id", lambda q: q.tube("named").put(1), "put('named', '1')"),
        ("none", lambda q: q.tube("jobs").peek(99), "peek('jobs', '99')"),
        ("not taken", lambda q: q.tube("jobs").ack(1), "ack('jobs', '1')"),
        ("no lease", lambda q: q.tube("jobs").release(99), "release('jobs', '99')"),
        ("not buried", lambda q: q.tube("jobs").dig(1), "dig('jobs', '1')"),
        ("restart", lambda q: q.tube("jobs").restart(1), "restart('jobs', '1')"),
        ("nowhere", lambda q: q.tube("named").tasks(after="x"), "tasks('named', after => 'x')"),
        ("not held", lambda q: q.tube("jobs").snatch(1), "snatch('jobs', '1')"),
        ("state", lambda q: q.tube("jobs").tasks("x"), "tasks('jobs', 'x')"),
        ("switch", lambda q: q.tube("jobs").switch(1, "taken"), "switch('jobs', '1', 'taken')"),
        ("delayed", lambda q: q.tube("jobs").switch(1, "delayed"), "switch('jobs', '1', 'delayed')"),
        ("n", lambda q: q.tube("jobs").add_retries(0), "add_retries('jobs', 0)"),
    ]


def nested(depth: int) -> Any:
    return [] if depth == 1 else [nested(depth - 1)]


def test_sql_refuses_what_python_refuses_in_the_same_words(q, psql):
    q.create_tube("jobs").put("first", key="k")
    q.create_tube("fifo", "fifo")
    q.create_tube("small", max_payload=10)
    q.create_tube("full", capacity=1).put(1)
    q.create_tube("named", id="required")
    before = q.statistics()
    for name, call, statement in refusals():
        with pytest.raises(penstock.PenstockError) as caught:
            call(q)
        error = caught.value
        expected = f"PS0{error.exit_status()}", str(error).replace('"', "'")
        assert psql.refused(f"select penstock.{statement}") == expected, name
    assert q.statistics() == before


def test_data_that_python_could_not_read_is_refused(q, psql):
    jobs = q.create_tube("jobs")
    for data in ("18446744073709551616", "-9223372036854775809", "[1e400]"):
        assert psql.refused("select penstock.put('jobs', %s)", data)[0] == "PS064"
    assert psql.refused("select penstock.put('jobs', null)")[0] == "PS064"
    assert psql.refused("select penstock.put('jobs', body => '\\x00')")[0] == "PS064"
    assert psql.refused("select penstock.put_many('jobs', '{}')")[0] == "PS064"
    for data in ("{", '"\\u0000"', '"\\ud800"'):
        assert psql.refused("select penstock.put('jobs', %s)", data)[0] in ("22P02", "22P05")
    psql.one("select penstock.put('jobs', '[18446744073709551615, -9223372036854775808, 0.1]')")
    assert jobs.take().data == [2**64 - 1, -(2**63), 0.1]


def test_an_sqlstate_stands_for_each_error(psql):
    for error in errors.ALL:
        said = psql.refused("select penstock.refuse(%s, 'x', 'y')", error.__name__)
        assert said == (f"PS0{error.exit_status()}", "x; y")


def test_a_put_is_part_of_the_callers_transaction(q, psql):
    jobs = q.create_tube("jobs", lane_concurrency=1)
    with psql.connection.transaction(force_rollback=True):
        psql.one("select penstock.put('jobs', '1', lane => 'a')")
        assert jobs.take() is None
    with psql.connection.transaction():
        psql.one("select penstock.put('jobs', '2', lane => 'a')")
        with pytest.raises(psycopg.Error), psql.connection.transaction():
            psql.one("select penstock.put('jobs', '3', ttl => -1)")
        assert jobs.take() is None
    assert jobs.take().data == 2


def test_an_ack_is_part_of_the_callers_transaction(q, psql):
    jobs = q.create_tube("jobs", "utube")
    jobs.put_many([1, 2], lane="a")
    id, token = psql.take("jobs")
    ack = "select state from penstock.ack('jobs', %s, %s, %s)"
    with psql.connection.transaction(force_rollback=True):
        assert psql.one(ack, id, token, psql.session) == "done"
    assert jobs.peek(1).state == "taken"
    with psql.connection.transaction():
        psql.one(ack, id, token, psql.session)
        assert jobs.take() is None
    assert jobs.take().data == 2
    lost = "the lease of task 1 is over and the task is gone"
    assert psql.refused(ack, id, token, psql.session) == ("PS076", lost)


def test_a_put_in_sql_wakes_a_taker_at_its_commit(q, psql):
    jobs = q.create_tube("jobs")
    background = Background(lambda: jobs.take(timeout=None))
    postgres.until(lambda: waiting(q) or not background.running, "nobody waits")
    with psql.connection.transaction():
        psql.one("select penstock.put('jobs', '1')")
    assert background.result().data == 1


def test_a_trigger_puts_a_task(q, psql):
    orders = q.create_tube("orders")
    psql.connection.execute("create temporary table bought (id bigint primary key, city text)")
    psql.connection.execute(
        f"""create function pg_temp.to_queue() returns trigger language plpgsql as $$
        begin
            perform {templates.quoted(psql.schema)}.put('orders', to_jsonb(new), lane => new.city);
            return null;
        end $$"""
    )
    psql.connection.execute(
        "create trigger to_queue after insert on bought for each row execute function pg_temp.to_queue()"
    )
    psql.connection.execute("insert into bought values (1, 'Riga'), (2, 'Oslo')")
    assert [(task.data["id"], task.lane) for task in orders.tasks()] == [(1, "Riga"), (2, "Oslo")]


def test_an_adopted_table_is_worked_off_and_written_by_hand(q, psql):
    psql.do("create table worked_off (id integer primary key, status text not null default 'R', city text)")
    q.adopt("jobs", table="worked_off", fields={"status": "status"})
    psql.do("insert into worked_off (id, city) values (1, 'Riga'), (2, 'Oslo'), (3, 'Bern')")
    id, token = psql.take("jobs")
    assert psql.one("select data from penstock.peek('jobs', %s)", id) == {"city": "Riga"}
    assert psql.one("select state, reason from penstock.ack('jobs', %s, %s, %s)", id, token, psql.session) == (
        "done",
        "success",
    )
    psql.one("select penstock.bury('jobs', '2')")
    assert psql.rows("select id, status from worked_off order by id") == [(2, "B"), (3, "R")]
    assert [row[0] for row in psql.rows("select data ->> 'city' from penstock.tasks('jobs')")] == ["Oslo", "Bern"]
    assert psql.refused("select penstock.put('jobs', '{}')") == (
        "PS064",
        "tube 'jobs' is the adopted table 'worked_off'; insert a row into it: that puts a task",
    )
    psql.do("drop table worked_off")
    assert psql.refused("select penstock.take('jobs', session => %s)", psql.session)[0] == "PS064"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def test_the_statements_of_the_pages_run():
    server = postgres.shared_server()
    server.create_database("pages")
    roles = ("queue_owner", "web", "shop", "shipper", "monitor")
    try:
        with penstock.connect(server.url("pages")) as q, server.connect("pages") as connection:
            names: dict[str, Any] = {}
            exec("\n".join(blocks("sql.md", "python")), names)
            names["make_tubes"](q)
            for block in blocks("sql.md", "sql"):
                connection.execute(block)
            assert q.tube("orders").statistics().calls == {**q.tube("orders").statistics().calls, "ack": 1, "fail": 1}
            with connection.transaction(force_rollback=True):
                for block in blocks("postgres.md", "sql"):
                    connection.execute(block)
                allowed = "select has_function_privilege(%s, p.oid, 'execute') from pg_proc p where proname = %s"
                for role, name, may in (("shop", "put", True), ("shop", "take", False), ("monitor", "put", False)):
                    assert connection.execute(allowed, [role, name]).fetchall() == [(may,)]
    finally:
        server.drop_database("pages")
        with server.connect() as connection:
            for role in roles:
                connection.execute(f"drop role if exists {role}")


def test_the_page_names_every_function_and_every_error(psql):
    page = (DOCS / "sql.md").read_text()
    for name in migrations.public():
        assert re.search(rf"\b{name}\(", page), name
    for error in errors.ALL:
        assert f"| `PS0{error.exit_status()}` | `{error.__name__}` |" in page
    (rights,) = re.findall(r"(?s)\| right \|(.*?)\n\n", (DOCS / "postgres.md").read_text())
    for right in ("read", "put", "take"):
        (row,) = re.findall(rf"(?m)^\| `{right}` \| (.*) \|$", rights)
        assert re.findall(r"`(\w+)`", row) == psql.one("select penstock.functions_of(%s)", right)


def test_public_functions_run_as_the_owner_with_a_path_of_their_own(psql):
    found = {
        name: (definer, config)
        for name, definer, config in psql.rows(
            "select proname, prosecdef, proconfig from pg_proc where pronamespace = %s::regnamespace",
            templates.quoted(psql.schema),
        )
    }
    for name in migrations.public():
        definer, config = found[name]
        assert definer and "search_path=pg_catalog, pg_temp" in config, name
    rights = set(psql.one("select penstock.functions_of('admin')"))
    assert rights == set(migrations.public())
