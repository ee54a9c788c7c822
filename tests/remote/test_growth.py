"""A client that works for long keeps nothing of what is over: neither its maps grow, nor is there more of anything."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.servers import Running
from tests.worker.bench import until

import penstock
from penstock.engines.remote import seen

SLACK = 5
"""Objects that there may be more of, by chance; of what is kept for each round there are many more."""
SIZED = (dict, list, set, deque, seen.Seen)


@pytest.fixture(params=["penstock", "grpc"])
def url(request: Any) -> Iterator[str]:
    with Running("memory:", grpc_port=0) as running:
        yield running.url if request.param == "penstock" else running.grpc_url


def parts(q: Any) -> dict[str, Any]:
    """What a queue at a server is made of."""
    store = q._engine.store
    return {"engine": q._engine, "store": store, "channel": store.channel, "link": store.channel._link}


def sizes(q: Any) -> dict[str, int]:
    """How full everything is that can be."""
    return {
        f"{name}.{attribute}": len(value)
        for name, part in parts(q).items()
        for attribute, value in vars(part).items()
        if isinstance(value, SIZED)
    }


def living() -> Counter[str]:
    """How many objects of the library there are, by class; of classes that are made for what is asked."""
    gc.collect()
    kinds = ("penstock.engines.remote", "penstock.engines.line", "penstock.engines.refund", "penstock.model.ops")
    return Counter(type(it).__qualname__ for it in gc.get_objects() if str(type(it).__module__).startswith(kinds))


def work(q: Any, number: int) -> None:
    """Everything that a client does, with names of its own."""
    tube = q.create_tube(f"tube{number}")
    tube.put_many(range(5))
    heard: list[Any] = []
    tube.on_task_change(lambda task, event: heard.append(event))
    tube.take(0).ack()
    with tube.take(1) as task:
        assert task.data == 1
    tube.take_many(2)[0].release()
    assert tube.take(0.01, lane="none") is None
    with pytest.raises(penstock.TaskNotFound):
        tube.peek(77)
    with pytest.raises(penstock.WaitTimeout):
        tube.wait(4, timeout=0.01)
    with q.transaction() as tx:
        tube.put("x", transaction=tx)
    tube.on_task_change(None)
    tube.drop(force=True)
    assert heard


def grown(measure: Callable[[], dict[str, int]], before: dict[str, int], slack: int) -> dict[str, int]:
    """What has become more, and does not become less again: something may be on its way at either moment."""
    more: dict[str, int] = {}

    def look() -> bool:
        more.clear()
        more.update((name, value) for name, value in measure().items() if value > before.get(name, 0) + slack)
        return not more

    with contextlib.suppress(AssertionError):
        until(look, 60.0)
    return more


@pytest.mark.parametrize("rounds", [8, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_a_client_does_not_grow(url: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "TUBES", rounds // 2)
    with penstock.connect(url) as q:
        for number in range(rounds):
            work(q, number)
        full, objects = sizes(q), living()
        for number in range(rounds, 4 * rounds):
            work(q, number)
        assert grown(lambda: sizes(q), full, slack=2) == {}
        assert grown(living, objects, slack=SLACK) == {}


def test_sessions_that_were_left_are_forgotten(url: str) -> None:
    with penstock.connect(url) as q:

        def visit() -> None:
            with penstock.connect(url) as guest:
                guest.identify(str(q.identify()))

        for _ in range(10):
            visit()
        full = sizes(q)
        for _ in range(20):
            visit()
        assert grown(lambda: sizes(q), full, slack=2) == {}


def test_tokens_of_a_tube_that_was_forgotten_count_as_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "TUBES", 2)
    known = seen.Seen()
    for tube, token in (("a", 7), ("b", 5), ("a", 6), ("c", 3)):
        known.note(tube, token)
    assert len(known) == 2
    assert [known.is_new("a", token) for token in (7, 8)] == [False, True]
    assert [known.is_new("b", token) for token in (5, 6)] == [False, True]
    assert [known.is_new("c", token) for token in (3, 4)] == [False, True]
