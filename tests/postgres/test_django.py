"""transaction= with Django's connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import django
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError, IntegrityError, OperationalError, connection, connections, transaction
from tests.support.invariants import check

import penstock
from penstock import DuplicateKey, LeaseLost, UsageError
from penstock.engines.postgres.place import Place

if not settings.configured:
    settings.configure(
        DATABASES={
            "default": {"ENGINE": "django.db.backends.postgresql"},
            "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        USE_TZ=True,
    )
    django.setup()


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    parts = psycopg.conninfo.conninfo_to_dict(Place.parse(url).conninfo)
    place = {"HOST": parts["host"], "PORT": parts["port"], "USER": parts["user"], "NAME": parts["dbname"]}
    connection.settings_dict.update(place)
    with penstock.connect(url) as queue:
        with connection.cursor() as cursor:
            cursor.execute("create temporary table orders (id integer primary key)")
        yield queue
        connections.close_all()
        check(url)


@pytest.fixture
def jobs(q: penstock.Queue) -> penstock.Tube:
    return q.create_tube("jobs")


def data(tube: penstock.Tube) -> list[Any]:
    return [task.data for task in tube.tasks()]


def order(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into orders values (%s)", [number])


def orders() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from orders")
        return cursor.fetchone()[0]


def test_a_put_is_part_of_an_atomic_block(jobs):
    with transaction.atomic():
        order(1)
        jobs.put("ship", transaction=connection)
        assert data(jobs) == []
    assert (orders(), data(jobs)) == (1, ["ship"])


def test_a_block_that_fails_takes_its_puts_and_acks_with_it(jobs):
    jobs.put("work")
    task = jobs.take()
    with pytest.raises(IntegrityError):
        failing(jobs, task)
    assert (orders(), data(jobs)) == (0, ["work"])
    task.ack()
    assert data(jobs) == []


@transaction.atomic
def failing(jobs: penstock.Tube, task: penstock.Task) -> None:
    order(1)
    jobs.put_many(["never"], transaction=connections["default"])
    task.ack(transaction=connection)
    order(1)


def test_an_inner_block_undoes_what_is_its_own(jobs):
    with transaction.atomic():
        jobs.put("outer", transaction=connection)
        with transaction.atomic():
            jobs.put("inner", transaction=connection)
            transaction.set_rollback(True)
    assert data(jobs) == ["outer"]


def test_the_connection_underneath_serves_too(jobs):
    with transaction.atomic():
        jobs.put("x", transaction=connection.connection)
        assert data(jobs) == []
    assert data(jobs) == ["x"]


def test_a_connection_that_is_not_open_yet_is_opened(jobs):
    connection.close()
    with transaction.atomic():
        jobs.put("x", transaction=connection)
    connection.close()
    with pytest.raises(UsageError, match="atomic"):
        jobs.put("y", transaction=connection)
    assert data(jobs) == ["x"]


def test_outside_of_a_block_it_is_refused(jobs):
    with pytest.raises(UsageError, match=r"with transaction.atomic\(\)"):
        jobs.put("x", transaction=connection)
    transaction.set_autocommit(False)
    try:
        jobs.put("y", transaction=connection)
        transaction.rollback()
        jobs.put("z", transaction=connection)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert data(jobs) == ["z"]


def test_a_refusal_leaves_the_block_usable(jobs):
    jobs.put("first", key="k")
    with transaction.atomic():
        order(1)
        with pytest.raises(DuplicateKey):
            jobs.put("again", key="k", transaction=connection)
        jobs.put("second", transaction=connection)
    assert (orders(), data(jobs)) == (1, ["first", "second"])


def test_a_block_that_has_failed_is_refused(jobs):
    with transaction.atomic():
        with pytest.raises(DatabaseError), transaction.atomic(savepoint=False):
            raise DatabaseError
        with pytest.raises(UsageError, match="failed before"):
            jobs.put("x", transaction=connection)
    assert data(jobs) == []


def test_what_the_server_says_of_the_transaction_is_an_error_of_django(q):
    jobs = q.create_tube("keys")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
        assert orders() == 0
        jobs.put("theirs", key="k")
        with pytest.raises(OperationalError) as caught:
            jobs.put("mine", key="k", transaction=connection)
        assert isinstance(caught.value.__cause__, psycopg.errors.SerializationFailure)
        transaction.set_rollback(True)


def test_a_task_object_whose_ack_was_rolled_back_holds_the_task(jobs):
    jobs.put("x")
    task = jobs.take()
    with transaction.atomic():
        task.ack(transaction=connection)
        transaction.set_rollback(True)
    task.release()
    task = jobs.take()
    with transaction.atomic():
        task.ack(transaction=connection)
    with pytest.raises(LeaseLost):
        task.release()


def test_a_connection_to_another_kind_of_database_is_refused(jobs):
    with pytest.raises(UsageError, match="sqlite"):
        jobs.put("x", transaction=connections["file"])


def test_an_async_view_puts_through_a_function_that_blocks(jobs):
    """Django has no transactions that are awaited: its blocks live in a thread."""

    @transaction.atomic
    def work() -> None:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        jobs.put("x", transaction=connection)

    async def view() -> None:
        await sync_to_async(work)()
        await sync_to_async(connections.close_all)()

    asyncio.run(view())
    assert data(jobs) == ["x"]
