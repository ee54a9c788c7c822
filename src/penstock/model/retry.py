"""How long a failed task waits before it is offered again."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.model.duration import FOREVER, SECOND, Seconds, length, micros
from penstock.model.errors import UsageError, shown


@dataclass(frozen=True)
class Exponential:
    """min(max, base * factor ** (k - 1)) seconds after the k-th failure, spread by +- jitter.

    `base` and `max` may be timedeltas; they are kept as seconds.

    >>> Exponential(base=1, factor=2, max=60).seconds(4)
    8.0
    """

    base: float = 1
    factor: float = 2
    max: float = 3600
    jitter: float = 0

    def __post_init__(self) -> None:
        for name in ("base", "max"):
            value = getattr(self, name)
            wait = length(value, f"Exponential.{name}")
            if wait is None:
                raise UsageError(f"Exponential.{name} must be seconds (a number) or a timedelta, not None")
            if isinstance(value, timedelta) or wait >= FOREVER:
                object.__setattr__(self, name, wait / SECOND)
        if not _is_number(self.factor) or not 0 <= self.factor <= 1e9:
            raise UsageError(f"Exponential.factor must be a number from 0 to 1000000000, got {shown(self.factor)}")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise UsageError(f"Exponential.jitter must be a number between 0 and 1, got {shown(self.jitter)}")

    def seconds(self, failure: int) -> float:
        """The delay after the given failure (1 is the first), without jitter."""
        try:
            grown = self.base * float(self.factor) ** (failure - 1)
        except OverflowError:
            grown = self.max if self.base else 0
        return min(float(self.max), float(grown))

    def total(self, failures: int) -> float:
        """The delays of the first failures together, without jitter, whatever their number."""
        if failures < 1 or not self.base or not self.max:
            return 0.0
        base, factor, most = max(1e-9, self.base), float(self.factor), max(1e-9, self.max)
        if factor in (0.0, 1.0):
            return min(base, most) * (failures if factor else 1)
        # Before it crosses `max` the delay grows (or, with a factor below 1, is cut off); after that the opposite.
        crossing = min(failures, max(0, math.ceil(math.log(most / base) / math.log(factor))))
        cut = failures - crossing if factor > 1 else crossing
        first = 0 if factor > 1 else crossing
        free = failures - cut
        return cut * most + base * factor**first * math.expm1(free * math.log(factor)) / (factor - 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


Retry = None | float | tuple[float, ...] | Exponential
RetryArgument = None | Seconds | Sequence[Seconds] | Exponential


def parse(value: RetryArgument) -> Retry:
    """Check what a caller gave as `retry=`; lists become tuples of seconds."""
    if value is None or isinstance(value, Exponential):
        return value
    if isinstance(value, int | float | timedelta):
        length(value, "retry")
        return micros(value, "retry") / SECOND
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        for item in value:
            length(item, "retry")
        return tuple(micros(item, "retry") / SECOND for item in value)
    raise UsageError(f"retry must be None, seconds, a list of seconds or Exponential(..), got {shown(value)}")


def base_delay(policy: Retry, failure: int) -> int:
    """Microseconds to wait after the k-th failure, without jitter."""
    if policy is None:
        return 0
    if isinstance(policy, Exponential):
        return micros(policy.seconds(failure), "retry")
    if isinstance(policy, tuple):
        return micros(policy[min(failure, len(policy)) - 1], "retry")
    return micros(policy, "retry")


def total_delay(policy: Retry, failures: int) -> int:
    """Microseconds waited after the first failures together, without jitter: what base_delay() adds up to."""
    if isinstance(policy, Exponential):
        return micros(policy.total(failures), "retry")
    if isinstance(policy, tuple):
        listed = [base_delay(policy, k) for k in range(1, min(failures, len(policy)) + 1)]
        return sum(listed) + max(0, failures - len(policy)) * base_delay(policy, len(policy))
    return failures * base_delay(policy, 1)


def jittered_delay(policy: Retry, failure: int) -> int:
    """Microseconds to wait after the k-th failure, jitter included."""
    delay = base_delay(policy, failure)
    if isinstance(policy, Exponential) and policy.jitter:
        delay = round(delay * (1 + random.uniform(-policy.jitter, policy.jitter)))
    return delay


def to_json(policy: Retry) -> object:
    """The policy as a plain value for storage."""
    if isinstance(policy, Exponential):
        return {"base": policy.base, "factor": policy.factor, "max": policy.max, "jitter": policy.jitter}
    return list(policy) if isinstance(policy, tuple) else policy


def from_json(value: object) -> Retry:
    """The other way round of to_json()."""
    if isinstance(value, dict):
        return Exponential(**value)
    if isinstance(value, list):
        return tuple(float(item) for item in value)
    return None if value is None else float(value)  # type: ignore[arg-type]
