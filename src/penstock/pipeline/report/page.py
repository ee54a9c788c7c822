"""The page: one file, that needs nothing else and asks nobody for anything."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from penstock.pipeline.figures import Figures, Spread
from penstock.pipeline.report import formats, health, lists, markup, timeline
from penstock.pipeline.report.formats import count, counted, duration, percent
from penstock.pipeline.report.health import Check, Level
from penstock.pipeline.report.lanes import lanes

SIGNS = {Level.WELL: "✓", Level.LOOK: "!", Level.TROUBLE: "✕"}
VERDICTS = {Level.WELL: "All is well", Level.LOOK: "Worth a look", Level.TROUBLE: "Trouble"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_HATCH = (
    '<svg class="defs" width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse"><rect width="7" height="7"/>'
    '<path d="M0 7L7 0M-1 1L1 -1M6 8L8 6"/></pattern>'
    '<pattern id="dots" width="7" height="7" patternUnits="userSpaceOnUse"><rect width="7" height="7"/>'
    '<path d="M2 2h0M5.5 5.5h0"/></pattern></defs></svg>'
)


def write_report(figures: Figures, path: str | os.PathLike[str]) -> Path:
    """Write the page. Who reads the file meanwhile sees the old one or the new one."""
    target = Path(path)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    # Names and errors may hold halves of characters, which no file can.
    fresh.write_text(render(figures), encoding="utf-8", errors="replace")
    fresh.replace(target)
    return target


def render(figures: Figures) -> str:
    """The page as text. The same figures make the same page."""
    found = health.checks(figures)
    title = " · ".join(["Queue report", *([VERDICTS[health.verdict(found)]] if found else [])])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{_part('style.css')}</style></head><body>{_HATCH}<main>"
        f"{_head(figures, found)}{''.join(_body(figures))}</main>{_foot(figures)}"
        f"<script>{_part('script.js')}</script></body></html>\n"
    )


@cache
def _part(name: str) -> str:
    return files("penstock.pipeline.report").joinpath(name).read_text(encoding="utf-8")


def _head(figures: Figures, found: list[Check]) -> str:
    """What is to be known in ten seconds."""
    if not figures.counts.events:
        return (
            '<header><h1>Queue report</h1><p class="headline">Nothing has happened yet: no event is in the lake.</p>'
            "<p>Tubes that were made with <code>history=True</code> write events. Once there are some, "
            "<code>penstock pipeline run</code> brings them into the lake.</p></header>"
        )
    level = health.verdict(found)
    items = "".join(
        f'<li class="{check.level.name.lower()}"><span class="sign" aria-hidden="true">{SIGNS[check.level]}</span>'
        f"<span><strong>{check.subject}</strong> {check.text}</span></li>"
        for check in found
    )
    return (
        f'<header><p class="over">Queue report · {formats.span(figures.begin, figures.end)}</p>'
        f'<h1 class="{level.name.lower()}"><span class="sign" aria-hidden="true">{SIGNS[level]}</span>'
        f'{VERDICTS[level]}</h1><p class="headline">{headline(figures)}</p>'
        f'<ul class="checks">{items}</ul></header>'
    )


def headline(figures: Figures) -> str:
    """All of it in a sentence."""
    total, ended = health.total(figures), sum(figures.outcomes.values())
    again = sum(number for tries, number in figures.attempts.items() if tries > 1)
    facts = [_share(figures.outcomes.get("success", 0), total, "done")]
    if ended:
        facts.append(_share(again, ended, "retried"))
    now = {"buried": "buried", "ready": "waiting", "taken": "running", "delayed": "delayed"}
    facts += [_share(figures.open[key], total, words) for key, words in now.items() if figures.open.get(key)]
    lost = ("cancelled", "deleted", "expired")
    facts += [_share(figures.outcomes[key], total, key) for key in lost if figures.outcomes.get(key)]
    time = formats.long_duration(figures.end - figures.begin)
    return f"{counted(total, 'task')} of {_where(figures)} in {time}: {_listed(facts)}."


def _share(part: int, whole: int, words: str) -> str:
    if whole == 1:
        return words if part else f"not {words}"
    return f"{'none' if not part else 'all' if part == whole else percent(part, whole)} {words}"


def _where(figures: Figures) -> str:
    if len(figures.tubes) == 1:
        return markup.written(figures.tubes[0].tube, 40)
    return counted(len(figures.tubes), "tube")


def _listed(facts: list[str]) -> str:
    return facts[0] if len(facts) == 1 else f"{', '.join(facts[:-1])} and {facts[-1]}"


def _body(figures: Figures) -> list[str]:
    if not figures.counts.events:
        return []
    return [
        _tiles(figures),
        markup.section("work", "Work", timeline.throughput(figures), timeline.backlog(figures)),
        markup.section(
            "times",
            "Times",
            f'<div class="pair">{timeline.lengths(figures, "wait")}{timeline.lengths(figures, "run")}</div>',
        ),
        lists.failures(figures),
        lanes(figures),
        lists.ends(figures),
        lists.tubes(figures),
    ]


def _tiles(figures: Figures) -> str:
    counts, now = figures.counts, {state: count(figures.open.get(state, 0)) for state in timeline.STATES}
    wide = figures.end - figures.begin
    bad, ended = health.runs(counts, figures.run)
    pace = f"{formats.rate(counts.acks, wide)} on average" if len(figures.timeline) >= timeline.LEAST else "at once"
    tiles = [
        ("Done", count(figures.outcomes.get("success", 0)), pace),
        ("Waiting", now["ready"], f"{now['delayed']} delayed, {now['taken']} running"),
        ("Failed runs", percent(bad, ended), f"{count(bad)} of {count(ended)}"),
        ("Buried", now["buried"], f"{count(counts.buried)} in all, {count(counts.kicks)} kicked"),
        ("Wait", *_typical(figures.wait)),
        ("Run", *_typical(figures.run)),
    ]
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd><dd>{more}</dd></div>" for name, value, more in tiles)
    return f'<dl class="tiles">{items}</dl>'


def _typical(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return formats.NONE, "not known yet"
    return duration(spread.p50), f"typically; 90 of 100 within {duration(spread.p90)}"


def _foot(figures: Figures) -> str:
    made = "<p>Made by <code>penstock pipeline report</code>. All times are UTC.</p>"
    if not figures.counts.events:
        return f"<footer>{made}</footer>"
    events, position = counted(figures.counts.events, "event"), count(figures.upto)
    about = (
        f"{events}, from {formats.moment(figures.begin)} to {formats.moment(figures.end)}: version "
        f"{count(figures.version)} of the lake, history up to position {position}. A task waits from when it is ready "
        "to when it is taken, and runs from then to the end of its lease. Percentiles are right to 1 in 100, those of "
        "lanes to 4."
    )
    return f"<footer><p>{about}</p>{made}</footer>"
