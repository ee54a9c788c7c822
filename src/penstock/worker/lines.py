"""The tubes that a worker takes from, and how their tasks share its slots."""

from __future__ import annotations

import logging

from penstock.blocking import Tube
from penstock.engines.line import Taker
from penstock.model.duration import SECOND
from penstock.model.task import Record

log = logging.getLogger("penstock.worker")
SHORT = 5 * SECOND
"""A task whose run may last no longer than this is not fetched before there is a slot for it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0


class Line:
    """A tube that a worker takes from."""

    def __init__(self, tube: Tube, weight: float, apart: int = 0, in_process: bool = False) -> None:
        self.tube = tube
        self.weight = weight
        self.apart = apart
        """How many of its tasks run beside the slots; 0: they need slots, as all but the worker's own do."""
        self.in_process = in_process
        """Its tasks need a process of the worker's too, and those are few."""
        self.held = 0
        """Tasks of it that are taken."""
        self.ended = 0
        """How many of its tasks have ended so far."""
        self.waiter: Taker | None = None
        self.hot = True
        """It gave as many tasks as were asked for, so there may be more."""
        self.leaving = False
        """Nothing is taken from it any more; the thread forgets it at its next round."""
        self.careful = False
        """Tasks of it have lanes, which may have limits of their own, or little time."""
        self.credit = 0.0
        self.pause = 0.0
        self.not_before = 0.0
        self.asked_at = 0.0
        self.woken_at = 0.0
        """When the waiter was given something, on time.monotonic()."""
        self.looked_at = 0.0
        """When its options were last read."""

    @property
    def is_prompt(self) -> bool:
        """Tasks of it are not taken before there is a slot: they would count as running, or use up a rate."""
        config = self.tube._config
        limits = (config.concurrency, config.lane_rate, config.lane_concurrency)
        return self.careful or self.in_process or any(limit is not None for limit in limits)

    def learn(self, records: list[Record]) -> None:
        """What tasks of it are like."""
        self.careful = self.careful or any(
            record.lane or (record.deadline and record.deadline - (record.taken_at or 0) < SHORT) for record in records
        )

    def may_be_asked(self, now: float) -> bool:
        return self.waiter is None and self.not_before <= now and not self.leaving

    def failed(self, error: BaseException, now: float) -> None:
        """Ask again later, and say why once."""
        if not self.pause:
            name = self.tube.name
            log.error("no tasks can be taken from tube %r, trying again: %s", name, error, extra={"tube": name})
        self.pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self.pause))
        self.not_before = now + self.pause
        self.hot = True

    def succeeded(self) -> None:
        if self.pause:
            log.info("tasks can be taken from tube %r again", self.tube.name, extra={"tube": self.tube.name})
            self.pause = self.not_before = 0.0


def shares(lines: list[Line], room: int) -> list[tuple[Line, int]]:
    """Share room out by weight; what does not come out even is settled over the next rounds."""
    total = sum(line.weight for line in lines)
    for line in lines:
        line.credit += room * line.weight / total
    given, left = dict.fromkeys(lines, 0), room
    for line in sorted(lines, key=lambda line: -line.credit):
        given[line] = max(0, min(left, int(line.credit)))
        left -= given[line]
    for line in sorted(lines, key=lambda line: given[line] - line.credit):
        if left <= 0:
            break
        given[line] += 1
        left -= 1
    for line, share in given.items():
        line.credit -= share
    return list(given.items())
