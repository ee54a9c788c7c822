"""What children do. Imports little, so that they start fast."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.crash.children import Wire

import penstock
from penstock import LeaseLost

TUBES = {"plain": "fifo", "lanes": "utube", "watched": "utube"}
"""The third one has a history, so its verbs go the long way."""
SESSION_TTL = 0.5


def work(wire: Wire, path: str, durability: str, seed: int) -> None:
    """Put, take, ack, release at random until killed; say everything before and after."""
    rng = random.Random(seed)
    q = penstock.connect(path, durability=durability, session_ttl=SESSION_TTL)
    tubes = [q.create_tube(name, kind, if_not_exists=True, history=name == "watched") for name, kind in TUBES.items()]
    number = 0
    while True:
        tube = rng.choice(tubes)
        if rng.random() < 0.4:
            items = []
            for _ in range(rng.choice((1, 1, 1, 5))):
                number += 1
                items.append(penstock.Entry(f"{seed}:{number}", lane=_lane(rng, tube)))
                wire.say("asked", tube.name, items[-1].data)
            for task in tube.put_many(items):
                wire.say("put", tube.name, task.id, task.data)
        else:
            tasks = say_taken(wire, tube, rng.choice((1, 1, 3)))
            if rng.random() < 0.9:
                end(wire, tube, tasks, "ack" if rng.random() < 0.7 else "release")


def _lane(rng: random.Random, tube: penstock.Tube) -> str | None:
    return f"lane{rng.randrange(4)}" if tube.kind == "utube" else None


def say_taken(wire: Any, tube: penstock.Tube, number: int, timeout: float = 0) -> list[penstock.Task]:
    """Take up to `number` tasks and report each to the parent process."""
    began = time.monotonic_ns()
    tasks = tube.take_many(number, timeout=timeout)
    seen = time.monotonic_ns()
    for task in tasks:
        record = task._record
        wire.say("took", tube.name, record.id, task.data, record.lane, record.token, record.taken_at, began, seen)
    return tasks


def end(wire: Any, tube: penstock.Tube, tasks: list[penstock.Task], verb: str) -> None:
    tokens = [task.token for task in tasks]
    for token in tokens:
        wire.say("ending", tube.name, token, verb, time.monotonic_ns())
    if verb == "ack":
        answers: list[Any] = tube.ack_many(tasks, errors="return") if tasks else []
    else:
        answers = [_release(task) for task in tasks]
    for token, answer in zip(tokens, answers, strict=True):
        if isinstance(answer, LeaseLost):
            wire.say("ended", tube.name, token, "lost", None)
        else:
            record = answer._record
            at = record.done_at if verb == "ack" else record.ready_at
            wire.say("ended", tube.name, token, "acked" if verb == "ack" else "released", at)


def _release(task: penstock.Task) -> penstock.Task | LeaseLost:
    try:
        return task.release()
    except LeaseLost as lost:
        return lost
