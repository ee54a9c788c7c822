"""A process that dies before any statement, or any write, of a call: the call happened as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.crash.children import Children, family
from tests.crash.scenes import SCENES, TEMPORARY, close_store, hold, open_store, play, prepare
from tests.support import invariants

import penstock

AT_ONCE = 4
"""Processes at a time."""
WRITTEN = ["put", "take", "ack in a lane", "transaction"]
"""Scenes that are killed before every write too."""
WRITTEN_TOO = [*WRITTEN, "put in a lane", "ack", "release", "create_tube", "adopt"]
"""And those of `make test-all`, which kills at every point."""
LEVELS = [
    ("statement", "some"),
    *(pytest.param(level, "all", marks=pytest.mark.exhaustive) for level in ("statement", "write")),
]
LASTING = ["put", "take", "close"]
"""What is done to temporary tubes in every run."""
MASKED = {"uuid", "name", "worker"}
"""Columns that differ from process to process."""


def chosen(points: str, number: int) -> list[int]:
    """All points of a call, or some: a few from its first to its last, which a commit comes before or after."""
    if points == "all":
        return list(range(1, number + 1))
    return sorted({1, number // 3, 2 * number // 3, number - 1, number} - {0})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "tasks.db"
    prepare(str(path))
    return path


def dump(path: Path, ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    """All that is in a file, but for what differs from process to process."""
    connection = apsw.Connection(str(path))
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found: dict[str, Any] = {"schema": sorted(connection.execute("SELECT name, sql FROM sqlite_schema"))}
    for name in names:
        if name not in ignore:
            columns = [column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))]
            rows = connection.execute(f'SELECT * FROM "{name}" ORDER BY 1, 2')  # noqa: S608
            found[name] = [
                tuple(_mask(name, column, value) for column, value in zip(columns, row, strict=True)) for row in rows
            ]
    connection.close()
    return found


def _mask(table: str, column: str, value: Any) -> Any:
    masked = column in MASKED and table != "tubes" and not (table == "sqlite_sequence" and column == "name")
    return value is not None if masked else value


class Rehearsal:
    """Kills a call at each of its points, each time on a fresh copy of a store."""

    def __init__(self, children: Children, original: Path | None, folder: Path) -> None:
        self._children = children
        self._original = original
        self._folder = folder
        self._copies = 0

    def copy(self) -> Path:
        self._copies += 1
        path = self._folder / f"{self._copies}.db"
        if self._original is not None:
            for suffix in ("", "-wal", "-temporary", "-temporary-wal"):
                source = self._original.with_name(self._original.name + suffix)
                if source.exists():
                    shutil.copy(source, path.with_name(path.name + suffix))
        return path

    def run(self, role: Callable[..., None], *args: Any, point: int = 0) -> tuple[Path, list[Any]]:
        """Play once; answers the store as it was left and what the child said."""
        return self.results(role, *args, points=[point])[0]

    def results(self, role: Callable[..., None], *args: Any, points: list[int]) -> list[tuple[Path, list[Any]]]:
        results: list[tuple[Path, list[Any]]] = []
        for start in range(0, len(points), AT_ONCE):
            batch = [(path := self.copy(), self._start(role, path, args, p)) for p in points[start : start + AT_ONCE]]
            for path, child in batch:
                said = child.rest()
                assert child.exit() == -9, said
                results.append((path, said))
                self._children.forget(child)
        return results

    def _start(self, role: Callable[..., None], path: Path, args: tuple[Any, ...], point: int) -> Any:
        return self._children.start(role, str(path), *args, point)


def check_whole(path: Path) -> None:
    """No page and no index is damaged."""
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def check_sound(path: Path) -> None:
    """The store opens, is what it should be, and works."""
    with penstock.connect(str(path), durability="relaxed") as q:
        invariants.check(str(path))
        for tube in q.tubes():
            if tube.options.get("id") == "auto":
                assert tube.put("works").data == "works"
            assert tube.take() is not None
        invariants.check(str(path))
    check_whole(path)


POINTS = [
    *((scene, "statement", "some") for scene in SCENES),
    *((scene, "write", "some") for scene in WRITTEN),
    *(pytest.param(scene, "statement", "all", marks=pytest.mark.exhaustive) for scene in SCENES),
    *(pytest.param(scene, "write", "all", marks=pytest.mark.exhaustive) for scene in WRITTEN_TOO),
]


@pytest.mark.parametrize(("scene", "level", "points"), POINTS)
def test_a_call_that_is_killed_at_any_point_has_happened_or_not(tmp_path, prepared, scene, level, points):
    with family() as children:
        rehearsal = Rehearsal(children, prepared, tmp_path)
        path, said = rehearsal.run(play, scene, level)
        after, number = dump(path), said[-1][1]
        check_sound(path)
        path, _ = rehearsal.run(play, scene, level, point=1)
        before = dump(path)
        check_sound(path)
        assert before != after and number >= 2, "the scene changes nothing, so it proves nothing"
        happened = []
        for path, said in rehearsal.results(play, scene, level, points=chosen(points, number)[1:]):
            assert said == [["ready"]], "the child was not killed in the middle"
            state = dump(path)
            assert state in (before, after), f"half done: {difference(before, after, state)}"
            happened.append(state == after)
            check_whole(path)
        assert happened == sorted(happened), "what had happened was undone"


def difference(before: dict[str, Any], after: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"before": before.get(name), "after": after.get(name), "found": state.get(name)}
        for name in {*before, *after, *state}
        if not before.get(name) == after.get(name) == state.get(name)
    }


VARYING = ("sqlite_sequence", "penstock_store")


def settled(path: Path) -> dict[str, Any]:
    """A store after it was opened and closed in good order."""
    penstock.connect(str(path), clock=penstock.testing.ManualClock(1_800_000_000_000_000)).close()
    return dump(path, ignore=VARYING)


@pytest.mark.parametrize(("level", "points"), LEVELS)
@pytest.mark.parametrize("role", [open_store, close_store], ids=["opening", "closing"])
def test_a_store_whose_opening_or_closing_is_killed_at_any_point_opens_again(tmp_path, prepared, role, level, points):
    folder = tmp_path / "held"
    folder.mkdir()
    held = folder / "tasks.db"
    shutil.copy(prepared, held)
    with family() as children:
        child = children.start(hold, str(held))
        assert child.line() == ["ready"]
        child.kill()
        rehearsal = Rehearsal(children, held, tmp_path)
        path, said = rehearsal.run(role, level)
        expected, number = settled(path), said[-1][1]
        check_sound(path)
        assert number > 5
        for path, said in rehearsal.results(role, level, points=chosen(points, number)):
            assert said == [["ready"]]
            assert settled(path) == expected
            check_whole(path)


@pytest.mark.parametrize(("level", "points"), LEVELS)
def test_a_new_store_whose_first_opening_is_killed_at_any_point_opens_again(tmp_path, level, points):
    with family() as children:
        rehearsal = Rehearsal(children, None, tmp_path)
        path, said = rehearsal.run(open_store, level)
        expected, number = settled(path), said[-1][1]
        for path, said in rehearsal.results(open_store, level, points=chosen(points, number)):
            assert said == [["ready"]]
            assert settled(path) == expected
            with penstock.connect(str(path)) as q:
                assert q.create_tube("jobs").put(1).id == 1
                assert q.tube("jobs").take().data == 1


@pytest.mark.parametrize(
    "scene", [pytest.param(scene, marks=() if scene in LASTING else pytest.mark.exhaustive) for scene in TEMPORARY]
)
def test_a_process_that_dies_on_a_temporary_tube_leaves_it_usable_to_the_others(tmp_path, scene):
    path = str(tmp_path / "tasks.db")
    with penstock.connect(path) as q, family() as children:
        number, point = 1, 0
        tokens: list[int] = []
        while point < number:
            point += 1
            cache = q.create_tube("cache", "fifo", temporary=True)
            cache.put_many([1, 2])
            child = children.start(play, path, scene, "statement", 0 if number == 1 and point == 1 else point, True)
            said = child.rest()
            if number == 1 and point == 1:
                number, point = said[-1][1], 0
            for name in ("cache", "new"):
                q.create_tube(name, "fifo", temporary=True, if_not_exists=True)
            invariants.check(path)
            fresh = q.tube("new")
            fresh.put("x")
            for tube in (fresh, q.tube("cache")):
                tokens += [task.token for task in tube.take_many(10)]
                tube.drop(force=True)
        assert number > 3
        assert len(set(tokens)) == len(tokens), "a token was granted twice"
