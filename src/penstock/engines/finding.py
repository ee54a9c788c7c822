"""What a doctor of any engine finds, and how it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "bad"]
WORST_FIRST: tuple[Level, ...] = ("bad", "warn", "ok")


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    subject: str
    """The tube, table, transaction or slot; "" for the whole."""
    level: Level
    value: str
    meaning: str
    next_step: str = ""


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, else in the order they were found."""
    return sorted(findings, key=lambda finding: WORST_FIRST.index(finding.level))


def exit_status(findings: Iterable[Finding]) -> int:
    """0, 1 or 2 as the worst of them is ok, warn or bad."""
    return max((2 - WORST_FIRST.index(finding.level) for finding in findings), default=0)


def summary(place: str, findings: Sequence[Finding]) -> str:
    """How many there are of each level, in one line."""
    levels = [finding.level for finding in findings]
    return f"{place}: {', '.join(f'{levels.count(level)} {level}' for level in WORST_FIRST)}\n"


def shown(findings: Sequence[Finding], everything: bool = False) -> str:
    """Findings as text; what is well only if asked for."""
    lines = []
    for finding in findings:
        where = f" {finding.subject}" if finding.subject else ""
        if finding.level != "ok":
            lines.append(f"{finding.level:<5}{finding.check}{where}: {finding.value}")
            lines.append(f"     {finding.meaning}")
            lines.append(f"     next: {finding.next_step}")
        elif everything:
            lines.append(f"{finding.level:<5}{finding.check}{where}: {finding.value}")
    return "".join(f"{line}\n" for line in lines)


def graded(value: float, limits: tuple[float, float]) -> Level:
    """The first limit is a warning, the second is bad."""
    return "bad" if value >= limits[1] else "warn" if value >= limits[0] else "ok"


def how_long(seconds: float) -> str:
    """A length of time in the largest unit that there are two of.

    >>> how_long(7200), how_long(1)
    ('2 hours', '1 second')
    """
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return counted(round(seconds / size), unit)
    return counted(round(seconds), "second")


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
