"""What only a remote engine has: URLs, one connection for all, forks, goodbyes, long calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Background
from tests.remote.line import Line
from tests.support import remotes
from tests.support.servers import Running, run
from tests.worker.bench import until

import penstock
from penstock import EngineUnavailable, State, UsageError
from penstock.engines import engine_name, store_name
from penstock.engines.remote import channel
from penstock.engines.remote.place import Place
from penstock.model import ops
from penstock.server import logins
from penstock.server.auth import new_token
from penstock.server.settings import Limits

# -- URLs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("penstock://host", Place("penstock", "host", 3301)),
        ("PENSTOCK://Host:5", Place("penstock", "host", 5)),
        ("grpc://host/", Place("grpc", "host", 3302)),
        ("penstock://[::1]:7", Place("penstock", "::1", 7)),
        ("penstock://ann:a%40b@host", Place("penstock", "host", 3301, "ann", "a@b")),
        ("penstock://host?ca=x.pem", Place("penstock", "host", 3301, None, None, True, "x.pem")),
        (
            "penstock://host?tls=on&cert=c&key=k",
            Place("penstock", "host", 3301, tls=True, cert="c", key="k"),
        ),
    ],
)
def test_a_url_names_a_server(url: str, place: Place) -> None:
    assert Place.parse(url) == place
    assert engine_name(url) == "remote" and "a@b" not in store_name(url)


@pytest.mark.parametrize(
    "url",
    [
        *("penstock://", "penstock://host:x", "penstock://host/db", "penstock://host?tls=maybe", "penstock://host#x"),
        *("penstock://host?cert=c", "penstock://host?colour=red", "penstock://host:99999"),
    ],
)
def test_what_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        penstock.connect(url)


def test_a_secret_is_looked_up_where_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    monkeypatch.setenv("QUEUE_SECRET", "from env")
    assert Place.parse("penstock://a:env:QUEUE_SECRET@h").password() == "from env"
    assert Place.parse(f"penstock://a:file:{tmp_path}/secret@h").password() == "from file"
    assert Place.parse("penstock://a:plain@h").password() == "plain"
    for missing in ("env:NO_SUCH", "file:/no/such"):
        with pytest.raises(UsageError, match="secret"):
            Place("penstock", "h", 1, "a", missing).password()


def test_one_place_cannot_be_open_in_two_ways(url: str) -> None:
    with penstock.connect(url), pytest.raises(UsageError, match="tls"):
        penstock.connect(f"{url}?tls=on")


def test_two_logins_of_a_process_are_two_places(tmp_path: Path) -> None:
    file, token = str(tmp_path / "logins.toml"), new_token()
    rights = [logins.new_right(["admin"], ["*"])]
    logins.write_entries(file, {name: logins.new_entry(name, rights, token) for name in ("ann", "bob")})
    with Running("memory:logins", logins=file) as running:
        ann, bob = (running.url.replace("//", f"//{name}:{token}@") for name in ("ann", "bob"))
        with penstock.connect(ann) as one, penstock.connect(bob) as other:
            one.create_tube("jobs").put(1)
            assert other.tube("jobs").take().data == 1
            assert one._engine.store is not other._engine.store and token not in one._engine.name


# -- one connection ------------------------------------------------------------------------------------


def test_all_queues_and_threads_of_a_process_share_one_connection(line: Line, q: Any) -> None:
    jobs = q.create_tube("jobs")
    with penstock.connect(line.address) as other:
        threads = [threading.Thread(target=lambda: [jobs.put(n) for n in range(30)]) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(other.tube("jobs").tasks(limit=2000)) == 300
    assert line.made == 1


def test_tasks_of_a_loop_do_not_wait_for_each_other(url: str) -> None:
    async def main() -> list[int]:
        async with await penstock.aconnect(url) as q:
            jobs = await q.create_tube("jobs")
            waiting = [asyncio.create_task(jobs.take(timeout=None)) for _ in range(200)]
            await asyncio.gather(*(jobs.put(n) for n in range(200)))
            found = await asyncio.gather(*waiting)
            await asyncio.gather(*(task.ack() for task in found))
            return sorted(task.data for task in found)

    assert asyncio.run(main()) == list(range(200))


def test_who_waits_needs_no_thread(url: str) -> None:
    async def main() -> int:
        async with await penstock.aconnect(url) as q:
            jobs = await q.create_tube("jobs")
            await jobs.put("warm")
            await (await jobs.take()).ack()
            before = threading.active_count()
            waiting = [asyncio.create_task(jobs.take(timeout=None)) for _ in range(50)]
            while q._engine.engine.store.waiters < 50:
                await asyncio.sleep(0)
            grown = threading.active_count() - before
            await jobs.put_many(range(50))
            await asyncio.gather(*waiting)
            return grown

    assert asyncio.run(main()) < 25  # those of other tests may come and go


def test_what_cannot_be_sent_fails_alone(near: Any) -> None:
    jobs = near.create_tube("jobs")
    asked = [ops.Put("jobs", (penstock.model.task.Draft("1"),)), ops.AlterTube("jobs", {"retry": object()})]
    first, second = near._engine.execute_many(asked)
    assert first[0].outcome == "new" and isinstance(second, UsageError)
    assert len(jobs.tasks()) == 1


def test_a_call_longer_than_a_frame_is_refused_and_nobody_else_is(near: Any) -> None:
    jobs = near.create_tube("jobs", max_payload=1 << 25)
    with pytest.raises(penstock.PayloadTooLarge, match="server"):
        jobs.put("x" * (1 << 24))
    assert jobs.put(1).outcome == "new"


def test_long_data_comes_and_goes(near: Any) -> None:
    jobs = near.create_tube("jobs")
    data = ["y" * 1_000_000] * 10
    assert jobs.put(data[0]).data == data[0]
    jobs.put_many(data[1:])
    assert [task.data for task in jobs.take_many(20)] == data


def test_a_connection_of_something_else_cannot_be_joined(near: Any) -> None:
    jobs = near.create_tube("jobs")
    with pytest.raises(UsageError, match="server"):
        jobs.put(1, transaction=object())


# -- transactions --------------------------------------------------------------------------------------


@pytest.fixture
def hurried() -> Iterator[str]:
    """A server that gives transactions a tenth of a second."""
    with Running("memory:hurried", limits=Limits(transaction_seconds=0.1)) as running:
        yield running.url


def test_a_transaction_is_not_for_ever(hurried: str) -> None:
    with penstock.connect(hurried) as q:
        jobs = q.create_tube("jobs")
        thread = threading.Thread(target=lambda: jobs.put(2))

        def dawdle(tx: Any) -> None:
            thread.start()
            jobs.put(1, transaction=tx)  # in time, or not
            thread.join()  # it has to wait for the end of the transaction

        with pytest.raises(EngineUnavailable, match=r"0\.1 seconds"), q.transaction() as tx:
            dawdle(tx)
        thread.join()
        assert [task.data for task in jobs.tasks()] == [2]


# -- forks and goodbyes --------------------------------------------------------------------------------


def test_a_child_leaves_the_connection_of_its_parent_alone(line: Line, q: Any) -> None:
    jobs = q.create_tube("jobs")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            try:
                jobs.put("from the child")
            except UsageError:
                with penstock.connect(line.address) as own:
                    own.tube("jobs").put("on its own")
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert jobs.put("from the parent").id == 2
    assert line.made == 2


def test_a_server_that_goes_is_left_for_the_next_and_no_call_fails(tmp_path: Path) -> None:
    file = str(tmp_path / "tasks.db")
    first = Running(file)
    line = Line(int(first.url.rpartition(":")[2]))
    q = penstock.connect(line.address)
    jobs = q.create_tube("jobs")
    jobs.put("held")
    held = jobs.take()
    put: list[int] = []
    enough, errors = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not enough.is_set():
                put.append(jobs.put(len(put)).id)
        except BaseException as error:
            errors.append(error)

    taken: list[Any] = []
    rare = q.create_tube("rare")
    threads = [threading.Thread(target=work), threading.Thread(target=lambda: taken.append(rare.take(timeout=None)))]
    for thread in threads:
        thread.start()
    until(lambda: len(put) > 20)
    second = Running(file)
    line.to = int(second.url.rpartition(":")[2])
    run(first.server.retire())
    seen = len(put)
    until(lambda: len(put) > seen + 20 or errors)
    enough.set()
    rare.put("at last")
    for thread in threads:
        thread.join(90)
    assert errors == [] and taken[0].data == "at last"
    assert held.ack().state == State.DONE
    assert sorted(task.id for task in jobs.tasks(limit=100_000)) == sorted(put)
    q.close()
    line.close()
    first.stop()
    second.stop()


def test_the_end_of_a_queue_gives_back_what_it_holds(line: Line, near: Any) -> None:
    near.create_tube("jobs").put(1)
    with penstock.connect(line.address) as q:
        q.tube("jobs").take()
    assert near.tube("jobs").peek(1).state == State.READY


def test_a_client_that_is_gone_takes_nothing_more(line: Line, near: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PULSE", 0.05)
    jobs = near.create_tube("jobs")
    lost = penstock.connect(line.address, session_ttl=600)
    monkeypatch.setattr(lost._engine.store.channel, "_patience", lambda: 0.1)
    waiting = lost.tube("jobs")
    taking = Background(lambda: waiting.take(None))
    until(lambda: lost._engine.store.waiters == 1)
    line.close()
    server = remotes.server(near._engine.name).server
    until(lambda: not server.core.engine.store.waiters)
    jobs.put(1)
    assert jobs.take().data == 1
    with pytest.raises(EngineUnavailable):
        taking.result()
    with pytest.raises(EngineUnavailable):
        lost.close()


@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_many_that_wait_are_cancelled_together(url: str, number: int) -> None:
    """None of them waits until the one before has left."""

    async def main() -> int:
        async with await penstock.aconnect(url) as q:
            jobs = await q.create_tube("jobs")
            waiting = [asyncio.create_task(jobs.take(timeout=None)) for _ in range(number)]
            store = q._engine.engine.store
            while len(store._waits) < number:
                await asyncio.sleep(0)
            in_turn = 0
            withdraw = store.withdraw

            def counted(waiter: Any) -> None:
                nonlocal in_turn
                in_turn += 1
                withdraw(waiter)

            store.withdraw = counted
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await jobs.put(1)
            assert (await jobs.take()).attempt == 1
            del store.withdraw
            return in_turn

    assert asyncio.run(main()) == 0
