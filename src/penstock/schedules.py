"""Schedules: when a periodic task is due next. A schedule is stored as a task of the tube SCHEDULES."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from penstock import payload
from penstock.model.duration import SECOND, Seconds, date, length, micros
from penstock.model.errors import UsageError, shown
from penstock.model.tube import check_name, check_text

SCHEDULES = "penstock.schedules"
"""The tube that holds them: a task a schedule, delayed until the next fire, its name as the key."""
MISSED = ("coalesce", "skip", "all")
MOST_MISSED = 1000
"""How many missed fires `all` puts in one transaction; the rest follow at once."""
LATE = 60 * SECOND
"""A fire that is noticed later than this, or than one period, was missed."""
Missed = Literal["coalesce", "skip", "all"]


class Schedule(NamedTuple):
    """What is put when. `next` is the moment of the next fire, in microseconds."""

    name: str
    tube: str
    data: Any
    cron: str | None
    every: int | None
    tz: str
    missed: Missed
    options: Mapping[str, Any]
    next: int = 0

    @property
    def next_at(self) -> datetime:
        """When it fires next."""
        moment = date(self.next)
        assert moment is not None
        return moment

    def to_data(self) -> dict[str, Any]:
        """As a task's data."""
        return {**self._asdict(), "options": dict(self.options)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Schedule:
        return cls(**data)

    def same_as(self, other: Schedule) -> bool:
        """Whether it is the same but for the moment of the next fire."""
        return self._replace(next=0) == other._replace(next=0)

    def after(self, moment: int) -> int:
        """The first fire after a moment; those of `every` go on from the last one."""
        if self.every is not None:
            return (
                self.next + ((moment - self.next) // self.every + 1) * self.every if self.next else moment + self.every
            )
        zone = _zone(self.tz)
        start = datetime.fromtimestamp(moment // SECOND, zone)
        return micros_of(_croniter()(self.cron, start).get_next(datetime))


class Fires(NamedTuple):
    """What is to be done about a schedule that is due."""

    moments: list[int]
    """For which a task is put."""
    next: int


def due(schedule: Schedule, now: int) -> Fires:
    """The fires up to now, as far as `missed` wants them, and the one after."""
    moments, moment = list[int](), schedule.next
    if schedule.missed != "all":
        last, following = _last_before(schedule, now)
        late = now - last > min(LATE, following - last)
        return Fires([] if late and schedule.missed == "skip" else [last], following)
    while moment <= now and len(moments) < MOST_MISSED:
        moments.append(moment)
        moment = schedule._replace(next=moment).after(moment)
    return Fires(moments, moment)


def _last_before(schedule: Schedule, now: int) -> tuple[int, int]:
    """The last fire that is not after now, and the one after it."""
    following = schedule.after(now)
    if schedule.every is not None:
        return following - schedule.every, following
    zone = _zone(schedule.tz)
    # One second on: the search is for what lies before a moment, and now itself counts.
    start = datetime.fromtimestamp(now // SECOND + 1, zone)
    last = micros_of(_croniter()(schedule.cron, start).get_prev(datetime))
    return max(schedule.next, last), following


def new_schedule(
    name: str,
    tube: str,
    data: Any,
    cron: str | None,
    every: Seconds | None,
    tz: str,
    missed: str,
    options: Mapping[str, Any],
) -> Schedule:
    """Check what a caller gave."""
    if check_text(name, "name") is None:
        raise UsageError("a schedule needs a name")
    if (cron is None) == (every is None):
        raise UsageError(f'schedule {name!r} needs cron=".." or every=seconds, one of them')
    if missed not in MISSED:
        raise UsageError(f"missed must be one of {', '.join(MISSED)}, got {shown(missed)}")
    period = None
    if every is not None:
        period = length(every, "every")
        if not period or period < SECOND // 10:
            raise UsageError(f"every must be at least 0.1 seconds, got {shown(every)}")
    else:
        _check_cron(name, cron)
    _zone(tz)
    payload.encode(data)
    payload.encode(dict(options))
    return Schedule(name, check_name(tube), data, cron, period, tz, missed, dict(options))  # type: ignore[arg-type]


def first(schedule: Schedule, now: int) -> Schedule:
    """A schedule that begins now."""
    return schedule._replace(next=schedule._replace(next=0).after(now))


def _check_cron(name: str, cron: Any) -> None:
    croniter = _croniter()
    if not isinstance(cron, str) or not croniter.is_valid(cron):
        raise UsageError(
            f"schedule {name!r}: {shown(cron)} is no cron string such as '0 3 * * *' (minute hour day month weekday)"
        )


def _croniter() -> Any:
    try:
        from croniter import croniter  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError("cron strings need croniter: pip install 'penstock[cron]', or use every=seconds") from None
    return croniter


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):
        raise UsageError(f"tz must name a time zone such as 'Europe/Berlin', got {shown(name)}") from None


def micros_of(moment: datetime) -> int:
    return micros((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1), "moment")
