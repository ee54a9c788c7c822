"""Replay: tasks that the lake knows are put again, each once, whatever cuts it off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.model.errors import TubeNotFound, UsageError
from penstock.pipeline.lake import PLANS, Lake
from penstock.pipeline.replay import Replay, replay
from penstock.pipeline.step import step
from penstock.pipeline.vacuum import vacuum

NUMBER = 60


class Cut(Exception):
    """The replay ends here."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("replay") / "tasks.db")


@pytest.fixture(scope="module")
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


@pytest.fixture(scope="module")
def lake(spark: Any, url: str, q: penstock.Queue) -> Lake:
    """Of a tube with tasks that were done, and some that were buried, and of one without data in its history."""
    tube = q.create_tube("jobs", history=True, history_data=True)
    for number in range(NUMBER):
        tube.put({"n": number}, lane=f"lane{number % 3}", pri=number % 2, key=f"key{number}")
    for task in tube.take_many(NUMBER):
        task.fail("ValueError: no") if task.data["n"] % 4 == 0 else task.ack()
    tube.put_many([{"n": -1}, {"n": -2}])  # they wait: nobody wants them twice
    q.create_tube("bare", history=True).put(1)
    made = Lake(Path(url).with_name("lake"))
    step(spark, url, made)
    return made


@pytest.fixture
def again(q: penstock.Queue) -> Iterator[Any]:
    """The tube into which a test replays."""
    yield q.create_tube("again")
    q.tube("again").drop(force=True)


def plans(lake: Lake) -> set[Path]:
    return set((lake.root / PLANS).glob("*"))


def put_again(tube: Any) -> Counter[int]:
    return Counter(task.data["n"] for task in tube.tasks(limit=1000))


def test_a_replay_that_is_cut_off_goes_on_and_puts_each_task_once(spark, url, lake, again):
    chunks, before = list[int](), plans(lake)

    def cut(done: int, of: int) -> None:
        chunks.append(of)
        if done == 1:
            raise Cut

    with pytest.raises(Cut):
        replay(spark, url, lake, "again", "r1", chunk=20, tell=cut)
    assert chunks == [3, 3]
    assert 0 < sum(put_again(again).values()) < NUMBER
    with pytest.raises(UsageError, match="was begun with where 'true'"):
        replay(spark, url, lake, "again", "r1", where="state = 'done'")
    with pytest.raises(UsageError, match="was begun with unfinished False"):
        replay(spark, url, lake, "again", "r1", unfinished=True)
    with pytest.raises(UsageError, match="was begun with tube 'again'"):
        replay(spark, url, lake, "jobs", "r1")
    vacuum(lake, older_than=-10, force=True)
    faster = list[Replay]()

    def overtaken(done: int, of: int) -> None:
        if done == 2:
            faster.append(replay(spark, url, lake, "again", "r1"))

    done = replay(spark, url, lake, "again", "r1", tell=overtaken)
    assert faster == [done], "two at one time do what one does"
    assert (done.tasks, done.put, done.existing, done.unfinished) == (NUMBER, NUMBER, 0, 3)
    assert put_again(again) == dict.fromkeys(range(NUMBER), 1)
    assert plans(lake) <= before, "the plan is not needed any more"
    again.ack_many(again.take_many(NUMBER))
    assert replay(spark, url, lake, "again", "r1").put == NUMBER, "what it did, not what it does"
    assert put_again(again) == {}


def test_a_replay_chooses_by_sql_and_keeps_lane_priority_and_key(spark, url, lake, again):
    buried = [number for number in range(NUMBER) if number % 4 == 0]
    where = "state = 'buried' AND error_class = 'ValueError'"
    counted = replay(spark, url, lake, "again", "r2", where=where, dry_run=True)
    assert (counted.tasks, counted.put) == (len(buried), 0)
    assert put_again(again) == {}
    again.put("there already", key="key4")
    done = replay(spark, url, lake, "again", "r2", where=where)
    assert (done.put, done.existing) == (len(buried) - 1, 1)
    found = [task for task in again.tasks(limit=1000) if task.data != "there already"]
    assert [task.data["n"] for task in found] == [number for number in buried if number != 4]
    assert all(task.lane == f"lane{task.data['n'] % 3}" for task in found)
    assert all((task.pri, task.key) == (task.data["n"] % 2, f"key{task.data['n']}") for task in found)


def test_replay_rejects_unknown_columns_unknown_tubes_and_tasks_without_data(spark, url, lake, again):
    with pytest.raises(UsageError, match="history_data"):
        replay(spark, url, lake, "again", "r3", where="tube = 'bare'", unfinished=True)
    with pytest.raises(UsageError, match="there are tube, task_id"):
        replay(spark, url, lake, "again", "r3", where="nonsense = 1")
    with pytest.raises(TubeNotFound):
        replay(spark, url, lake, "nowhere", "r3")
    assert replay(spark, url, lake, "again", "r3", where="tube = 'none'").tasks == 0
    waiting = replay(spark, url, lake, "again", "r3", where="state = 'ready'", dry_run=True, unfinished=True)
    assert (waiting.tasks, waiting.unfinished) == (3, 0)
