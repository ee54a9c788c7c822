"""A server that hangs while its connections stay open."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import Background
from tests.remote.line import Line
from tests.worker.bench import until

from penstock import EngineUnavailable
from penstock.engines.remote import channel
from penstock.engines.remote.link import Link


@pytest.fixture(autouse=True)
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PULSE", 0.05)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "patience", 0.25)


@pytest.mark.usefixtures("hurried")
def test_it_is_left_and_called_again(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    before = line.made
    line.flowing.clear()
    putting = Background(lambda: jobs.put(1))
    until(lambda: line.made > before)
    line.flowing.set()
    assert putting.result().outcome == "new"
    assert len(near.tube("jobs").tasks()) == 1


@pytest.mark.usefixtures("hurried")
def test_who_has_waited_long_enough_is_told(q: Any, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = q.create_tube("jobs")
    with monkeypatch.context() as patch:
        patch.setattr(q._engine.store.channel, "_patience", lambda: 0.1)
        line.flowing.clear()
        with pytest.raises(EngineUnavailable) as caught:
            jobs.put(1)
        assert caught.value.outcome == "unknown"
        with pytest.raises(EngineUnavailable):
            jobs.take(timeout=60)
        line.flowing.set()
    monkeypatch.setattr(Link, "patience", 60.0)
    until(lambda: q._engine.store.channel.connected)  # the end of a queue is told in two seconds, or not at all


def test_one_that_takes_its_time_is_not_left(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    link, called = q._engine.store.channel._link, set[float | None]()
    with near.transaction():
        putting = Background(lambda: jobs.put(1))
        # When it is asked for a sign of life it answers, and is asked again later.
        until(lambda: called.add(link.called_at) or len(called - {None}) > 3)
    assert putting.result().outcome == "new" and line.made == 1
