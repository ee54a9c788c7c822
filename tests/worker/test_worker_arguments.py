"""What a worker refuses when it is made."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import UsageError, Worker


class Half:
    def inc_busy(self, name: str, tube: str) -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"processes": value}, "processes must be a whole number from 1") for value in (-1, 0, "a", True, 1.5)),
        *(({"hooks": value}, "hooks must have inc_busy, measure, dec_busy") for value in (3, Half())),
        *(({"name": value}, "name must be text") for value in (3, None, "")),
        *(({"concurrency": value}, "concurrency must be a whole number from 1") for value in (0, "a")),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(memory: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Worker(memory, **options)


@pytest.mark.parametrize("queue", ["x", None, 3, penstock.Worker])
def test_a_worker_needs_a_queue(queue: Any) -> None:
    with pytest.raises(UsageError, match=r"a worker needs a queue, as connect\(\) or aconnect\(\) give, got"):
        Worker(queue)


def test_a_queue_that_is_still_to_be_awaited_is_refused() -> None:
    opening = penstock.aconnect("memory:")
    with pytest.raises(UsageError, match="a worker needs a queue"):
        Worker(opening)  # type: ignore[arg-type]
    opening.close()
