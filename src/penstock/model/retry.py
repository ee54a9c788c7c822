"""How long a failed task waits before it is offered again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.model.duration import SECOND, Seconds, length, micros
from penstock.model.errors import UsageError


@dataclass(frozen=True)
class Exponential:
    """min(max, base * factor ** (k - 1)) seconds after the k-th failure, spread by +- jitter.

    >>> Exponential(base=1, factor=2, max=60).seconds(4)
    8.0
    """

    base: float = 1
    factor: float = 2
    max: float = 3600
    jitter: float = 0

    def __post_init__(self) -> None:
        for name in ("base", "factor", "max"):
            if length(getattr(self, name), f"Exponential.{name}") is None:
                raise UsageError(f"Exponential.{name} must be a number")
        if not 0 <= self.jitter <= 1:
            raise UsageError(f"Exponential.jitter must be between 0 and 1, got {self.jitter!r}")

    def seconds(self, failure: int) -> float:
        """The delay after the given failure (1 is the first), without jitter."""
        try:
            grown = float(self.base * self.factor ** (failure - 1))
        except OverflowError:
            grown = float(self.max)
        return min(float(self.max), grown)


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
    raise UsageError(f"retry must be None, seconds, a list of seconds or Exponential(..), got {value!r}")


def base_delay(policy: Retry, failure: int) -> int:
    """Microseconds to wait after the k-th failure, without jitter."""
    if policy is None:
        return 0
    if isinstance(policy, Exponential):
        return micros(policy.seconds(failure), "retry")
    if isinstance(policy, tuple):
        return micros(policy[min(failure, len(policy)) - 1], "retry")
    return micros(policy, "retry")


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
