"""Which behaviours of tests/conformance.txt have a test: `python tools/conformance.py`, or `make coverage`.

A test cites what it shows in a comment: `# case 41`, or `# cases 41, 42`. The same page is in
docs/conformance.md, written by tools/generate.py.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "conformance.txt"
CITED = re.compile(r"# cases? (\d+(?:(?:, *| and )\d+)*)")
NOT_YET: dict[str, str] = {}
"""Parts that have to exist first, and why: the scopes of cases that wait for them."""


class Case(NamedTuple):
    """One behaviour."""

    number: int
    group: str
    tag: str
    scope: str
    phrase: str


class Coverage(NamedTuple):
    """The list and the tests, side by side."""

    cases: list[Case]
    groups: dict[str, str]
    tests: dict[int, set[str]]
    """The files that cite a number."""

    @property
    def wanted(self) -> list[Case]:
        return [case for case in self.cases if case.scope == "now"]

    @property
    def open(self) -> list[Case]:
        return [case for case in self.wanted if case.number not in self.tests]

    @property
    def unknown(self) -> list[int]:
        """Numbers that tests cite and the list does not have."""
        return sorted(set(self.tests) - {case.number for case in self.cases})


def read() -> Coverage:
    cases, groups = parse(LIST.read_text().splitlines())
    return Coverage(cases, groups, citations(sorted((ROOT / "tests").rglob("*.py"))))


def parse(lines: Iterable[str]) -> tuple[list[Case], dict[str, str]]:
    """The list and the names of its groups."""
    cases: list[Case] = []
    groups: dict[str, str] = {}
    for line in lines:
        if line.startswith("["):
            letter, name = line[1:].split("] ", 1)
            groups[letter] = name
        elif line and not line.startswith("#"):
            number, group, tag, scope, phrase = line.split(None, 4)
            cases.append(Case(int(number), group, tag, scope, phrase))
    return cases, groups


def citations(files: Iterable[Path]) -> dict[int, set[str]]:
    """Who cites which number."""
    found: dict[int, set[str]] = {}
    for file in files:
        for match in CITED.finditer(file.read_text()):
            for number in re.findall(r"\d+", match[1]):
                found.setdefault(int(number), set()).add(file.relative_to(ROOT / "tests").as_posix())
    return found


def summary(coverage: Coverage) -> str:
    shown = len(coverage.wanted) - len(coverage.open)
    later = len(coverage.cases) - len(coverage.wanted)
    rest = f"; {later} more wait for parts that do not exist yet" if later else ""
    return f"{shown} of {len(coverage.wanted)} cases have a test{rest}."


def page() -> str:
    """docs/conformance.md."""
    coverage = read()
    lines = [
        "# Conformance",
        "",
        "Made from `tests/conformance.txt` and the tests by `tools/generate.py`.",
        "",
        "Penstock does what five older queues do, except where they are wrong or unsafe. The list names those",
        "behaviours; a test that shows one cites its number. `core` is done as its model does it, `fix` as it",
        "should have been done, `compat` is a quirk that only clients of the old system need.",
        "",
        summary(coverage),
    ]
    waiting = Counter(case.scope for case in coverage.cases if case.scope != "now")
    if waiting:
        lines += ["", "| not yet | cases | why |", "|---|---|---|"]
        lines += [f"| {scope} | {number} | {NOT_YET[scope]} |" for scope, number in waiting.items()]
    for letter, name in coverage.groups.items():
        lines += ["", f"## {name[0].upper()}{name[1:]}", "", "| case | tag | about | shown by |", "|---|---|---|---|"]
        for case in coverage.cases:
            if case.group == letter:
                lines.append(f"| {case.number} | {case.tag} | {case.phrase} | {_shown_by(coverage, case)} |")
    return "\n".join([*lines, ""])


def _shown_by(coverage: Coverage, case: Case) -> str:
    files = sorted(coverage.tests.get(case.number, ()))
    if files:
        return ", ".join(f"`{file}`" for file in files)
    return "" if case.scope == "now" else f"not yet: {case.scope}"


def main() -> int:
    coverage = read()
    for letter, name in coverage.groups.items():
        cases = [case for case in coverage.cases if case.group == letter]
        cited = sum(case.number in coverage.tests for case in cases)
        later = sum(case.scope != "now" and case.number not in coverage.tests for case in cases)
        note = f"   {later} not yet" if later else ""
        print(f"{letter}  {name:<36} {cited:>3} of {len(cases) - later:>3}{note}")
        for case in cases:
            if case in coverage.open:
                print(f"       {case.number:>3}  {case.tag:<6}  {case.phrase}")
    print(summary(coverage))
    if coverage.unknown:
        print(f"tests cite numbers that are not in the list: {coverage.unknown}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
