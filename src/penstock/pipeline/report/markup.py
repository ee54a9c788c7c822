"""Pieces of HTML. What people wrote is cut and escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from penstock.pipeline.report import formats

NAME = 60
"""Letters of a name that are shown."""


def written(text: str | None, length: int = NAME) -> str:
    """What a person or a program wrote, in its own direction of writing; the title has more of it."""
    if text is None:
        return "<em>no lane</em>"
    if not text.strip():
        return "<em>empty</em>"
    shown = formats.cut(text, length)
    more = f' title="{escape(formats.cut(text, 4 * length))}"' if shown.endswith("…") else ""
    return f"<bdi{more}>{escape(shown)}</bdi>"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table of markup. The first columns are words, the others numbers; each row is headed by its first cell."""
    head = "".join(f'<th scope="col"{_number(place, words)}>{text}</th>' for place, text in enumerate(heads))
    body = "".join(
        "<tr>"
        + f'<th scope="row">{row[0]}</th>'
        + "".join(f"<td{_number(place, words)}>{cell}</td>" for place, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _number(place: int, words: int) -> str:
    return "" if place < words else ' class="n"'


def folded(summary: str, content: str) -> str:
    """What is there for those who ask for it."""
    return f"<details><summary>{summary}</summary>{content}</details>"


def legend(entries: Sequence[tuple[str, str, str]]) -> str:
    """What the looks of a chart mean: a shape (fill, line or band), a look and words."""
    items = "".join(f'<li><i class="{shape} {look}"></i>{words}</li>' for shape, look, words in entries)
    return f'<ul class="legend">{items}</ul>'


def figure(name: str, title: str, said: str, *parts: str) -> str:
    """A chart under its title, with a sentence that says what is to be seen."""
    return f'<figure id="{name}"><figcaption><h3>{title}</h3><p>{said}</p></figcaption>{"".join(parts)}</figure>'


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page."""
    return f'<section id="{name}"><h2>{title}</h2>{"".join(parts)}</section>'
