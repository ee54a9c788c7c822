"""`penstock worker` as a process: its lines, signals, reloads and exit statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.conftest import QuickShell
from tests.cli.running import PATIENCE, Running
from tests.cli.shell import Shell
from tests.support import postgres

import penstock

PROGRAM = """
import os, pathlib, threading
import penstock
from penstock.worker import slots, worker

slots.LAST_WORDS = worker.LAST_WORDS = 60  # the machine may be slow

q = penstock.connect(os.environ.get("PENSTOCK_URL", "shop.db"), durability="relaxed")

def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

@q.handler("mail", max_attempts=1)
def send(n: int) -> None:
    if n < 0:
        raise ValueError("no such mail")
    say("sent", n)

@q.handler("slow", max_attempts=5)
def wait_for(name: str) -> None:
    say("begun", name)
    pause = threading.Event()
    while not pathlib.Path(name).exists():
        pause.wait(0.005)
    say("ended", name)

@q.handler("thumbs")
async def thumb(n: int) -> None:
    say("thumb", n)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def shell(folder: Path) -> Shell:
    return QuickShell("shop.db", folder)


@pytest.fixture
def q(folder: Path) -> Iterator[penstock.Queue]:
    """The queue of the program, from outside."""
    with penstock.connect(folder / "shop.db", durability="relaxed") as queue:
        queue.create_tube("mail", max_attempts=1)
        queue.create_tube("slow")
        queue.create_tube("thumbs")
        yield queue


def started(shell: Shell, *arguments: str) -> Running:
    """A worker that takes tasks."""
    worker = Running(shell, "worker", "shop:q", *arguments)
    worker.err.said(" slot")
    return worker


def numbers(line: str) -> dict[str, int]:
    return {name: int(number) for number, name in re.findall(r"(\d+) (done|failed|given back|lost)", line)}


def test_it_says_what_it_works_on_drains_and_says_what_it_has_done(real_shell, folder, q):
    with started(real_shell, "-c", "3") as worker:
        beginning = worker.err.said("penstock worker")
        assert f"penstock worker {worker.process.pid}: 3 slots for" in beginning
        assert "mail (send), slow (wait_for), thumbs (thumb)" in beginning
        assert "SIGTERM" in beginning and "SIGHUP" in beginning
        q.tube("slow").put("go")
        q.tube("mail").put_many([1, -1])
        worker.out.said("begun go")
        worker.out.said("sent 1")
        postgres.until(lambda: q.tube("mail").statistics().tasks["buried"] == 1, "the other one should have failed")
        worker.signal(signal.SIGTERM)
        worker.err.said("SIGTERM: finishing")
        (folder / "go").touch()
        assert worker.ended() == 0
        assert "ended go" in worker.out.lines
        assert numbers(worker.err.lines[-1]) == {"done": 2, "failed": 1}
    assert q.tube("slow").statistics().tasks["total"] == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_at_once_and_gives_back_what_runs(shell, folder, q, number, status):
    task = q.tube("slow").put("never")
    with started(shell) as worker:
        worker.out.said("begun never")
        worker.signal(number)
        worker.err.said("finishing 1")
        worker.signal(number)
        assert worker.ended() == status
        assert numbers(worker.err.lines[-1])["given back"] == 1
    found = q.tube("slow").peek(task.id)
    assert (found.state, found.attempt) == ("ready", 0)


def test_a_handler_that_outlasts_the_grace_does_not_keep_the_process(shell, folder, q):
    task = q.tube("slow").put("never")
    with started(shell, "--grace", "0.05") as worker:
        worker.out.said("begun never")
        worker.signal(signal.SIGINT)
        assert worker.ended() == 0
        assert numbers(worker.err.lines[-1])["given back"] == 1
    assert q.tube("slow").peek(task.id).state == "ready"


def test_hanging_up_loads_new_code_and_leaves_what_runs_alone(shell, folder, q):
    q.tube("slow").put("go")
    with started(shell) as worker:
        worker.out.said("begun go")
        (folder / "shop.py").write_text(PROGRAM.replace('"sent"', '"delivered"'))
        worker.signal(signal.SIGHUP)
        worker.err.said("handlers reloaded: mail, slow, thumbs")
        q.tube("mail").put(7)
        worker.out.said("delivered 7")
        (folder / "shop.py").write_text("this is no Python")
        worker.signal(signal.SIGHUP)
        worker.err.said("the old one stays")
        q.tube("mail").put(8)
        worker.out.said("delivered 8")
        (folder / "go").touch()
        worker.out.said("ended go")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        assert numbers(worker.err.lines[-1]) == {"done": 3, "failed": 0}


WAITING = """
import os, pathlib, threading
os.write(1, b"importing\\n")
while not pathlib.Path("go").exists():
    threading.Event().wait(0.005)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_while_the_program_is_imported_ends_it(shell, folder, q, number, status):
    (folder / "shop.py").write_text(WAITING + PROGRAM)
    with Running(shell, "worker", "shop:q") as worker:
        worker.out.said("importing")
        worker.signal(number)
        assert worker.ended() == status
    assert not any("Traceback" in line for line in worker.err.lines)


def test_hanging_up_while_the_program_is_imported_loads_it_again(shell, folder, q):
    (folder / "shop.py").write_text(WAITING + PROGRAM)
    with Running(shell, "worker", "shop:q") as worker:
        worker.out.said("importing")
        worker.signal(signal.SIGHUP)
        (folder / "go").touch()
        worker.err.said("handlers reloaded")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_it_reloads_by_itself_when_a_file_changes(shell, folder, q):
    (folder / "words.py").write_text("WORD = 'sent'\n")
    (folder / "shop.py").write_text("import words\n" + PROGRAM.replace('"sent"', "words.WORD"))
    with started(shell, "--reload") as worker:
        file = folder / "words.py"
        file.write_text("WORD = 'delivered'\n")
        os.utime(file, (1, 1))  # another time than before, however coarse the clock of the file system is
        worker.err.said("handlers reloaded")
        q.tube("mail").put(7)
        worker.out.said("delivered 7")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_until_empty_ends_when_nothing_is_left_to_do(shell, folder, q):
    q.tube("mail").put_many([1, 2, 3])
    q.tube("mail").put(4, delay=1000)
    done = shell.run("worker", "shop:q", "--until-empty", "--horizon", "60", "--json")
    (document,) = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    assert done.status == 0
    assert (document["ok"], document["failed"], document["given_back"]) == (3, 0, 0)
    assert document["tubes"]["mail"]["ok"] == 3
    assert q.tube("mail").statistics().tasks["delayed"] == 1


def test_only_the_tubes_that_are_named(shell, folder, q):
    for name in ("mail", "thumbs"):
        q.tube(name).put(1)
    done = shell.run("worker", "shop:q", "--tube", "thumbs=2.5", "--until-empty", "--log-level", "warning")
    assert (done.status, done.out) == (0, "thumb 1\n")
    assert f" for thumbs (thumb) of sqlite:///{folder.resolve() / 'shop.db'}." in done.err
    assert q.tube("mail").statistics().tasks["ready"] == 1


def test_a_log_of_json_is_nothing_but_json(shell, folder, q):
    q.tube("mail").put(-1)
    done = shell.run("worker", "shop:q", "--until-empty", "--log-format", "json")
    lines = [json.loads(line) for line in done.err.splitlines()]
    beginning = next(line for line in lines if "handlers" in line)
    assert beginning["store"] == f"sqlite:///{folder.resolve() / 'shop.db'}"
    assert beginning["handlers"] == {"mail": "send", "slow": "wait_for", "thumbs": "thumb"}
    failed = next(line for line in lines if line["level"] == "ERROR")
    assert (failed["tube"], failed["attempt"]) == ("mail", 1) and "no such mail" in failed["message"]
    assert "1 failed" in lines[-1]["message"]


def test_a_program_that_cannot_be_imported_is_told_with_its_own_lines(shell, folder):
    (folder / "broken.py").write_text("import os\nraise RuntimeError('not today')\n")
    done = shell.run("worker", "broken:q")
    assert done.status == 64 and "RuntimeError: not today" in done.err
    assert re.findall(r'File "(.*)"', done.err) == [str(folder / "broken.py")]
    assert done.err.splitlines()[-1].startswith("penstock: broken cannot be imported")
    document = json.loads(shell.run("worker", "broken:q", "--json").err)
    assert (document["error"], document["exit"]) == ("usage", 64) and "not today" in document["message"]
    assert str(folder / "broken.py") in document["trace"]


def test_a_program_that_leaves_while_it_is_imported_is_told_as_one_that_fails(shell, folder):
    (folder / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    done = shell.run("worker", "leaving:q")
    assert done.status == 64 and "leaving cannot be imported" in done.err


@pytest.mark.parametrize("rest", ["", "@q.handler('mail')\ndef send(n): ...\n"])
def test_an_async_queue_that_nobody_awaits_is_told_what_to_be(shell, folder, rest):
    (folder / "waiting.py").write_text(f"import penstock\nq = penstock.aconnect('shop.db')\n{rest}")
    done = shell.run("worker", "waiting:q", PYTHONWARNINGS="default")
    assert (done.status, len(done.err.splitlines())) == (64, 1), done.err
    assert "penstock.connect(..)" in done.err and "loop" in done.err


def test_a_program_that_is_not_on_the_store_of_url_is_refused(shell, folder):
    (folder / "fixed.py").write_text("import penstock\nq = penstock.connect('fixed.db')\n")
    done = shell.run("worker", "fixed:q", "--url", "other.db", "--until-empty")
    assert done.status == 64
    assert "/other.db" in done.err and "/fixed.db" in done.err and 'os.environ["PENSTOCK_URL"]' in done.err
    for words in (["--url", "fixed.db"], ["--url", f"sqlite:///{folder}/fixed.db"], []):
        assert shell.run("worker", "fixed:q", *words, "--until-empty").status == 0, words


def test_a_run_that_fails_is_an_exit_status_if_that_is_asked_for(shell, folder, q):
    for words, number, status in (([], -1, 0), (["--fail-on-error"], -1, 80), (["--fail-on-error"], 1, 0)):
        q.tube("mail").put(number)
        assert shell.run("worker", "shop:q", "--until-empty", *words).status == status, (words, number)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere:q"], "there is no module 'nowhere'"),
        (["shop.nowhere:q"], "there is no module 'shop.nowhere'"),
        (["shop.py:q"], "write shop:q"),
        (["./parts/shop.py"], "write parts.shop:q"),
        (["shop:send"], "shop:send is no queue"),
        (["shop:q", "--horizon", "5"], "--until-empty"),
        (["shop:q", "--tube", "mail=much"], "mail=3"),
        (["shop:q", "--graphite", "127.0.0.1:1/smoke"], "udp"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(shell, folder, q, arguments, words):
    done = shell.run("worker", *arguments)
    assert done.status == penstock.UsageError.exit_status()
    line = done.err.splitlines()[-1]
    assert line.startswith("penstock: ") and words in line and "Traceback" not in done.err


def test_metrics_for_prometheus_and_graphite(shell, folder, q):
    with socket.create_server(("127.0.0.1", 0)) as graphite:
        graphite.settimeout(PATIENCE)
        port = graphite.getsockname()[1]
        with started(shell, "--metrics-port", "0", "--graphite", f"127.0.0.1:{port}") as worker:
            q.tube("mail").put(1)
            worker.out.said("sent 1")
            url = worker.err.said("metrics at http").rpartition(" ")[2]
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                assert "penstock_slots 10.0" in answer.read().decode()
            connection, _ = graphite.accept()
            with connection, connection.makefile() as lines:
                assert re.fullmatch(r"penstock\.\S+ \S+ \d+\n", lines.readline())
            worker.signal(signal.SIGTERM)
            assert worker.ended() == 0


def test_a_program_on_postgresql_is_told_the_url(shell, folder):
    url = postgres.lent_place()
    (folder / "heavy.py").write_text(
        "import os, penstock\n"
        "q = penstock.connect(os.environ['PENSTOCK_URL'])\n"
        "@q.handler('sums', process=True, keep=True)\n"
        "def add(numbers: list[int]) -> int:\n    return sum(numbers)\n"
    )
    with penstock.connect(url) as q:
        task = q.create_tube("sums", keep=True).put([1, 2])
        done = shell.run("worker", "heavy:q", "--url", url, "--until-empty", "--processes", "1", "--json")
        assert done.document["ok"] == 1
        assert q.tube("sums").result(task.id) == 3
    postgres.give_back(url)


def test_an_async_queue_made_by_a_function(shell, folder, q):
    (folder / "loop.py").write_text(
        "import asyncio, penstock\n"
        "def app():\n"
        "    q = asyncio.run(penstock.aconnect('shop.db'))\n"
        "    q.handler('mail')(send)\n"
        "    return q\n"
        "async def send(n: int) -> None: ...\n"
    )
    q.tube("mail").put(1)
    done = shell.run("worker", "loop:app", "--until-empty", "--json")
    assert done.document["ok"] == 1


@pytest.mark.parametrize(("arguments", "status"), [(["--until-empty"], 0), (["--tube", "nothing"], 64)])
def test_its_file_is_closed_in_order(shell, folder, q, arguments, status):
    q.close()
    assert shell.run("worker", "shop:q", *arguments).status == status
    stored: Any = apsw.Connection(str(folder / "shop.db")).execute("SELECT clean FROM penstock_store").fetchone()
    assert stored == (1,)
