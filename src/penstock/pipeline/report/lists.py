"""What was counted by error, by attempt, by end and by tube."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from penstock.pipeline.figures import Failure, Figures
from penstock.pipeline.report import charts, formats, markup
from penstock.pipeline.report.formats import count, counted, percent
from penstock.pipeline.report.lanes import failed, spread

ERRORS = 10
"""Kinds of errors that are shown."""
TEXT, EXAMPLE = 140, 2000
"""Letters of an error that are shown."""
TUBES = 50
ENDS = {
    "success": "done",
    "cancelled": "cancelled",
    "deleted": "deleted",
    "expired": "expired",
    "unseen": "gone, the end was not seen",
    "ready": "waiting for a worker",
    "taken": "running",
    "delayed": "delayed",
    "buried": "buried",
}


def failures(figures: Figures) -> str:
    """The most frequent kinds of errors, each with an example."""
    if not figures.failures:
        return markup.section("failures", "Failures", "<p>No error was stored.</p>")
    whole = sum(failure.count for failure in figures.failures)
    kinds = max(figures.failure_total, len(figures.failures))
    shown = figures.failures[:ERRORS]
    most = shown[0].count or 1
    many = len(figures.tubes) > 1
    items = "".join(_failure(failure, whole, most, many) for failure in shown)
    rest = whole - sum(failure.count for failure in shown)
    more = (
        f"<p>{counted(kinds - len(shown), 'other kind')}, {counted(rest, 'error')}.</p>" if kinds > len(shown) else ""
    )
    said = (
        f"<p>{counted(whole, 'error')} of {counted(kinds, 'kind')}, from runs that failed and tasks that were buried. "
        "They are of one kind when they differ only in numbers, ids and quoted values.</p>"
    )
    return markup.section("failures", "Failures", said, f'<ol class="failures">{items}</ol>', more)


def _failure(failure: Failure, whole: int, most: int, many: bool) -> str:
    facts = [f"{counted(failure.count, 'time')} ({percent(failure.count, whole)})"]
    if failure.buried:
        facts.append(f"{count(failure.buried)} buried")
    if failure.lanes > 1:
        facts.append(f"in about {count(failure.lanes)} lanes")
    if many:
        facts.append(f"tube {markup.written(failure.tube, 30)}")
    facts.append(
        formats.span(failure.first, failure.last) if failure.last > failure.first else formats.moment(failure.last)
    )
    text = failure.fingerprint
    kind = f"<strong>{markup.written(failure.error_class, 80)}</strong> " if failure.error_class else ""
    if failure.error_class and text.startswith(failure.error_class):
        text = text.removeprefix(failure.error_class).lstrip(": ")
    words = markup.written(text, TEXT) if text.strip() else ""
    example = markup.folded("An example", f"<pre>{escape(_example(failure.example))}</pre>")
    return (
        f'<li><p class="error">{kind}{words}</p>{charts.meter(failure.count / most, look="failed")}'
        f'<p class="facts">{" · ".join(facts)}</p>{example}</li>'
    )


def _example(text: str) -> str:
    """An error with its lines, without what cannot be shown."""
    cut = text if len(text) <= EXAMPLE else text[:EXAMPLE].rstrip() + " …"
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in cut)


def ends(figures: Figures) -> str:
    """What became of tasks, and how many attempts they took."""
    states = {words: figures.outcomes.get(key, 0) + figures.open.get(key, 0) for key, words in ENDS.items()}
    others = {escape(key): number for key, number in figures.outcomes.items() if key not in ENDS}
    became = {words: number for words, number in {**states, **others}.items() if number}
    parts = [f"<div><h3>What became of tasks</h3>{_bars('by how they ended, or their state now', became)}</div>"]
    tries = {_attempts(number, figures.attempts_limit): tasks for number, tasks in sorted(figures.attempts.items())}
    if any(tries.values()):
        parts.append(f"<div><h3>Attempts</h3>{_bars('tasks that ended, by how often they were taken', tries)}</div>")
    return markup.section("tasks", "Tasks", f'<div class="pair">{"".join(parts)}</div>')


def _attempts(number: int, limit: int) -> str:
    if number == 0:
        return "never taken"
    times = "once" if number == 1 else "twice" if number == 2 else f"{number} times"
    return f"{times} or more" if number == limit else times


def _bars(what: str, numbers: Mapping[str, int]) -> str:
    whole, most = sum(numbers.values()), max(numbers.values(), default=0) or 1
    rows = [(words, charts.meter(n / most, count(n)), percent(n, whole)) for words, n in numbers.items()]
    return markup.table(what, ("", "tasks", "share"), rows)


def tubes(figures: Figures) -> str:
    """All tubes, one a row."""
    rows = []
    for tube in figures.tubes[:TUBES]:
        rows.append(
            (
                markup.written(tube.tube),
                *map(count, (tube.counts.puts, tube.counts.acks)),
                failed(tube.counts, tube.run),
                *map(count, (tube.ready, tube.taken, tube.delayed, tube.buried)),
                *spread(tube.wait),
                *spread(tube.run),
                count(tube.lanes),
                formats.NONE if tube.fairness is None else f"{tube.fairness:.2f}",
            )
        )
    heads = (
        *("tube", "put", "ended well", "failed", "waiting", "running", "delayed", "buried"),
        *("waited: half", "90 of 100", "ran: half", "90 of 100", "lanes", "fairness"),
    )
    left = len(figures.tubes) - len(rows)
    more = f"<p>And {counted(left, 'other tube')}.</p>" if left > 0 else ""
    return markup.section("tubes", "Tubes", markup.table("Every tube over the whole time", heads, rows), more)
