"""Sessions that one process keeps alive cost few statements, however many they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.server.clients import Client
from tests.support.servers import Running

import penstock
from penstock.engines.postgres.work import Work
from penstock.model import ops

SESSIONS = 60


@pytest.fixture
def queues(warm: str) -> Iterator[list[Any]]:
    """Each has a session of its own, on one store."""
    with ExitStack() as stack:
        yield [stack.enter_context(penstock.connect(warm, session_ttl=60)) for _ in range(SESSIONS)]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those by which this thread keeps sessions alive; a keeper may do so at the same time."""
    made: list[str] = []
    rows = Work.rows
    mine = threading.get_ident()

    def watched(work: Work, sql: str, params: Any) -> Any:
        if "extend_session" in sql and threading.get_ident() == mine:
            made.append(sql)
        return rows(work, sql, params)

    monkeypatch.setattr(Work, "rows", watched)
    return made


def test_many_are_kept_alive_by_few_statements(queues: list[Any], statements: list[str]) -> None:
    store = queues[0]._engine.store
    statements.clear()
    store._keep_alive(store._kept_alive())
    assert 0 < len(statements) <= SESSIONS // 20


def test_each_hears_of_its_own_tasks_that_shall_stop(queues: list[Any]) -> None:
    jobs = queues[0].create_tube("jobs")
    jobs.put_many(range(SESSIONS))
    held = [queue.tube("jobs").take() for queue in queues]
    asked = held[::7]
    for task in asked:
        jobs.cancel(task.id)
    signs = [ops.KeepAlive(queue._session) for queue in queues]
    answers = queues[0]._engine.execute_many(signs)
    assert answers == [[task.token] if task in asked else [] for task in held]
    assert [queues[0]._engine.execute(sign) for sign in signs] == answers


def test_a_session_that_had_ended_is_there_again(queues: list[Any]) -> None:
    signs = [ops.KeepAlive(queue._session) for queue in queues[:3]]
    engine = queues[0]._engine
    engine.execute(ops.EndSession(signs[1].session))
    assert engine.execute_many(signs) == [[], [], []]
    assert engine.execute(ops.Identify(signs[1].session.uuid, signs[0].session)).uuid == signs[1].session.uuid


def test_so_it_is_for_the_connections_of_a_server(warm: str, statements: list[str]) -> None:
    with Running(warm) as running:
        with penstock.connect(running.url) as q:
            q.create_tube("jobs", "fifo")
        clients = [Client(running.server.port()) for _ in range(20)]
        for client in clients:
            client.call("queue.tube.jobs:take", 0)
        store = running.server.core.engine.store
        assert len(store._kept_alive()) >= len(clients)
        statements.clear()
        store._keep_alive(store._kept_alive())
        assert 0 < len(statements) <= 3
        for client in clients:
            client.close()
