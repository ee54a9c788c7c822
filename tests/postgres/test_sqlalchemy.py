"""transaction= with sessions and connections of SQLAlchemy, blocking and async."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from tests.support.invariants import check

import penstock
from penstock import DuplicateKey, LeaseLost, UsageError
from penstock.engines.postgres.place import Place


class Base(orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders_of_sqlalchemy"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def address(url: str) -> str:
    return Place.parse(url).conninfo.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
def engine(address: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(address)
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        yield queue
        check(url)


@pytest.fixture
def jobs(q: penstock.Queue) -> penstock.Tube:
    return q.create_tube("jobs")


def data(tube: penstock.Tube) -> list[Any]:
    return [task.data for task in tube.tasks()]


def orders(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(sa.text("select count(*) from orders_of_sqlalchemy")) or 0


def test_a_put_is_part_of_a_session(engine, jobs):
    with orm.Session(engine) as session, session.begin():
        session.add(Order(id=1))
        jobs.put("ship", transaction=session)
        assert data(jobs) == []
    assert (orders(engine), data(jobs)) == (1, ["ship"])


def test_what_comes_first_begins_the_transaction_of_a_session(engine, jobs):
    with orm.Session(engine) as session:
        jobs.put("first", transaction=session)
        session.add(Order(id=1))
        session.rollback()
        assert (orders(engine), data(jobs)) == (0, [])
        jobs.put("second", transaction=session)
        session.add(Order(id=2))
        session.commit()
    assert (orders(engine), data(jobs)) == (1, ["second"])


def test_a_put_and_an_ack_of_a_connection_are_committed_by_it(engine, jobs):
    jobs.put("work")
    task = jobs.take()
    with engine.connect() as connection:
        task.ack(transaction=connection)
        jobs.put("next", transaction=connection)
        connection.rollback()
        assert data(jobs) == ["work"]
        task.ack(transaction=connection)
        jobs.put_many(["next"], transaction=connection)
        connection.commit()
    assert data(jobs) == ["next"]
    with pytest.raises(LeaseLost):
        task.release()
    with engine.begin() as connection:
        jobs.put("last", transaction=connection)
    assert data(jobs) == ["next", "last"]


def test_a_connection_that_is_given_back_without_a_commit_has_put_nothing(engine, jobs):
    with engine.connect() as connection:
        jobs.put("x", transaction=connection)
    assert data(jobs) == []


def test_a_task_object_whose_ack_was_rolled_back_holds_the_task(engine, jobs):
    jobs.put("x")
    task = jobs.take()
    with orm.Session(engine) as session:
        task.ack(transaction=session)
        session.rollback()
        task.release()
        assert not session.in_transaction()
    assert jobs.statistics().calls["release"] == 1


def test_a_nested_transaction_undoes_what_is_its_own(engine, jobs):
    with orm.Session(engine) as session, session.begin():
        jobs.put("outer", transaction=session)
        nested = session.begin_nested()
        jobs.put("inner", transaction=session)
        nested.rollback()
        failing = session.begin_nested()
        jobs.put("failed", transaction=session)
        session.add_all([Order(id=1), Order(id=1)])
        with pytest.raises(sa.exc.IntegrityError):
            failing.commit()
        failing.rollback()
    assert data(jobs) == ["outer"]


def test_a_scoped_session_and_one_of_a_subclass_are_sessions(engine, jobs):
    class Mine(orm.Session):
        pass

    scoped = orm.scoped_session(orm.sessionmaker(engine, class_=Mine))
    jobs.put("x", transaction=scoped)
    scoped.commit()
    scoped.remove()
    assert data(jobs) == ["x"]


def test_a_refusal_leaves_the_session_usable(engine, jobs):
    jobs.put("first", key="k")
    with orm.Session(engine) as session, session.begin():
        session.add(Order(id=1))
        with pytest.raises(DuplicateKey):
            jobs.put("again", key="k", transaction=session)
        jobs.put("second", transaction=session)
    assert (orders(engine), data(jobs)) == (1, ["first", "second"])


def test_a_session_that_has_failed_is_refused(engine, jobs):
    with orm.Session(engine) as session:
        session.add_all([Order(id=1), Order(id=1)])
        with pytest.raises(sa.exc.IntegrityError):
            session.flush()
        with pytest.raises(UsageError, match="roll"):
            jobs.put("x", transaction=session)
        session.rollback()
        jobs.put("y", transaction=session)
        session.commit()
    assert data(jobs) == ["y"]


def test_a_connection_whose_transaction_has_failed_is_refused(engine, jobs):
    with engine.connect() as connection:
        with pytest.raises(sa.exc.DataError):
            connection.execute(sa.text("select 1 / 0"))
        with pytest.raises(UsageError, match="roll it back"):
            jobs.put("x", transaction=connection)
        connection.rollback()
        jobs.put("y", transaction=connection)
        connection.commit()
        connection.close()
        with pytest.raises(UsageError, match="closed"):
            jobs.put("z", transaction=connection)
    assert data(jobs) == ["y"]


def test_what_has_no_transaction_is_refused(engine, jobs):
    plain = engine.execution_options(isolation_level="AUTOCOMMIT")
    with plain.connect() as connection, pytest.raises(UsageError, match="AUTOCOMMIT"):
        jobs.put("x", transaction=connection)
    with orm.Session(engine, twophase=True) as session, pytest.raises(UsageError, match="two phases"):
        jobs.put("x", transaction=session)
    with engine.connect() as connection:
        phases = connection.begin_twophase()
        with pytest.raises(UsageError, match="two phases"):
            jobs.put("x", transaction=connection)
        phases.rollback()
    with orm.Session() as session, pytest.raises(UsageError, match="no connection"):
        jobs.put("x", transaction=session)
    with pytest.raises(UsageError, match="Engine"):
        jobs.put("x", transaction=engine)
    assert data(jobs) == []


def test_another_driver_is_named(jobs):
    elsewhere = sa.create_engine("sqlite://")
    with elsewhere.connect() as connection, pytest.raises(UsageError, match="pysqlite"):
        jobs.put("x", transaction=connection)
    with orm.Session(elsewhere) as session, pytest.raises(UsageError, match=r"postgresql\+psycopg"):
        jobs.put("x", transaction=session)
    elsewhere.dispose()


# -- async ---------------------------------------------------------------------------------------------


def test_async_sessions_and_connections(url, address, engine):
    async def scene(q: penstock.AsyncQueue, there: AsyncEngine) -> None:
        jobs = await q.create_tube("jobs")

        async def stored() -> list[Any]:
            return [task.data for task in await jobs.tasks()]

        async with AsyncSession(there) as session, session.begin():
            session.add(Order(id=1))
            await jobs.put("session", transaction=session)
            assert await stored() == []
        assert (orders(engine), await stored()) == (1, ["session"])
        task = await jobs.take()
        async with async_sessionmaker(there)() as session:
            await task.ack(transaction=session)
            await session.rollback()
            assert (await jobs.peek(task.id)).state == "taken"
            await task.ack(transaction=session)
            await session.commit()
        async with there.connect() as connection:
            await jobs.put("never", transaction=connection)
            await connection.rollback()
            await jobs.put("connection", transaction=connection)
            await connection.commit()
        async with there.begin() as connection:
            await jobs.put_many(["begun"], transaction=connection)
        assert await stored() == ["connection", "begun"]
        with pytest.raises(UsageError, match="closed"):
            await jobs.put("x", transaction=connection)

    async def run() -> None:
        there = create_async_engine(address)
        try:
            async with await penstock.aconnect(url) as q:
                await scene(q, there)
                check(url)
        finally:
            await there.dispose()

    asyncio.run(run())


def test_an_async_session_belongs_to_an_async_queue(address, jobs):
    async def run() -> None:
        there = create_async_engine(address)
        async with AsyncSession(there) as session:
            with pytest.raises(UsageError, match="aconnect"):
                jobs.put(1, transaction=session)
        await there.dispose()

    asyncio.run(run())


def test_a_session_that_blocks_serves_an_async_queue(url, engine):
    async def run() -> None:
        async with await penstock.aconnect(url) as q:
            jobs = await q.create_tube("jobs")
            with orm.Session(engine) as session:
                await jobs.put("x", transaction=session)
                assert await jobs.tasks() == []
                session.commit()
            assert (await jobs.take()).data == "x"

    asyncio.run(run())
