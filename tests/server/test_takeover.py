"""Restarts that nobody notices: sockets go to a new process while clients work."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cli.shell import PATIENCE, Shell
from tests.server.hammer import Hammer, Library, Tarantool, made
from tests.server.takeovers import connected
from tests.support.serving import Serving

import penstock

pytestmark = pytest.mark.timeout(300)
SOME = 50
"""Tasks that are done before the first takeover, between two, and after the last one; others while one is under way."""


def login(folder: Path) -> str:
    """The secret of `ann`, who may do everything."""
    words = ["login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml"]
    return Shell("tasks.db", folder).inside(*words).out.strip()


def through_two_takeovers(server: Serving, hammer: Hammer) -> None:
    with hammer:
        hammer.more(SOME)
        server.process.send_signal(signal.SIGHUP)
        second = server.next()["pid"]
        hammer.more(SOME)
        os.kill(second, signal.SIGHUP)
        third = server.next()["pid"]
        hammer.more(SOME)
    hammer.check()
    assert len({server.process.pid, second, third}) == 3
    assert server.ended() == 0
    os.kill(third, signal.SIGTERM)
    server.out.end()  # all three have ended
    print(*server.err.lines, sep="\n")
    assert [line for line in server.err.lines if " ERROR " in line or " WARNING " in line] == []


@pytest.mark.parametrize(("store", "drain"), [("sqlite", "30"), ("postgres", "0")], indirect=["store"])
def test_clients_of_tarantool_do_not_notice_two_takeovers(tmp_path: Path, store: str, drain: str):
    made(store)
    with Serving(tmp_path, store, "--drain", drain, "--durability", "relaxed") as server:
        through_two_takeovers(server, Hammer(Tarantool(), lambda: connected(server)))


def test_clients_of_the_library_do_not_notice_two_takeovers(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--durability", "relaxed") as server:
        through_two_takeovers(server, Hammer(Library(), lambda: penstock.connect(server.url, session_ttl=600)))


def test_clients_of_grpc_do_not_notice_two_takeovers(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--grpc-port", "0", "--durability", "relaxed") as server:
        url = server.document["urls"]["grpc_port"]
        through_two_takeovers(server, Hammer(Library(), lambda: penstock.connect(url, session_ttl=600)))


def test_a_lease_of_a_client_of_tarantool_outlives_the_takeover(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)
    with Serving(tmp_path, store, "--drain", "0") as server:
        client = connected(server)
        client.call("queue.tube.mail:put", ("a",))
        task = client.call("queue.tube.mail:take", (0,)).data[0]
        server.process.send_signal(signal.SIGHUP)
        server.next()
        server.err.said("1 connections are served until they hold no task")
        other = connected(server)
        assert other.call("queue.tube.mail:take", (0,)).data in ([], [None])
        assert client.call("queue.tube.mail:ack", (task[0],)).data[0][1] == "-"
        assert server.ended() == 0  # its last client held nothing any more
        assert client.call("queue.state").data == ["RUNNING"]  # it has connected anew, by itself
        client.close()
        other.close()


def test_a_take_that_waits_at_the_old_process_gets_what_is_put_at_the_new_one(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--http-port", "0") as server:
        waiting, got = connected(server), list[Any]()
        thread = threading.Thread(target=lambda: got.append(waiting.call("queue.tube.mail:take", (600,)).data))
        thread.start()
        server.waited_at(1)
        server.process.send_signal(signal.SIGHUP)
        server.next()
        server.err.said("has taken over")
        client = connected(server)
        client.call("queue.tube.mail:put", ("late",))
        thread.join(PATIENCE)
        assert got[0][0][2] == "late"
        assert waiting.call("queue.tube.mail:ack", (got[0][0][0],)).data[0][1] == "-"
        waiting.close()
        assert server.ended() == 0
        client.close()


def test_takes_that_wait_for_ever_end_with_nothing_when_the_time_is_over(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)
    with Serving(tmp_path, store, "--drain", "0", "--http-port", "0") as server:
        waiting, got = connected(server), list[Any]()
        thread = threading.Thread(target=lambda: got.append(waiting.call("queue.tube.mail:take", ()).data))
        thread.start()
        server.waited_at(1)
        server.process.send_signal(signal.SIGHUP)
        server.next()
        assert server.ended() == 0
        thread.join(PATIENCE)
        assert got in ([[]], [[None]])
        waiting.close()


def test_a_take_of_the_library_waits_on_at_the_new_process(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--http-port", "0") as server, penstock.connect(server.url, session_ttl=600) as queue:
        got = list[Any]()
        thread = threading.Thread(target=lambda: got.append(queue.tube("mail").take(timeout=600)))
        thread.start()
        server.waited_at(1)
        server.process.send_signal(signal.SIGHUP)
        new = server.next()["pid"]
        assert server.ended() == 0  # though a take was waiting there
        queue.tube("mail").put("late")
        thread.join(PATIENCE)
        assert got[0].data == "late"
        os.kill(new, signal.SIGHUP)
        server.next()
        got[0].ack()  # held through one more
        assert queue.statistics()["mail"].tasks["total"] == 0


def test_a_transaction_ends_where_it_began(tmp_path: Path, database: str):
    made(database)
    secret, file = login(tmp_path), tmp_path / "logins.toml"
    with (
        Serving(tmp_path, database, "--logins", "logins.toml") as server,
        penstock.connect(server.url.replace("//", f"//ann:{secret}@")) as queue,
    ):
        tube, known = queue.tube("mail"), file.read_text()
        file.unlink()
        os.mkfifo(file, 0o600)  # the new process waits there, for a server keeps no transaction open for long
        server.process.send_signal(signal.SIGHUP)
        with file.open("w") as pipe, queue.transaction() as transaction:
            tube.put(1, transaction=transaction)
            pipe.write(known)
            pipe.close()
            server.next()
            server.err.said("has taken over")
            tube.put(2, transaction=transaction)
        assert [task.data for task in tube.take_many(5)] == [1, 2]
        assert server.ended() == 0


def test_async_clients_do_not_notice_either(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)

    async def work(server: Serving) -> int:
        loop = asyncio.get_running_loop()
        async with await penstock.aconnect(server.url) as queue:
            tube, done = await queue.tube("mail"), 0

            async def cycles() -> None:
                nonlocal done
                while done < 600:
                    await tube.put(1)
                    task = await tube.take()
                    if task is not None:
                        await task.ack()
                        done += 1

            hands = [asyncio.create_task(cycles()) for _ in range(5)]
            server.process.send_signal(signal.SIGHUP)
            await loop.run_in_executor(None, server.next)
            await asyncio.gather(*hands)
            return done

    with Serving(tmp_path, store, "--durability", "relaxed") as server:
        assert asyncio.run(work(server)) >= 600
        assert server.ended() == 0


def test_what_is_encrypted_stays_so(tmp_path: Path):
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    cert.private_key_pem.write_to_path(tmp_path / "server.key")
    secret = login(tmp_path)
    words = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--logins", "logins.toml"]
    with Serving(tmp_path, "tasks.db", *words) as server:
        assert server.url.endswith("?tls=on")
        url = f"penstock://ann:{secret}@127.0.0.1:{server.port}?tls=on&ca={tmp_path}/ca.pem"
        with penstock.connect(url) as queue:
            tube = queue.create_tube("mail")
            server.process.send_signal(signal.SIGHUP)
            server.next()
            assert server.ended() == 0
            tube.put("sealed")
            assert [task.data for task in tube.tasks()] == ["sealed"]
