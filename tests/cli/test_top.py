"""`penstock top`: what it knows of a store on every engine, what it costs, and how it looks."""

from __future__ import annotations

import errno
import io
import os
import pty
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from rich.console import Console
from tests.cli.running import PATIENCE, Running
from tests.cli.shell import Shell
from tests.support import postgres
from tests.support.engines import ENGINES, EngineUnderTest
from tests.support.postgres import Server

import penstock
from penstock.cli.frame import Frame, Sampler, watching
from penstock.cli.screen import render
from penstock.cli.top import DOWN, UP, _next_tube
from penstock.engines.holdings import COUNTED
from penstock.engines.postgres.holdings import lanes_query
from penstock.engines.sqlite.holdings import statements
from penstock.model.session import public_name


@pytest.fixture(
    params=[
        # gRPC carries the frames of the remote engine.
        pytest.param(engine, id=engine.name, marks=pytest.mark.exhaustive if engine.name == "grpc" else ())
        for engine in ENGINES
    ]
)
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[penstock.Queue]:
    engine: EngineUnderTest = request.param
    with postgres.warmth():
        url = engine.url(tmp_path)
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue
    engine.clean(url)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[penstock.Queue]:
    """A queue in a file, for what is the same on every engine."""
    with penstock.connect(tmp_path / "tasks.db", durability="relaxed") as queue:
        yield queue


def look(queue: penstock.Queue, wanted: str | None = None) -> Frame:
    with watching(queue) as lookout:
        return Sampler(queue, lookout, wanted).look()


def text(frame: Frame, width: int, height: int | None = None, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height or 500, color_system=None)
    console.print(render(frame, width, height, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


# -- what it knows -----------------------------------------------------------------------------------


def test_tubes_workers_and_sessions(q):
    jobs, mail = q.create_tube("jobs"), q.create_tube("mail", "fifo")
    jobs.put_many([1, 2, 3])
    mail.put_many([1, 2])
    mail.take().bury("bad")
    held = [*jobs.take_many(2), mail.take()]
    frame = look(q)
    assert [tube.name for tube in frame.tubes] == ["jobs", "mail"]
    assert [(tube.tasks["ready"], tube.tasks["taken"], tube.tasks["buried"]) for tube in frame.tubes] == [
        (1, 2, 0),
        (0, 1, 1),
    ]
    (worker,) = frame.workers
    assert (worker.name, worker.taken, worker.tubes) == (public_name(), 3, {"jobs": 2, "mail": 1})
    assert 0 <= worker.age < 600
    assert (frame.sessions, frame.state) == (1, "RUNNING")
    for task in held:
        task.ack()
    assert look(q).workers == []


def test_rates_are_what_happened_between_two_looks(q):
    jobs = q.create_tube("jobs")
    with watching(q) as lookout:
        sampler = Sampler(q, lookout)
        assert sampler.look().tubes[0].rates is None
        jobs.put_many(range(6))
        for task in jobs.take_many(4):
            task.ack()
        jobs.take().fail("no")
        frame = sampler.look()
    assert frame.seconds is not None and frame.tubes[0].rates is not None
    happened = {name: round(rate * frame.seconds) for name, rate in frame.tubes[0].rates.items()}
    assert happened == {"put": 6, "take": 5, "ack": 4, "fail": 1}


def test_lanes_with_their_limits_those_that_are_busy_first(q):
    crawl = q.create_tube("crawl", lane_concurrency=2)
    for lane, number in (("a", 1), ("b", 5), ("c", 3)):
        crawl.put_many(range(number), lane=lane)
    crawl.lane("a").configure(rate=7, burst=3, paused=True)
    for _ in range(4):
        crawl.take()
    frame = look(q)
    assert frame.chosen == "crawl"
    assert [(lane.name, lane.ready, lane.taken) for lane in frame.lanes] == [("b", 3, 2), ("c", 1, 2), ("a", 1, 0)]
    assert frame.lanes[0].limits.concurrency == 2
    limits = frame.lanes[2].limits
    assert (limits.rate, limits.burst, limits.paused) == (7, 3, True)
    assert [lane.name for lane in crawl.lanes()] == ["a", "b", "c"]


def test_tasks_without_a_lane_share_one_in_a_utube(q):
    q.create_tube("shared", "utube").put(1)
    (lane,) = look(q).lanes
    assert (lane.name, lane.ready, lane.limits.concurrency) == ("", 1, 1)


def test_strict_lanes_count_what_is_ready(q):
    crawl = q.create_tube("crawl", lane_order="strict")
    crawl.put_many([1, 2], lane="a")
    crawl.put(3, lane="a", delay=1000)
    assert [(lane.name, lane.ready) for lane in look(q).lanes] == [("a", 2)]


def test_ready_tasks_of_a_lane_are_counted_up_to_a_number(q):
    q.create_tube("crawl").put_many(range(COUNTED + 50), lane="a")
    assert look(q).lanes[0].ready == COUNTED


def test_the_tube_that_is_asked_for(q):
    for name in ("a", "b"):
        q.create_tube(name).put(1, lane=f"of {name}")
    assert [lane.name for lane in look(q, "b").lanes] == ["of b"]
    q.create_tube("plain", "fifo")
    assert look(q, "plain").chosen is None and look(q, "gone").chosen is None


def test_temporary_tubes_are_seen_too(q):
    flying = q.create_tube("flying", temporary=True)
    flying.put_many([1, 2], lane="a")
    flying.take()
    frame = look(q)
    assert frame.workers[0].tubes == {"flying": 1}
    assert [(lane.name, lane.ready, lane.taken) for lane in frame.lanes] == [("a", 1, 1)]


def test_arrows_go_round_the_tubes_that_have_lanes(file):
    for name in ("a", "c"):
        file.create_tube(name)
    file.create_tube("b", "fifo")
    frame = look(file, "a")
    assert _next_tube(frame, DOWN[0]) == "c" and _next_tube(frame, UP[0]) == "c"
    assert _next_tube(look(file, "c"), DOWN[1]) == "a" and _next_tube(frame, b"x") == "a"


# -- what it costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"lane_order": "strict"}, {"kind": "utube"}], ids=str)
def test_no_statement_of_it_reads_what_waits(file, options):
    tube = file.create_tube("jobs", **options)
    tube.put(1, lane="a")
    store: Any = file._engine.store
    found = store._tx.tube("jobs")
    for name, sql in statements(found.number, found.config).items():
        number = 0 if name == "holdings" else 1
        plan = apsw.Connection(str(store._place.path)).execute(
            "EXPLAIN QUERY PLAN " + sql, ("a", 1)[: sql.count("?2") + number]
        )
        steps = [row[3] for row in plan if "penstock_tasks" in row[3]]
        assert steps and all(
            re.search(r"USING (COVERING )?INDEX penstock_tasks_\d+_(taken|waiting|slot)", step) for step in steps
        )


def test_on_postgresql_it_reads_as_many_rows_as_it_counts():
    url = postgres.lent_place()
    with penstock.connect(url, durability="relaxed") as q:
        tube = q.create_tube("jobs")
        tube.put_many(range(5000), lane="a")
        tube.put_many(range(5000), lane="b")
        tube.take_many(3)
        store: Any = q._engine.store
        with store._connections.borrowed() as connection:
            number = store.known("jobs", connection).number
            # Else autovacuum may do so halfway, and the plan is another.
            connection.execute(f"vacuum analyze {store.schema}.tasks_{number}")
            query = "explain (analyze, format json) " + lanes_query(store.schema, number)
            given = {"most": 20, "first": ["b"], "limit": 20, "counted": 10}
            (plan,) = connection.execute(query, given).fetchone()
    postgres.give_back(url)
    read = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan[0]["Plan"])
        if node.get("Relation Name") == f"tasks_{number}"
    )
    assert 0 < read < 100, plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def test_a_server_that_restarts_is_looked_at_again():
    with Server.start() as server, penstock.connect(server.url(patience=30)) as q:
        q.create_tube("jobs").put(1, lane="a")
        with watching(q) as lookout:
            sampler = Sampler(q, lookout)
            sampler.look()
            # From now on nobody waits for the server; in the URL that would end calls on a slow machine too.
            connections: Any = q._engine.store._connections  # type: ignore[attr-defined]
            connections._place = connections._place._replace(patience=0.05)
            server.stop("immediate")
            with pytest.raises(penstock.EngineUnavailable):
                sampler.look()
            server.start_again()
            frame = found = None
            while frame is None:
                try:
                    frame = sampler.look()
                except penstock.EngineUnavailable as error:
                    found = error
            assert frame.tubes[0].name == "jobs" and frame.lanes[0].name == "a", found


# -- how it looks ------------------------------------------------------------------------------------


def fill(queue: penstock.Queue, tubes: int) -> Frame:
    """A store that has seen some work."""
    crawl = queue.create_tube("crawl", lane_concurrency=2)
    crawl.put_many(range(20), lane="example.org")
    crawl.put_many(range(20), lane="a-very-long-name-of-a-host-in-a-very-deep-zone.example.net")
    for number in range(tubes - 1):
        queue.create_tube(f"tenant-{number:03}.reports", "fifottl")
    queue.tube("tenant-001.reports").pause()
    with watching(queue) as lookout:
        sampler = Sampler(queue, lookout)
        sampler.look()
        for number in (1, 3, 0, 2):
            tube = queue.tube(f"tenant-{number:03}.reports") if number < tubes - 1 else crawl
            tube.put_many(range(50))
            queue.tube("tenant-000.reports").put_many(range(9))
            for task in queue.tube("tenant-000.reports").take_many(9):
                task.ack()
            sampler.look()
        crawl.take_many(3)
        return sampler.look()


@pytest.fixture(scope="module")
def frames() -> dict[int, Frame]:
    """Those of stores with so many tubes."""
    made = {}
    for number in (3, 60):
        with penstock.connect("memory:") as queue:
            made[number] = fill(queue, number)
    return made


@pytest.mark.parametrize("width", [50, 80, 110, 130, 200])
@pytest.mark.parametrize("height", [16, 24, 50])
@pytest.mark.parametrize("tubes", [3, 60])
def test_a_frame_fits_the_screen(frames, width, height, tubes):
    lines = text(frames[tubes], width, height, keys=True, trouble="PostgreSQL cannot be reached")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("penstock top") and "RUNNING" in lines[0]
    assert "cannot be reached" in lines[2] and "q quits" in lines[-1]
    assert any(line.startswith("▸ crawl") for line in lines)
    for heading in ("tube", "lane of crawl", "worker"):
        assert any(heading in line for line in lines)
    if tubes == 60 and height < 50:
        assert any(re.search(r"and \d+ quieter tubes", line) for line in lines)


def test_a_wide_frame_has_curves_and_puts_workers_beside_lanes(frames):
    lines = text(frames[3], 200, 50)
    assert any(re.search(r"tenant-000.reports .*[▁▂▃▄▅▆▇█]", line) for line in lines)
    assert any("lane of crawl" in line and "worker" in line for line in lines)


def test_names_that_do_not_fit_keep_both_ends(file):
    for end in ("one", "two"):
        file.create_tube("a" * 40 + end, "fifo")
    lines = text(look(file), 50, 24)
    assert any(re.search(r"a…a*one ", line) for line in lines) and any(re.search(r"a…a*two ", line) for line in lines)


def test_a_store_without_tubes_says_what_to_do(file):
    lines = text(look(file), 80)
    assert any("penstock create" in line for line in lines) and any("nobody holds a task" in line for line in lines)


# -- the program -------------------------------------------------------------------------------------


def test_once_prints_a_frame_in_full_and_ends(file, shell):
    for number in range(60):
        file.create_tube(f"tube-{number:03}").put(1)
    done = shell.run("top", "--once", "--interval", "0.1")
    assert (done.status, done.err) == (0, "")
    assert "tube-000" in done.out and "tube-059" in done.out and "\x1b" not in done.out


def test_json_has_all_of_a_frame(file, shell):
    file.create_tube("crawl").put_many([1, 2], lane="a")
    file.tube("crawl").take()
    frame = shell.run("top", "--once", "-n", "0.1", "--json", "--tube", "crawl").document
    assert frame["tubes"][0]["ready"] == frame["tubes"][0]["taken"] == 1
    assert frame["tubes"][0]["rates"] == {"put": 0.0, "take": 0.0, "ack": 0.0, "fail": 0.0}
    assert (frame["lanes"][0]["name"], frame["chosen"]) == ("a", "crawl")
    assert frame["workers"][0]["worker"] == public_name() and frame["sessions"] == 2


def test_json_goes_on_until_it_is_told_to_stop(file, shell):
    with Running(shell, "top", "--json", "-n", "0.1") as process:
        process.out.said("{")
        process.out.said("{", after=2)
        process.signal(signal.SIGINT)
        assert process.ended() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["-n", "0"], "--interval"), (["--tube", "plain"], "has no lanes"), (["--tube", "none"], "'none'")],
)
def test_what_is_wrong_is_told_in_one_line(file, shell, arguments, words):
    file.create_tube("plain", "fifo")
    done = shell.inside("top", "--once", *arguments)
    assert done.status >= 64 and done.err.count("\n") == 1 and words in done.err


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self._screen, inner = pty.openpty()
        self.process = shell.start_on(inner, *words, COLUMNS="100", LINES="30")
        os.close(inner)
        self.shown = ""

    def until(self, words: str) -> None:
        """Read until something has been shown."""
        while words not in self.shown:
            ready, _, _ = select.select([self._screen], [], [], PATIENCE)
            assert ready, f"{words!r} is not shown: {self.shown!r}"
            piece = self._read()
            assert piece, f"it ended without {words!r}: {self.shown!r}"
            self.shown += piece

    def _read(self) -> str:
        try:
            return os.read(self._screen, 65536).decode(errors="replace")
        except OSError as error:
            if error.errno != errno.EIO:  # the other side is closed
                raise
            return ""

    def hit(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def ended(self) -> int:
        """The exit status, once everything is read."""
        while piece := self._read():
            self.shown += piece
        os.close(self._screen)
        return self.process.wait(PATIENCE)


LEFT = "\x1b[?1049l"
"""What brings back the screen as it was."""


def test_it_lives_on_a_terminal_until_q_is_hit(file, real_shell):
    file.create_tube("first").put(1, lane="of the first")
    file.create_tube("second").put(1, lane="of the second")
    terminal = Terminal(real_shell, "top", "-n", "0.1", "--tube", "first")
    terminal.until("of the first")
    terminal.hit(b"\x1b[B")
    terminal.until("of the second")
    terminal.hit(b"q")
    assert terminal.ended() == 0
    assert LEFT in terminal.shown


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_leave_the_terminal_as_it_was(file, shell, number, status):
    terminal = Terminal(shell, "top", "-n", "0.1")
    terminal.until("q quits")
    terminal.process.send_signal(number)
    assert terminal.ended() == status
    assert LEFT in terminal.shown
