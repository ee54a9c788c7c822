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
SOME = 25
"""Tasks that are done before the first takeover, between two, and after the last one; others while one is under way."""


def login(folder: Path) -> str:
    """The secret of `ann`, who may do everything."""
    words = ["login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml"]
    return Shell("tasks.db", folder).inside(*words).out.strip()


def by_signal(server: Serving, hammer: Hammer) -> list[Serving]:
    """Two takeovers by processes that the program starts itself; all three write to the same files."""
    server.process.send_signal(signal.SIGHUP)
    second = server.next()["pid"]
    hammer.more(SOME)
    os.kill(second, signal.SIGHUP)
    third = server.next()["pid"]
    hammer.more(SOME)
    assert len({server.process.pid, second, third}) == 3
    hammer.end()
    os.kill(third, signal.SIGTERM)
    return [server]


def by_command(server: Serving, hammer: Hammer) -> list[Serving]:
    """Two takeovers by processes that somebody else starts."""
    second = server.successor().ready()
    hammer.more(SOME)
    third = second.successor().ready()
    hammer.more(SOME)
    hammer.end()
    third.process.send_signal(signal.SIGTERM)
    return [server, second, third]


def two_takeovers(server: Serving, hammer: Hammer, how: str) -> None:
    with hammer:
        hammer.more(SOME)
        processes = {"signal": by_signal, "command": by_command}[how](server, hammer)
    hammer.check()
    for process in processes:
        assert process.ended() == 0
        process.out.end()  # all that write to it have ended
        process.err.end()
        print(*process.err.lines, sep="\n")
        assert [line for line in process.err.lines if " ERROR " in line or " WARNING " in line] == []


def cases(*in_every_run: tuple[str, str]) -> Any:
    """Stores, and ways to take over. What SIGHUP starts needs a second of a processor's time, and is one program."""
    every = [(store, how) for how in ("command", "signal") for store in ("sqlite", "postgres")]
    marked = [pytest.param(*case, marks=() if case in in_every_run else pytest.mark.exhaustive) for case in every]
    return pytest.mark.parametrize(("store", "how"), marked, indirect=["store"])


@cases(("sqlite", "signal"), ("postgres", "command"))
def test_clients_of_tarantool_do_not_notice_two_takeovers(tmp_path: Path, store: str, how: str):
    made(store)
    drain = "30" if store.endswith(".db") else "0"
    with Serving(tmp_path, store, "--drain", drain, "--durability", "relaxed") as server:
        two_takeovers(server, Hammer(Tarantool(), lambda: connected(server)), how)


@cases(("sqlite", "command"))
def test_clients_of_the_library_do_not_notice_two_takeovers(tmp_path: Path, store: str, how: str):
    made(store)
    with Serving(tmp_path, store, "--durability", "relaxed") as server:
        two_takeovers(server, Hammer(Library(), lambda: penstock.connect(server.url, session_ttl=600)), how)


@cases(("postgres", "command"))
def test_clients_of_grpc_do_not_notice_two_takeovers(tmp_path: Path, store: str, how: str):
    made(store)
    with Serving(tmp_path, store, "--grpc-port", "0", "--durability", "relaxed") as server:
        url = server.document["urls"]["grpc_port"]
        two_takeovers(server, Hammer(Library(), lambda: penstock.connect(url, session_ttl=600)), how)


def test_a_lease_of_a_client_of_tarantool_outlives_the_takeover(tmp_path: Path):
    store = os.fspath(tmp_path / "tasks.db")
    made(store)
    with Serving(tmp_path, store, "--drain", "0") as server:
        client = connected(server)
        client.call("queue.tube.mail:put", ("a",))
        task = client.call("queue.tube.mail:take", (0,)).data[0]
        server.successor().ready()
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
        server.successor().ready()
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
        server.successor().ready()
        assert server.ended() == 0
        thread.join(PATIENCE)
        assert got in ([[]], [[None]])
        waiting.close()


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)], indirect=True)
def test_a_take_of_the_library_waits_on_at_the_new_process(tmp_path: Path, store: str):
    made(store)
    with Serving(tmp_path, store, "--http-port", "0") as server, penstock.connect(server.url, session_ttl=600) as queue:
        got = list[Any]()
        thread = threading.Thread(target=lambda: got.append(queue.tube("mail").take(timeout=600)))
        thread.start()
        server.waited_at(1)
        second = server.successor().ready()
        assert server.ended() == 0  # though a take was waiting there
        queue.tube("mail").put("late")
        thread.join(PATIENCE)
        assert got[0].data == "late"
        second.successor().ready()
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
        new = server.successor()
        with file.open("w") as pipe, queue.transaction() as transaction:
            tube.put(1, transaction=transaction)
            pipe.write(known)
            pipe.close()
            new.ready()
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
            new = server.successor()
            await loop.run_in_executor(None, new.ready)
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
            server.successor().ready()
            assert server.ended() == 0
            tube.put("sealed")
            assert [task.data for task in tube.tasks()] == ["sealed"]
