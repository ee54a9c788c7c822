"""Servers that are killed under load, and servers side by side: nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import tarantool
from tests.cli.shell import PATIENCE
from tests.server.hammer import Named, Stubborn, Tarantool, made
from tests.support.reservation import free_port
from tests.support.serving import Serving

import penstock
from penstock.model.errors import PenstockError

SOME = 25
"""Tasks that are done at each of the servers."""
pytestmark = [pytest.mark.filterwarnings("ignore::tarantool.error.NetworkWarning"), pytest.mark.timeout(300)]


def on(in_every_run: str) -> Any:
    """The store of every run; with the other one only in `make test-all`: doors and stores do not know each other."""
    stores = [
        pytest.param(store, marks=() if store == in_every_run else pytest.mark.exhaustive)
        for store in ("sqlite", "postgres")
    ]
    return pytest.mark.parametrize("store", stores, indirect=True)


def end_sessions(store: str) -> None:
    """The time of all sessions is over, which servers have kept that were killed: to wait for it shows no more."""
    if store.endswith(".db"):
        file = apsw.Connection(store)
        file.execute("UPDATE penstock_sessions SET expires_at = 1, ttl = 1")
        file.close()
        return
    address, _, schema = store.partition("?schema=")
    with psycopg.connect(address) as connection:
        connection.execute(f"set search_path to {schema}")
        connection.execute("update sessions set expires_at = 1, ttl = 1")


def killed_twice(
    tmp_path: Path,
    store: str,
    hands: Callable[[Serving], Stubborn],
    *words: str,
    meanwhile: Callable[[str], None] = lambda store: None,
) -> None:
    """Run hands while their server is killed and started anew, twice, at its place.

    meanwhile: what happens to the store while there is no server
    """
    made(store)
    words = ("--port", str(free_port()), *words)
    with Serving(tmp_path, store, *words) as first, hands(first) as working:
        working.more(SOME)
        first.kill()
        meanwhile(store)
        with Serving(tmp_path, store, *words) as second:
            working.more(SOME)
            second.kill()
        meanwhile(store)
        with Serving(tmp_path, store, *words):
            working.more(SOME)
            working.end()
    with penstock.connect(store) as queue:
        working.kept({task.data for task in queue.tube("mail").tasks(limit=1000)})


@on("postgres")
def test_clients_of_tarantool_lose_nothing_when_servers_are_killed(tmp_path: Path, store: str):
    def hands(server: Serving) -> Stubborn:
        options = {"reconnect_delay": 0.05, "reconnect_max_attempts": 1000}
        return Stubborn(Tarantool(), lambda: tarantool.Connection("127.0.0.1", server.port, **options))

    killed_twice(tmp_path, store, hands, meanwhile=end_sessions)


@on("sqlite")
def test_clients_of_the_library_lose_nothing_when_servers_are_killed(tmp_path: Path, store: str):
    killed_twice(tmp_path, store, lambda server: Stubborn(Named(), lambda: penstock.connect(server.url)))


@on("sqlite")
def test_clients_of_grpc_lose_nothing_when_servers_are_killed(tmp_path: Path, store: str):
    def hands(server: Serving) -> Stubborn:
        return Stubborn(Named(), lambda: penstock.connect(server.document["urls"]["grpc_port"]))

    killed_twice(tmp_path, store, hands, "--grpc-port", str(free_port()))


@on("sqlite")
def test_a_lease_of_the_library_outlives_a_server_that_was_killed(tmp_path: Path, store: str):
    made(store)
    port = str(free_port())
    with Serving(tmp_path, store, "--port", port) as first:
        queue = penstock.connect(first.url, session_ttl=600)
        tube = queue.tube("mail")
        tube.put("a")
        task = tube.take()
        assert task is not None
        first.kill()
        with Serving(tmp_path, store, "--port", port):
            task.ack()
            with pytest.raises(PenstockError):
                tube.peek(task.id)
            queue.close()


# -- side by side --------------------------------------------------------------------------------------


def test_servers_side_by_side_wake_each_others_takers(tmp_path: Path, database: str):
    made(database)
    with Serving(tmp_path, database) as left, Serving(tmp_path, database) as right:
        assert left.port != right.port
        taker = tarantool.Connection("127.0.0.1", left.port)
        putter = tarantool.Connection("127.0.0.1", right.port)
        for number in range(20):
            got = list[Any]()
            thread = threading.Thread(
                target=lambda got=got: got.append(taker.call("queue.tube.mail:take", (600,)).data)
            )
            thread.start()
            putter.call("queue.tube.mail:put", (number,))
            thread.join(PATIENCE)
            assert got[0][0][2] == number
            taker.call("queue.tube.mail:ack", (got[0][0][0],))
        taker.close()
        putter.close()
        assert (left.stop(), right.stop()) == (0, 0)


def test_a_session_is_resumed_at_the_other_server(tmp_path: Path, database: str):
    made(database)
    with Serving(tmp_path, database) as left, Serving(tmp_path, database) as right:
        first = tarantool.Connection("127.0.0.1", left.port, encoding=None)  # uuids are 16 bytes
        second = tarantool.Connection("127.0.0.1", right.port, encoding=None)
        first.call("queue.tube.mail:put", ("a",))
        task = first.call("queue.tube.mail:take", (0,)).data[0]
        uuid = first.call("queue.identify").data[0]
        second.call("queue.identify", (uuid,))
        first.close()
        assert second.call("queue.tube.mail:ack", (task[0],)).data[0][1] == b"-"
        second.close()


@pytest.mark.parametrize("in_real_time", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_one_of_two_is_killed_and_the_other_goes_on_with_all_of_it(tmp_path: Path, database: str, in_real_time: bool):
    made(database)
    with Serving(tmp_path, database) as left, Serving(tmp_path, database) as right:
        doomed = tarantool.Connection("127.0.0.1", left.port)
        for number in range(10):
            doomed.call("queue.tube.mail:put", (number,))
        held = doomed.call("queue.tube.mail:take", (0,)).data[0]
        left.kill()
        doomed.close()
        if not in_real_time:  # to wait for ten seconds would show no more
            end_sessions(database)
        client = tarantool.Connection("127.0.0.1", right.port)
        seen = set()
        while len(seen) < 10:  # the one that was held comes back with the end of its session
            found = client.call("queue.tube.mail:take", (600,)).data
            seen.add(found[0][2])
            client.call("queue.tube.mail:ack", (found[0][0],))
        assert held[2] in seen
        client.close()
