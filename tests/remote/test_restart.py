"""A server that is started anew does not know what it was asked: what may be done twice is, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Background
from tests.remote.conftest import LONG
from tests.remote.line import Line
from tests.support.proxy import REPLY, REQUEST
from tests.support.reservation import free_port
from tests.support.servers import Running
from tests.support.serving import Serving
from tests.worker.bench import until

import penstock
from penstock import EngineUnavailable, LeaseLost, State
from penstock.model import ops

LOST = pytest.mark.parametrize("what", [REQUEST, REPLY])


class Place:
    """A file, a server of it that can be started anew, and a line to whichever there is."""

    def __init__(self, folder: Path) -> None:
        self._file = str(folder / "tasks.db")
        self.server = Running(self._file)
        self.line = Line(self._port())
        self.q = penstock.connect(self.line.address, session_ttl=LONG)
        self.jobs = self.q.create_tube("jobs")

    def _port(self) -> int:
        return int(self.server.url.rpartition(":")[2])

    def put(self, data: Any) -> None:
        """Put a task past the line, once somebody waits for one at the server."""
        until(lambda: self.server.server.core.waiting == 1)
        with penstock.connect(self.server.url) as other:
            other.tube("jobs").put(data)

    def without_a_server(
        self, what: str, at: Any, call: Callable[[], Any], provoke: Callable[[], None] = lambda: None
    ) -> Any:
        """What a call answers during which the server is lost, and found again as another one.

        provoke: makes a server answer that would wait otherwise
        """
        self.line.lose(what, at, for_good=True)
        background = Background(call)
        if what == REPLY:
            provoke()
        self.line.wait()
        self.server.stop()
        self.server = Running(self._file)
        self.line.to = self._port()
        self.line.open()
        if what == REQUEST:
            provoke()
        return background.result()

    def close(self) -> None:
        self.q.close()
        self.line.close()
        self.server.stop()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


@LOST
def test_a_put_with_a_put_id_is_done_once(place: Place, what: str) -> None:
    task = place.without_a_server(what, ops.Put, lambda: place.jobs.put(1, put_id="p"))
    assert task.outcome == ("new" if what == REQUEST else "existing")
    assert [found.id for found in place.jobs.tasks()] == [task.id]


@LOST
def test_of_a_put_without_one_nobody_knows(place: Place, what: str) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        place.without_a_server(what, ops.Put, lambda: place.jobs.put(1))
    assert caught.value.outcome == "unknown"
    assert len(place.jobs.tasks()) == (what == REPLY)


@LOST
def test_what_was_granted_unheard_of_is_given_back(place: Place, what: str) -> None:
    place.jobs.put_many([1, 2, 3])
    first = place.jobs.take()
    second = place.without_a_server(what, ops.Take, place.jobs.take)
    assert [(task.data, task.attempt) for task in (first, second)] == [(1, 1), (2, 1)]
    assert [task.state for task in place.jobs.tasks()] == [State.TAKEN, State.TAKEN, State.READY]
    assert first.ack().state == second.ack().state == State.DONE


@LOST
def test_a_take_that_waits_waits_at_the_next_server(place: Place, what: str) -> None:
    take, put = lambda: place.jobs.take(timeout=LONG), lambda: place.put(1)
    task = place.without_a_server(what, "wait", take, provoke=put)
    assert (task.data, task.attempt) == (1, 1)


@LOST
def test_an_ack_is_done_once(place: Place, what: str) -> None:
    place.jobs.put(1)
    task = place.jobs.take()
    assert place.without_a_server(what, ops.Ack, task.ack).state == State.DONE
    assert place.jobs.tasks() == []


@LOST
def test_a_delete_may_have_been_done(place: Place, what: str) -> None:
    task = place.jobs.put(1)
    with pytest.raises(EngineUnavailable) as caught:
        place.without_a_server(what, ops.Delete, lambda: place.jobs.delete(task.id))
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("timeout", [0, LONG])
def test_what_a_take_was_granted_that_has_failed_by_now_is_given_back(
    place: Place, anew: bool, timeout: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.jobs.put(1)
    kept = place.jobs.take()
    if not timeout:
        place.jobs.put(2)
    with monkeypatch.context() as patch:
        patch.setattr(place.q._engine.store.channel, "_patience", lambda: 0.1)
        place.line.lose(REPLY, "wait" if timeout else ops.Take, for_good=True)
        taking = Background(lambda: place.jobs.take(timeout=timeout))
        if timeout:
            place.put(2)
        with pytest.raises(EngineUnavailable) as caught:
            taking.result()
    assert caught.value.outcome == "unknown"
    with penstock.connect(place.server.url) as other:
        until(lambda: place.server.server.core.waiting == 0)
        assert other.tube("jobs").statistics().tasks["taken"] in (1, 2)
    if anew:
        place.server.stop()
        place.server = Running(place._file)
        place.line.to = place._port()
    place.line.open()
    until(lambda: place.jobs.statistics().tasks["taken"] == 1)
    assert kept.ack().state == State.DONE
    again = place.jobs.take(timeout=LONG)
    assert (again.data, again.attempt) == (2, 1)


def test_who_comes_back_to_the_first_server_gets_none_of_its_old_answers(place: Place) -> None:
    """The second one has given back what the first had granted, and then nothing more was heard of it."""
    place.jobs.put_many([1, 2])
    place.line.lose(REPLY, ops.Take, for_good=True)
    taking = Background(place.jobs.take)
    place.line.wait()
    with Running(place._file) as second:
        place.line.to = int(second.url.rpartition(":")[2])
        place.line.lose(REPLY, ops.Release, for_good=True)
        place.line.open()
        place.line.wait()
        place.line.to = place._port()
        place.line.open()
        task = taking.result()
        assert task.attempt == 1 and task.ack().state == State.DONE
        assert place.jobs.statistics().tasks["taken"] == 0


def test_a_session_that_is_over_by_then_has_lost_its_leases(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.q.configure(session_ttl=60)
    place.jobs.put(1)
    task = place.jobs.take()
    with penstock.connect(place.server.url) as other:
        other._engine.execute(ops.EndSession(place.q._session))
    with pytest.raises(LeaseLost):
        place.without_a_server(REQUEST, ops.Ack, task.ack)
    assert place.jobs.take().attempt == 2
    place.close()


def test_a_server_that_is_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    port = str(free_port())
    with Serving(tmp_path, "tasks.db", "--port", port) as server:
        q = penstock.connect(server.url, session_ttl=LONG)
        jobs = q.create_tube("jobs")
        put: list[str] = []
        acked: list[str] = []
        enough, errors = threading.Event(), list[BaseException]()

        def producer() -> None:
            try:
                while not enough.is_set():
                    number = str(len(put))
                    jobs.put(number, put_id=number)
                    put.append(number)
            except BaseException as error:
                errors.append(error)

        def consumer() -> None:
            try:
                while threads[0].is_alive() or len(acked) < len(put):  # the last put may not be written down yet
                    task = jobs.take(timeout=0.1)
                    if task is not None:
                        task.ack()
                        acked.append(task.data)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=target) for target in (producer, consumer)]
        for thread in threads:
            thread.start()
        until(lambda: len(acked) >= 50 or errors)
        server.kill()
        with Serving(tmp_path, "tasks.db", "--port", port):
            seen = len(acked)
            until(lambda: len(acked) >= seen + 50 or errors)
            enough.set()
            for thread in threads:
                thread.join(90)
                assert not thread.is_alive()
            assert errors == []
            assert sorted(acked, key=int) == put
            assert jobs.tasks() == []
            q.close()
