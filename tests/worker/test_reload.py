"""SIGHUP: new code for new tasks, while what runs goes on in the old one and keeps its lease."""

from __future__ import annotations

import gc
import os
import signal
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.children import Child, Children, family
from tests.worker import roles
from tests.worker.bench import until
from tests.worker.conftest import DURABLE, FILES

import penstock
from penstock import UsageError
from penstock.schedules import SCHEDULES
from penstock.worker.app import App


@pytest.fixture(params=FILES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = request.param.url(tmp_path)
    yield url
    request.param.clean(url)


@pytest.fixture
def q(url: str) -> Iterator[Any]:
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


class Shop:
    """A program in a folder, and a worker process for it."""

    def __init__(self, folder: Path, url: str, children: Children) -> None:
        self._folder = folder / "shop"
        self._folder.mkdir()
        self._url = url
        self._children = children

    def write(self, body: str, helper: str = "VERSION = 1", queue: str | None = None) -> None:
        """Write the program; `body` follows the line that opens the queue."""
        head = f"""
            import threading
            import helper
            import penstock
            from tests.worker.roles import say
            q = penstock.connect({queue or self._url!r}, durability="relaxed", session_ttl=600)
            """
        (self._folder / "program.py").write_text(textwrap.dedent(head) + textwrap.dedent(body))
        (self._folder / "helper.py").write_text(helper)

    def start(self, **options: Any) -> Child:
        child = self._children.start(roles.app, str(self._folder), "program:q", options)
        heard(child, "started")
        return child

    def reload(self, child: Child) -> list[str]:
        """SIGHUP; answers what the worker logs about it."""
        os.kill(child.pid, signal.SIGHUP)
        lines = list[str]()
        while not any("reloaded" in line or "the old one" in line for line in lines):
            lines.append(heard(child, "log")[2])
        return lines


def heard(child: Child, what: str) -> Any:
    """The next line of a kind; others are passed over."""
    while (line := child.line())[0] != what:
        pass
    return line


@pytest.fixture
def shop(tmp_path: Path, url: str) -> Iterator[Shop]:
    with family() as children:
        yield Shop(tmp_path, url, children)


JOB = """
    @q.handler("jobs")
    def job(n: int, run: penstock.Run) -> None:
        say("began", n, run.attempt)
        if n == 0:
            while not q.tube("go").statistics().tasks["ready"]:
                run.wait(0.01)
        say("ran", n, {version}, helper.VERSION)
    """


@pytest.mark.parametrize("url", DURABLE, indirect=True, ids=lambda engine: engine.name)
def test_new_code_is_for_new_tasks_and_running_ones_keep_their_leases(q: Any, shop: Shop) -> None:  # case 353
    shop.write(JOB.format(version=1))
    go, jobs = q.create_tube("go"), q.create_tube("jobs")
    first = jobs.put(0)
    child = shop.start()
    assert heard(child, "began") == ["began", 0, 1]
    token = jobs.peek(first.id)._record.token
    shop.write(JOB.format(version=2), helper="VERSION = 2")  # the same size, the same second
    shop.reload(child)
    jobs.put(1)
    assert heard(child, "ran") == ["ran", 1, 2, 2]
    held = jobs.peek(first.id)
    assert (held.state, held.attempt, held._record.token) == ("taken", 1, token)
    assert jobs.statistics().calls["release"] == 0
    go.put(1)
    assert heard(child, "ran") == ["ran", 0, 1, 1]
    os.kill(child.pid, signal.SIGTERM)
    assert heard(child, "ended")
    assert jobs.statistics().tasks["total"] == 0


@pytest.mark.parametrize("url", DURABLE[:1], indirect=True, ids=["sqlite"])
def test_a_signal_while_code_is_being_loaded_is_not_forgotten(q: Any, shop: Shop, tmp_path: Path) -> None:
    jobs = q.create_tube("jobs")
    shop.write(JOB.format(version=1))
    child = shop.start()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    shop.write(f"say('loading')\nopen({str(gate)!r}).read()\n{textwrap.dedent(JOB.format(version=2))}")
    os.kill(child.pid, signal.SIGHUP)
    heard(child, "loading")
    shop.write(JOB.format(version=3))
    os.kill(child.pid, signal.SIGHUP)
    gate.write_text("go on")
    while "reloaded" not in heard(child, "log")[2]:
        pass
    while "reloaded" not in heard(child, "log")[2]:
        pass
    jobs.put(1)
    assert heard(child, "ran")[:3] == ["ran", 1, 3]


BROKEN: dict[str, dict[str, Any]] = {
    "a syntax error": {"body": "def job(:"},
    "an error in a helper": {"body": JOB.format(version=0), "helper": "1 / 0"},
    "an exit": {"body": "raise SystemExit(3)"},
    "no queue": {"body": "q = None"},
    "another store": {"body": JOB.format(version=0), "queue": "memory:"},
    "a tube of another kind": {"body": "q.handler('jobs', kind='fifo')(print)"},
}


@pytest.mark.parametrize("url", DURABLE[:1], indirect=True, ids=["sqlite"])
def test_code_that_cannot_be_loaded_leaves_the_old_one(q: Any, shop: Shop) -> None:
    jobs = q.create_tube("jobs")
    shop.write(JOB.format(version=1))
    child = shop.start()
    for number, (name, broken) in enumerate(BROKEN.items(), 2):
        shop.write(**broken)
        assert "stay" in shop.reload(child)[-1], name
        jobs.put(1)
        assert heard(child, "ran") == ["ran", 1, number - 1, number - 1], name
        shop.write(JOB.format(version=number), helper=f"VERSION = {number}")
        assert "reloaded" in shop.reload(child)[-1], name
        jobs.put(2)
        assert heard(child, "ran") == ["ran", 2, number, number], name


def test_handlers_may_be_added_and_removed(q: Any, shop: Shop) -> None:
    one = """
        @q.handler("one")
        async def one(n: int) -> None: say("one", n)
        """
    two = """
        @q.handler("two")
        async def two(n: int) -> None: say("two", n)
        """
    tubes = {name: q.create_tube(name) for name in ("one", "two")}
    shop.write(one)
    child = shop.start()
    tubes["one"].put(1)
    assert heard(child, "one") == ["one", 1]
    shop.write(two)
    shop.reload(child)
    left = tubes["one"].put(2)
    tubes["two"].put(3)
    assert heard(child, "two") == ["two", 3]
    until(lambda: (tubes["one"].peek(left.id).state, tubes["one"].peek(left.id).attempt) == ("ready", 0))
    shop.write(textwrap.dedent(one) + textwrap.dedent(two))
    shop.reload(child)
    assert heard(child, "one") == ["one", 2]


def test_kinds_and_middleware_of_new_code_count(q: Any, shop: Shop) -> None:
    jobs = q.create_tube("jobs")
    shop.write(JOB.format(version=1))
    child = shop.start()
    more = """
        @q.middleware
        async def around(run, go_on):
            say("around", run.task.tube)
            return await go_on()

        q.register_kind("calls", penstock.Features(pri=True))

        @q.handler("calls", kind="calls")
        def call(n: int) -> None: ...
        """
    shop.write(textwrap.dedent(JOB.format(version=2)) + textwrap.dedent(more))
    shop.reload(child)
    jobs.put(1)
    assert heard(child, "around") == ["around", "jobs"]
    q.register_kind("calls", penstock.Features(pri=True))
    q.tube("calls").put(1)
    assert heard(child, "around") == ["around", "calls"]


def test_one_scheduler_goes_on_and_has_the_new_schedules(q: Any, shop: Shop) -> None:  # case 353
    every = """
        @q.periodic("beat", every={every})
        def beat(data) -> None:
            say("beat", [thread.name for thread in threading.enumerate()].count("penstock fetcher"))
        """
    shop.write(every.format(every=0.1))
    child = shop.start()
    for _ in range(3):
        assert heard(child, "beat") == ["beat", 1]
        shop.reload(child)
    assert heard(child, "beat") == ["beat", 1]
    shop.write(every.format(every=3600))
    shop.reload(child)
    (schedule,) = q.schedules()
    assert schedule.every == 3600 * 1_000_000
    os.kill(child.pid, signal.SIGTERM)
    heard(child, "ended")
    beats, fires = q.tube("beat").statistics().calls, q.tube(SCHEDULES).statistics().calls
    assert 4 <= beats["put"] <= fires["take"]


def test_a_schedule_that_is_gone_from_the_code_is_told_of(q: Any, shop: Shop) -> None:
    shop.write("q.periodic('beat', every=3600)(print)")
    child = shop.start()
    shop.write(JOB.format(version=2))
    assert any("unschedule('beat')" in line for line in shop.reload(child))
    assert [schedule.name for schedule in q.schedules()] == ["beat"]


# -- programs --------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """A folder for programs, left as though nothing of it had been imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    yield write
    # Modules of ours stay: one that is imported a second time has classes and stores of its own.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith((str(tmp_path), "site-packages")):
            del sys.modules[name]


CONNECT = "import penstock\nq = penstock.connect('memory:reload')\n"


@pytest.mark.parametrize("target", ["", ":q", "a b", "shop/tasks", "shop.tasks.py:", "1x:q"])
def test_an_app_is_named_as_a_module(target: str) -> None:
    with pytest.raises(UsageError, match="module"):
        App(target)


def test_a_module_that_is_not_there_is_named(here: Any) -> None:
    with pytest.raises(UsageError, match="'nothing_here'"):
        App("nothing_here:q").load()


def test_what_is_no_queue_is_named(here: Any) -> None:
    here("one_app.py", "x = 5")
    with pytest.raises(UsageError, match="one_app:x is no queue"):
        App("one_app:x").load()
    with pytest.raises(UsageError, match="one_app has no queue called q, queue, app"):
        App("one_app").load()


def test_a_queue_may_be_made_by_a_function(here: Any) -> None:
    here("two_app.py", "import penstock\ndef make():\n    return penstock.connect('memory:reload')\n")
    app = App("two_app:make")
    first = app.load()
    assert isinstance(first, penstock.Queue)
    assert app.reload() is not first


def test_a_package_is_reloaded_whole_and_nothing_beside_it(here: Any) -> None:
    here("three_app/__init__.py", "")
    here("three_app/tasks.py", CONNECT + "from three_app.deep import parts\n")
    here("three_app/deep/__init__.py", "")
    here("three_app/deep/parts.py", "VALUE = 1")
    here("site-packages/elsewhere.py", "")
    sys.path.insert(0, "site-packages")
    app = App("three_app.tasks:q")
    app.load()
    import elsewhere  # type: ignore[import-not-found]

    old = {name: sys.modules[name] for name in ("three_app", "three_app.tasks", "three_app.deep.parts")}
    here("three_app/deep/parts.py", "VALUE = 2")
    app.reload()
    assert sys.modules["elsewhere"] is elsewhere
    assert all(sys.modules[name] is not module for name, module in old.items())
    assert sys.modules["three_app.deep.parts"].VALUE == 2


def test_a_program_whose_file_is_gone_leaves_the_old_one(here: Any) -> None:
    file = here("four_app.py", CONNECT)
    app = App("four_app:q")
    queue, module = app.load(), sys.modules["four_app"]
    file.unlink()
    with pytest.raises(ImportError):
        app.reload()
    assert sys.modules["four_app"] is module
    assert app.queue is queue


def test_a_queue_of_old_code_is_dropped_with_it(here: Any) -> None:
    here("five_app.py", CONNECT + "@q.handler('jobs')\ndef job(n: int) -> None: ...\n")
    app = App("five_app:q")
    old = weakref.ref(app.load())
    app.reload()
    gc.collect()
    until(lambda: old() is None)
