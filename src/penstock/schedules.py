"""Schedules: when a periodic task is due next. A schedule is stored as a task of the tube SCHEDULES."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from penstock import calls, payload
from penstock.model.duration import FOREVER, SECOND, Seconds, date, length, micros
from penstock.model.errors import UsageError, shown
from penstock.model.tube import KINDS, check_name, check_text, new_tube

SCHEDULES = "penstock.schedules"
"""The tube that holds them: a task a schedule, delayed until the next fire, its name as the key."""
MISSED = ("coalesce", "skip", "all")
MOST_MISSED = 1000
"""How many missed fires `all` puts in one transaction; the rest follow at once."""
MOST_FIELDS = 6
"""Those of cron, and seconds."""
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
        """What to_data() made of it; what a later version of the library has added is left out."""
        return cls(**{name: value for name, value in data.items() if name in cls._fields})

    def same_as(self, other: Schedule) -> bool:
        """Whether it is the same but for the moment of the next fire."""
        return self._replace(next=0) == other._replace(next=0)

    def after(self, moment: int) -> int:
        """The first fire after a moment; those of `every` go on from the last one."""
        if self.every is not None:
            return (
                self.next + ((moment - self.next) // self.every + 1) * self.every if self.next else moment + self.every
            )
        return self._search(moment, "get_next")

    def before(self, moment: int) -> int:
        """The last fire of cron that is not after a moment."""
        # One second on: the search is for what lies before a moment, and now itself counts.
        return self._search(moment + SECOND, "get_prev")

    def _search(self, moment: int, direction: str) -> int:
        assert self.cron is not None
        zone = _zone(self.tz)
        times = _croniter()(self.cron, datetime.fromtimestamp(moment // SECOND, zone))
        while True:
            found = micros_of(getattr(times, direction)(datetime))
            if _goes_by_the_hour(self.cron) or not _is_repeated(datetime.fromtimestamp(found // SECOND, zone)):
                return found


def _goes_by_the_hour(cron: str) -> bool:
    """Whether a cron string means every so many hours, and not hours that have a name."""
    fields = cron.split()
    return cron == "@hourly" or (len(fields) > 1 and fields[1].startswith("*"))


def _is_repeated(moment: datetime) -> bool:
    """Whether clocks were set back since they last showed the same: in autumn, in the second of two hours."""
    first, second = moment.replace(fold=0).utcoffset(), moment.replace(fold=1).utcoffset()
    return bool(moment.fold and first and second and first > second)


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
    return max(schedule.next, schedule.before(now)), following


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
        if not period or not SECOND // 10 <= period < FOREVER:
            raise UsageError(f"every must be at least 0.1 seconds and less than 100 years, got {shown(every)}")
    _zone(tz)
    payload.encode(data)
    asked = {option: _plain(value) for option, value in options.items()}
    _check_options(name, asked)
    made = Schedule(name, check_name(tube), data, cron, period, tz, missed, asked)  # type: ignore[arg-type]
    if cron is not None:
        _check_cron(made)
    return made


def _plain(value: Any) -> Any:
    return value / timedelta(seconds=1) if isinstance(value, timedelta) else value


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse now what would be refused at every fire; what only some kinds of tubes have is seen then."""
    unknown = [option for option in options if option not in calls.ENTRY_OPTIONS]
    if unknown:
        raise UsageError(
            f"schedule {name!r}: tasks have no option {shown(unknown[0])}; there are {', '.join(calls.ENTRY_OPTIONS)}"
        )
    payload.encode(dict(options))
    calls.put_draft(new_tube("any", KINDS["standard"], False, {}), KINDS["standard"], None, **options)


def first(schedule: Schedule, now: int) -> Schedule:
    """A schedule that begins now."""
    return schedule._replace(next=schedule._replace(next=0).after(now))


def _check_cron(schedule: Schedule) -> None:
    cron: Any = schedule.cron
    # What is chosen at random would be chosen anew at every look; what has a year comes to an end.
    known = isinstance(cron, str) and not re.search(r"(?i)\br\b", cron) and len(cron.split()) <= MOST_FIELDS
    if known and _croniter().is_valid(cron):
        try:
            schedule.after(0)
            return
        except (ValueError, OverflowError):
            hint = "it never comes"
    else:
        hint = "it is no cron string such as '0 3 * * *' (minute hour day month weekday)"
    raise UsageError(f"schedule {schedule.name!r}: cron {shown(cron)} is refused: {hint}")


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
