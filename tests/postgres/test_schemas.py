"""Schemas: any name, several in one database, none in the way of another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql
from tests.conftest import Background
from tests.postgres.psql import Psql
from tests.support import postgres

import penstock
from penstock.engines.postgres import templates
from penstock.engines.postgres.place import Place
from penstock.testing import waiting

ALL_AT_ONCE = "It's a.b, 'Größe' \"hi\" {0}); drop schema public; --".ljust(61, "x")
"""Of 63 bytes, which is as long as a name may be."""
ODD = [
    "x" * 63,
    "Upper",
    "two words",
    "it's",
    'say "hi"',
    "select",
    "größe",
    "a.b",
    "'); drop schema public; --",
    "{0}",
]


def made(name: str) -> str:
    return postgres.shared_server().url(postgres.DATABASE, schema=name)


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    urls = made("one schema"), made("one Schema")
    yield urls
    for url in urls:
        postgres.drop_place(url)


@pytest.mark.parametrize("name", [ALL_AT_ONCE, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ODD)])
def test_a_schema_may_have_any_name(name):
    url = made(name)
    try:
        with penstock.connect(url, session_ttl=1000) as q:  # a sign of life on its way would hold back the history
            use(q)
            psql = Psql(url)
            with psql.connection:
                assert psql.one("select penstock.put('lanes', '7', lane => 'b')")
                psql.take("lanes")
                assert psql.one("select ready + taken from penstock.statistics('lanes')") == 3
                assert psql.one("select count(*) from penstock.tasks()") == 4
                psql.one("select penstock.allow('postgres', 'admin')")
            q.tube("lanes").drop(force=True)
        with penstock.connect(url) as q:
            assert [tube.name for tube in q.tubes()] == ["plain"]
    finally:
        postgres.drop_place(url)


def use(q: penstock.Queue) -> None:
    lanes = q.create_tube("lanes", lane_concurrency=1, history=True)
    lanes.put_many([1, 2, 3], lane="a")
    plain = q.create_tube("plain", "fifo", id="uuid")
    plain.put("x")
    assert [task.data for task in lanes.take_many(3)] == [1]
    lanes.lane("a").configure(concurrency=2, rate=100)
    lanes.alter(lane_order="strict")
    lanes.ack(1)
    assert len(lanes.tasks()) == 2
    assert len(q.history()) == 5
    q.tick()


@pytest.mark.parametrize("name", ["", "x" * 64, "pg_mine", "50%", "a$b"])
def test_names_that_no_schema_can_have_are_refused(name):
    with pytest.raises(penstock.UsageError, match="schema= must be a name"):
        Place.parse(made(name))


def test_two_schemas_do_not_disturb_each_other(pair):
    first, second = map(penstock.connect, pair)
    with first, second:
        one, two = first.create_tube("jobs", capacity=1), second.create_tube("jobs", capacity=1)
        one.put(1)
        assert two.take() is None
        background = Background(lambda: two.take(timeout=None))
        postgres.until(lambda: waiting(second) or not background.running, "nobody waits")
        assert one.take().data == 1
        two.put(2)
        assert background.result().data == 2
        assert one.statistics().calls["put"] == two.statistics().calls["put"] == 1
        with pytest.raises(penstock.SessionExpired):
            first.identify(second.identify())
        second.create_tube("mine")
        assert [tube.name for tube in first.tubes()] == ["jobs"]


def test_schemas_have_locks_and_channels_of_their_own(pair):
    names = [Place.parse(url).schema for url in pair]
    assert len({templates.channel(name) for name in names}) == 2
    assert len({templates.lock(name, number) for name in names for number in range(100)}) == 200


def test_a_schema_that_is_dropped_leaves_the_other(pair):
    first, second = map(penstock.connect, pair)
    with second:
        with first:
            first.create_tube("jobs").put(1)
        second.create_tube("jobs").put(2)
        postgres.drop_place(pair[0])
        assert second.tube("jobs").take().data == 2


def test_a_schema_that_somebody_else_has_made_is_used(pair):
    (name, _) = (Place.parse(url).schema for url in pair)
    with postgres.shared_server().connect(postgres.DATABASE) as owner:
        owner.execute("create role tenant login")
        owner.execute(sql.SQL("create schema {} authorization tenant").format(sql.Identifier(name)))
        try:
            with penstock.connect(pair[0].replace("postgres@", "tenant@")) as q:
                q.create_tube("jobs").put(1)
            with pytest.raises(penstock.AccessDenied):
                penstock.connect(pair[1].replace("postgres@", "tenant@"))
        finally:
            owner.execute("drop owned by tenant cascade")
            owner.execute("drop role tenant")
