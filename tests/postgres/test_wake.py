"""Waiting calls notice what other processes do, with and without word from the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.conftest import Background
from tests.crash.children import family
from tests.postgres import roles
from tests.sqlite import roles as common
from tests.support import postgres
from tests.support.postgres import until

import penstock
from penstock.engines.postgres import listener
from penstock.testing import waiting


@pytest.fixture
def place(lent: str) -> str:
    return lent


@pytest.fixture
def url(place: str, notify: str) -> str:
    """A place whose processes tell each other of changes, or look for them."""
    return f"{place}&notify={notify}"


both_ways = pytest.mark.parametrize("notify", ["on", "off"])
mostly_told = pytest.mark.parametrize("notify", ["on", pytest.param("off", marks=pytest.mark.exhaustive)])


def store_of(q: penstock.Queue) -> Any:
    return q._engine.store


def in_line(q: penstock.Queue, call: Any) -> Background:
    """A call that waits, and whose waiting others know of if they can."""
    before = waiting(q)
    background = Background(call)
    until(lambda: waiting(q) > before or not background.running, "the call does not wait")
    if store_of(q).place.notify:
        until(lambda: hears_all(q), "the listener does not hear")
    return background


def hears_all(q: penstock.Queue) -> bool:
    store = store_of(q)
    return store._listener.hears and set(store.waits()) <= set(store._listener._said)


def database_of(url: str) -> str:
    return urlsplit(url).path[1:]


def ask(url: str, text: str) -> Any:
    (schema,) = parse_qs(urlsplit(url).query)["schema"]
    with postgres.shared_server().connect(database_of(url)) as connection:
        connection.execute(f"set search_path to {schema}")
        return connection.execute(text).fetchone()[0]


@both_ways
def test_each_put_of_another_process_wakes_one_taker(url):
    with penstock.connect(url) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")
        takers = [in_line(q, lambda: jobs.take(timeout=60)) for _ in range(3)]
        putter = children.start(common.put_when_told, url)
        assert putter.line() == ["ready"]
        for data in ("a", "b", "c"):
            putter.tell(data)
            assert putter.line()[0] == "put"
        assert [taker.result().data for taker in takers] == ["a", "b", "c"], "first come, first served"


@mostly_told
def test_takers_in_several_processes_get_a_task_each(url):
    with penstock.connect(url) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")
        takers = [children.start(roles.take_and_say, url, 2) for _ in range(3)]
        for taker in takers:
            assert taker.line() == ["ready"]
        jobs.put_many(range(6))
        assert sorted(taker.line()[1] for taker in takers for _ in range(2)) == list(range(6))


@mostly_told
def test_room_and_results_and_due_tasks_wake_too(url):
    with penstock.connect(url) as q, family() as children:
        jobs = q.create_tube("jobs", "limfifottl", capacity=1)
        first = jobs.put("first")
        watcher = in_line(q, lambda: jobs.wait(first.id, timeout=60))
        producer = in_line(q, lambda: jobs.put("second", timeout=60, delay=0.2))
        taker = children.start(roles.take_and_finish, url)
        assert taker.line() == ["holds", first.id]
        assert taker.line() == ["acked", "success"]
        assert watcher.result().reason == "success"
        assert producer.result().data == "second"
        assert in_line(q, lambda: jobs.take(timeout=60)).result().data == "second"


def test_word_of_a_change_comes_before_the_next_look(place, monkeypatch):
    """The look for changes is switched off: only the server's word is left."""
    with penstock.connect(place) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")
        monkeypatch.setattr(store_of(q), "foreign_change", lambda: False)
        putter = children.start(common.put_when_told, place)
        assert putter.line() == ["ready"]
        for n in range(5):
            taker = in_line(q, lambda: jobs.take(timeout=60))
            putter.tell(n)
            assert taker.result().data == n


def test_nobody_is_told_when_nobody_waits(place):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs", "fifo")
        channel = store_of(q)._listener._channel
        with postgres.shared_server().connect(database_of(place)) as ear:
            ear.execute(f"listen {channel}")
            jobs.put("quiet")
            with postgres.shared_server().connect(database_of(place)) as other:
                other.execute(f"notify {channel}, 'end'")
            assert [note.payload for note in ear.notifies(timeout=60, stop_after=1)] == ["end"]
            jobs.take().ack()
            taker = in_line(q, lambda: jobs.take(timeout=60))
            with q.transaction() as tx:
                for n in range(3):
                    jobs.put(n, transaction=tx)
            assert taker.result().data == 0
            notes = list(ear.notifies(timeout=60, stop_after=1))
            assert len(notes) == 1, "three puts of one transaction are one word"


def test_with_notify_off_nobody_listens_and_nobody_is_registered(place):
    url = f"{place}&notify=off"
    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", "fifo")
        taker = in_line(q, lambda: jobs.take(timeout=60))
        assert store_of(q)._listener is None
        assert ask(url, "select count(*) from waits") == 0
        jobs.put("x")
        assert taker.result().data == "x"


def test_a_listener_whose_connection_is_ended_connects_again_and_hears(place):
    with penstock.connect(place) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")
        putter = children.start(common.put_when_told, place)
        assert putter.line() == ["ready"]
        for n in range(2):
            taker = in_line(q, lambda: jobs.take(timeout=60))
            listening = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where query ~ 'penstock_|waits'"
            assert ask(place, f"{listening} and query !~ 'terminate' and application_name = 'penstock'")
            until(lambda: hears_all(q), "the listener does not hear again")
            putter.tell(n)
            assert taker.result().data == n


def test_the_listener_sleeps_while_nothing_happens(place, monkeypatch):
    """It is woken by newcomers and changes, and otherwise only to say again that somebody waits: here, never."""
    monkeypatch.setattr(listener, "AFRESH", 1000.0)
    with penstock.connect(place) as q:
        jobs, others = q.create_tube("jobs", "fifo"), q.create_tube("others", "fifo")
        its = store_of(q)._listener
        taker = in_line(q, lambda: jobs.take(timeout=60))
        woken = []
        sleep = type(its)._sleep
        monkeypatch.setattr(its, "_sleep", lambda *a, **k: (sleep(its, *a, **k), woken.append(1))[0])
        for n in range(100):
            others.put(n)
        assert len(woken) <= 1, "once at most, by the newcomer"
        jobs.put("x")
        assert taker.result().data == "x"


def test_who_has_died_is_struck_off(place):
    with penstock.connect(place) as q:
        q.create_tube("jobs", "fifo")
        insert = "insert into waits values (1, gen_random_uuid(), true, true, now() - interval '2 minutes') returning 1"
        assert ask(place, insert) == 1
        until(lambda: ask(place, "select count(*) from waits") == 0, "the dead stay")


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """No listener and no keeper outlives its store."""
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        names = [thread.name for thread in set(threading.enumerate()) - before]
        return [name for name in names if name == "penstock listener" or name.startswith("penstock keeper")]

    until(lambda: not left(), "a thread stays")


def test_a_child_without_the_right_to_listen_still_looks(place):
    """A server that refuses LISTEN, as a pooler may, costs speed and nothing else."""
    with penstock.connect(place) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")

        def refuse(*_: Any) -> Any:
            raise psycopg.errors.FeatureNotSupported("no listen here")

        store_of(q)._listener._listen = refuse
        putter = children.start(common.put_when_told, place)
        assert putter.line() == ["ready"]
        taker = Background(lambda: jobs.take(timeout=60))
        putter.tell("x")
        assert taker.result().data == "x"
