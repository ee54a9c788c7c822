"""A server that hangs while its connections stay open."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import Background
from tests.remote.line import Line
from tests.worker.bench import until

import penstock
from penstock import EngineUnavailable
from penstock.engines.remote import channel
from penstock.engines.remote.link import Link


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PULSE", 0.05)
    monkeypatch.setattr(Link, "patience", 0.5)


def test_it_is_left_and_called_again(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    line.flowing.clear()
    putting = Background(lambda: jobs.put(1))
    until(lambda: line.made == 2)
    line.flowing.set()
    assert putting.result().outcome == "new"
    assert len(near.tube("jobs").tasks()) == 1


def test_who_has_waited_long_enough_is_told(line: Line) -> None:
    q = penstock.connect(line.address, session_ttl=30)
    jobs = q.create_tube("jobs")
    q._engine.store.channel._patience = lambda: 0.5
    line.flowing.clear()
    with pytest.raises(EngineUnavailable) as caught:
        jobs.put(1)
    assert caught.value.outcome == "unknown"
    with pytest.raises(EngineUnavailable) as caught:
        jobs.take(timeout=0.1)
    line.flowing.set()
    del q._engine.store.channel._patience
    q.close()


def test_one_that_takes_its_time_is_not_left(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    talk = q._engine.store.channel
    with near.transaction():
        putting = Background(lambda: jobs.put(1))
        asked = talk._link.moved_at
        until(lambda: talk._open and talk._link.moved_at > asked + 2)  # it answers when it is asked for a sign of life
    assert putting.result().outcome == "new" and line.made == 1
