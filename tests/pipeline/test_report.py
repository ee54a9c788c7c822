"""The page about a queue: it is whole, it says what the figures say, and nothing that people wrote can break it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tests.pipeline import queues

from penstock.pipeline.counting import slot_for
from penstock.pipeline.figures import Failure, Figures, Spread
from penstock.pipeline.report import axes, charts, formats, health, render, write_report
from penstock.pipeline.report.health import Level

VOID = {"meta", "br", "rect", "path", "link", "img", "hr"}
PAGES = {
    "nothing": queues.nothing(),
    "one task": queues.single(),
    "ten tasks": queues.queue(10, 20, failing=0.2),
    "one lane": queues.queue(500, 60),
    "a crawl": queues.queue(1204, 180, lanes=24),
    "200 lanes": queues.queue(60_000, 7200, lanes=200, tubes=3, failing=0.12),
    "a million events over days": queues.queue(333_333, 6 * 86_400, lanes=40, failing=0.01),
    "a spike": queues.queue(50_000, 86_400, lanes=5, failing=0.0, spike=True),
}
EVIL = "<script>alert('x')</script>&\"'\x00\u202e\ud800"


class Reader(HTMLParser):
    """Reads a page as a browser does, and holds it to its end tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} says {names}"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        """What stands on the page."""
        return " ".join("".join(self.words).replace("\u202f", " ").split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every such element."""
        return [attrs for name, attrs in self.tags if name == tag]


def read(figures: Figures) -> Reader:
    return Reader(render(figures))


@pytest.mark.parametrize("figures", PAGES.values(), ids=PAGES)
def test_a_page_is_whole_and_small(figures):
    page = read(figures)
    assert len(render(figures).encode()) < 300_000
    assert [name for name, _ in page.tags].count("h1") == 1
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert "nan" not in page.text.lower().split() and "None" not in page.text and "e+0" not in page.text


@pytest.mark.parametrize("figures", PAGES.values(), ids=PAGES)
def test_a_page_asks_nobody_for_anything(figures):
    text = render(figures)
    assert not re.search(r"""(?:src|href|action|srcset)\s*=|@import|url\((?!#)|fetch\(|XMLHttp""", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("figures", PAGES.values(), ids=PAGES)
def test_drawings_stay_inside_their_view_box(figures):
    found = 0
    for attrs in read(figures).all("path"):
        if not attrs.get("class"):
            continue
        for x, y in corners(str(attrs["d"])):
            assert -0.01 <= x <= charts.WIDTH + 0.01 and -0.01 <= y <= charts.HEIGHT + 0.01
            found += 1
    assert found or len(figures.timeline) < 3


def corners(path: str) -> list[tuple[float, float]]:
    """Every corner of a path that is made of M, L, H, V, h, v and z."""
    x = y = 0.0
    found = []
    for letter, numbers in re.findall(r"([MLHVhvz])([-0-9. ]*)", path):
        values = [float(number) for number in numbers.split()]
        if letter in "ML":
            x, y = values
        elif letter in "Hh":
            x = values[0] + (x if letter == "h" else 0)
        elif letter in "Vv":
            y = values[0] + (y if letter == "v" else 0)
        found.append((x, y))
    return found


@pytest.mark.parametrize("figures", PAGES.values(), ids=PAGES)
def test_the_same_figures_make_the_same_page(figures):
    assert render(figures) == render(figures)


def test_a_page_says_what_the_figures_say():
    figures = PAGES["a crawl"]
    text = read(figures).text
    done, ready = figures.outcomes["success"], figures.open["ready"]
    assert f"1,204 tasks of crawl in 3 minutes: {formats.percent(done, 1204)} done".replace("\u202f", " ") in text
    assert f"Done {done:,}" in text.replace("Done", "Done ")
    assert f"{ready} tasks wait for a worker" in text
    assert f"{figures.counts.events:,} events, from 2026-11-16 05:30:00 UTC to 2026-11-16 05:33:00 UTC" in text
    for spread in (figures.wait, figures.run):
        for value in (spread.p50, spread.p90, spread.p99, spread.mean, spread.max):
            assert formats.duration(value).replace("\u202f", " ") in text
    for lane in figures.lanes:
        assert lane.lane in text
    for failure in figures.failures:
        assert f"{failure.count} times" in text and failure.example.splitlines()[0] in text
    for tries, words in ((1, "once"), (2, "twice")):
        assert f"{words}{figures.attempts[tries]:,}" in text.replace(" ", "")
    assert f"{figures.tubes[0].fairness:.2f} (Jain's index)" in text
    assert "24 lanes" in text


def rows(page: str, name: str) -> list[list[str]]:
    """The cells of the table of a figure or a section."""
    part = page.split(f'id="{name}"')[1].split("<tbody>")[1].split("</tbody>")[0]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in part.split("</tr>")[:-1]]
    return [[re.sub(r"<[^>]*>", "", cell).replace("\u202f", " ") for cell in row] for row in cells]


def test_every_slot_of_the_timeline_is_in_the_tables_of_the_charts():
    calm = PAGES["a crawl"]
    timeline = [replace(point, counts=replace(point.counts, lost=3), taken=2) for point in calm.timeline]
    page = render(replace(calm, timeline=timeline))
    counts = [[str(n) for n in (p.counts.acks, p.counts.fails + 3, p.counts.puts)] for p in timeline]
    assert [row[1:] for row in rows(page, "throughput")] == counts
    states = [[str(n) for n in (p.taken, p.ready, p.delayed, p.buried)] for p in timeline]
    assert [row[1:] for row in rows(page, "backlog")] == states
    for name in ("wait", "run"):
        spreads = [getattr(point, name) for point in timeline]
        times = [[formats.duration(n).replace("\u202f", " ") for n in (s.p50, s.p90, s.p99, s.max)] for s in spreads]
        assert [row[1:] for row in rows(page, name)] == times
    assert [row[0] for row in rows(page, "wait")][:2] == ["05:30:00", "05:30:02"]
    assert page.count('data-slots="90"') == 4


def test_tiles_and_tubes_say_what_the_figures_say():
    figures = PAGES["a crawl"]
    page, tube = render(figures).replace("\u202f", " "), figures.tubes[0]
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert tiles["Done"] == f"{figures.outcomes['success']:,}" and tiles["Waiting"] == str(figures.open["ready"])
    assert tiles["Wait"] == formats.duration(figures.wait.p50).replace("\u202f", " ")
    assert tiles["Run"] == formats.duration(figures.run.p50).replace("\u202f", " ")
    row = rows(page, "tubes")[0]
    assert row[:3] == ["crawl", f"{tube.counts.puts:,}", f"{tube.counts.acks:,}"]
    assert row[-2:] == ["24", f"{tube.fairness:.2f}"]


def test_lanes_stand_in_the_order_of_what_was_done_in_them():
    figures = PAGES["a crawl"]
    quiet = replace(figures.lanes[0], counts=replace(figures.lanes[0].counts, acks=0, puts=10**6))
    found = rows(render(replace(figures, lanes=[quiet, *figures.lanes[1:]])), "fairness-1")
    assert [row[0] for row in found][:1] == ["site-1.example"] and found[-1][:2] == ["site-0.example", "0"]
    done = [int(row[1].replace(",", "")) for row in found]
    assert done == sorted(done, reverse=True)


def test_the_slowest_and_the_most_retried_lanes_come_first():
    figures = PAGES["200 lanes"]
    slow = max(figures.lanes, key=lambda lane: lane.run.p90 if lane.run else 0)
    page = render(figures)
    assert slow.lane in rows(page, "lanes")[0][0] and slow.tube in rows(page, "lanes")[0][0]
    tried = max(figures.lanes, key=lambda lane: lane.counts.retries)
    assert tried.lane in page.split("Most retried lanes")[1].split("</tr>")[1]


def test_only_the_last_number_of_attempts_means_or_more():
    figures = replace(PAGES["a crawl"], attempts={0: 1, 1: 5, 3: 2, 20: 4})
    found = rows(render(figures).split('id="tasks"')[1].replace("<h3>Attempts", 'id="attempts"'), "attempts")
    assert [row[0] for row in found] == ["never taken", "once", "3 times", "20 times or more"]


def test_an_empty_lake_has_a_page_that_says_what_to_do():
    text = read(queues.nothing()).text
    assert "Nothing has happened yet" in text and "history=True" in text and "penstock pipeline run" in text
    assert "All is well" not in text


def test_one_task_has_no_charts_and_no_silly_rate():
    page = read(queues.single())
    assert "1 task of mails in less than a second: done and not retried." in page.text
    assert [attrs for attrs in page.all("svg") if attrs.get("role") == "img"] == []
    assert "100/s" not in page.text


@pytest.mark.parametrize(
    ("seconds", "events", "slot"), [(20, 30, 1), (20, 10**6, 0.2), (180, 4000, 2), (6e5, 10**6, 7200)]
)
def test_a_timeline_has_few_points_for_few_events(seconds, events, slot):
    assert slot_for(int(seconds * 1_000_000), events) == slot * 1_000_000


def test_a_bulk_put_does_not_hide_the_work_after_it():
    figures = PAGES["a spike"]
    page = render(figures)
    assert "Puts go beyond the chart" in page
    most = max(point.counts.acks for point in figures.timeline)
    assert axes.numbers(1.2 * most).high < 4 * most


def test_what_people_wrote_is_escaped_and_cut():
    figures = PAGES["a crawl"]
    lane = replace(figures.lanes[0], lane=f'{EVIL}" onload="x' + "w" * 99, tube="<b>")
    failure = Failure("<b>", "<i>", f"{EVIL} {'x' * 5000}", f"{EVIL}\n{'y' * 9000}", 5, 1, 1, 0.0, 1.0)
    tube = replace(figures.tubes[0], tube="<b>")
    page = render(replace(figures, lanes=[lane, *figures.lanes[1:]], tubes=[tube], failures=[failure]))
    read = Reader(page)
    assert "script" not in [name for name, _ in read.tags[:-1]] or read.all("script") == [{}]
    assert not [attrs for _, attrs in read.tags if "onload" in attrs]
    assert read.all("b") == [] and "<i>" in read.text
    assert "x" * 600 not in page and "y" * 2001 not in page
    assert "\x00" not in page and "\u202e" not in page


def test_a_name_of_letters_only_or_of_nothing_has_a_place():
    figures = PAGES["a crawl"]
    odd = [replace(figures.lanes[0], lane=""), replace(figures.lanes[1], lane="L" * 500), *figures.lanes[2:]]
    text = read(replace(figures, lanes=odd)).text
    assert "empty" in text and "L" * 59 + "…" in text and "L" * 61 not in text


def test_a_page_is_written_at_once_and_can_be_written_again(tmp_path):
    path = tmp_path / "report.html"
    figures = replace(PAGES["a crawl"], lanes=[replace(lane, lane=EVIL) for lane in PAGES["a crawl"].lanes])
    assert write_report(queues.single(), path) == path
    write_report(figures, str(path))
    Reader(path.read_text(encoding="utf-8"))
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_thousands_of_lanes_and_errors_make_a_page_that_can_be_read():
    figures = queues.queue(100_000, 3600, lanes=1000)
    failures = [replace(figures.failures[0], fingerprint=f"error {n}", example="z" * 20_000) for n in range(200)]
    page = render(replace(figures, lane_total=50_000, failures=failures, failure_total=700))
    assert len(page.encode()) < 400_000
    assert "50,000 lanes" in page and "690 other kinds" in page


def test_numbers_that_are_missing_are_dashes():
    figures = PAGES["a crawl"]
    bare = [replace(lane, wait=None, run=None) for lane in figures.lanes]
    text = read(replace(figures, wait=None, run=None, lanes=bare, tubes=[replace(figures.tubes[0], run=None)])).text
    assert "No run has ended yet." in text and "None" not in text


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({}, Level.WELL, "No task waits"),
        ({"fails": 100}, Level.LOOK, "failed"),
        ({"fails": 400}, Level.TROUBLE, "failed"),
        ({"lost": 1}, Level.LOOK, "without an answer"),
        ({"lost": 100}, Level.TROUBLE, "without an answer"),
        ({"expired": 3}, Level.LOOK, "3 tasks expired"),
    ],
)
def test_the_verdict_is_that_of_the_worst(changes, level, words):
    calm = queues.queue(1000, 100, failing=0.0)
    counts = replace(calm.counts, **changes)
    found = health.checks(replace(calm, counts=counts, open={}))
    assert health.verdict(found) is level
    assert words in " ".join(check.text for check in found)
    assert [check.level for check in found] == sorted((check.level for check in found), reverse=True)


def test_runs_that_were_given_back_or_buried_have_ended_but_not_failed():
    calm = queues.queue(1000, 100, failing=0.0)
    counts = replace(calm.counts, acks=40, fails=10, lost=2)
    assert health.runs(counts, replace(calm.run, count=60)) == (12, 60)
    assert health.runs(counts, None) == (12, 52)


def test_buried_tasks_are_worth_a_look_and_many_are_trouble():
    calm = replace(queues.queue(1000, 100, failing=0.0), outcomes={"success": 1000})
    assert health.verdict(health.checks(replace(calm, open={"buried": 1}))) is Level.LOOK
    assert health.verdict(health.checks(replace(calm, open={"buried": 120}))) is Level.TROUBLE


def test_a_queue_that_nobody_serves_is_trouble_and_one_that_fills_is_worth_a_look():
    calm = queues.queue(1000, 100, failing=0.0)
    idle = [
        replace(point, ready=500, counts=replace(point.counts, takes=0) if place > 50 else point.counts)
        for place, point in enumerate(calm.timeline)
    ]
    found = health.checks(replace(calm, timeline=idle, open={"ready": 500}))
    assert health.verdict(found) is Level.TROUBLE and "none was taken in the last 49" in found[0].text
    filling = [replace(point, ready=5 * place) for place, point in enumerate(calm.timeline)]
    found = health.checks(replace(calm, timeline=filling, open={"ready": 500}))
    assert health.verdict(found) is Level.LOOK and "it grows" in found[0].text


@pytest.mark.parametrize(("top", "labels"), [(0, "0 1"), (1, "0 1"), (3, "0 1 2 3"), (47, "0 10 20 30 40 50")])
def test_axes_of_counts_are_whole_and_round(top, labels):
    assert [tick.label for tick in axes.numbers(top).ticks] == labels.split()


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.04, "05:30:00.00 05:30:00.01 05:30:00.02 05:30:00.03 05:30:00.04"),
        (0.5, "05:30:00.0 05:30:00.2 05:30:00.4"),
        (3, "05:30:00 05:30:01 05:30:02 05:30:03"),
        (20, "05:30:00 05:30:05 05:30:10 05:30:15 05:30:20"),
        (180, "05:30:00 05:30:30 05:31:00 05:31:30 05:32:00 05:32:30 05:33:00"),
        (86_400, "06:00 12:00 18:00 17.Nov"),
        (6 * 86_400, "17.Nov 18.Nov 19.Nov 20.Nov 21.Nov 22.Nov"),
    ],
)
def test_axes_of_time_have_full_minutes_hours_and_days(seconds, labels):
    ticks = axes.times(queues.BEGIN, queues.BEGIN + seconds).ticks
    assert [tick.label.replace(" ", ".") for tick in ticks] == labels.split()


@pytest.mark.parametrize("years", [1, 5, 40])
def test_axes_of_years_have_few_ticks(years):
    assert 2 <= len(axes.times(queues.BEGIN, queues.BEGIN + years * 31_557_600).ticks) <= 8


@pytest.mark.parametrize("values", [[], [0.0], [1e-7, 1e9], [0.004, 0.005], [0.0, 3.0], [5_000_000.0]])
def test_axes_of_lengths_hold_every_value(values):
    axis = axes.lengths(values)
    assert all(0 <= axis.place(value) <= 1 for value in values)
    assert 2 <= len(axis.ticks) <= 8 and len({tick.label for tick in axis.ticks}) == len(axis.ticks)


def test_lengths_that_differ_much_are_on_a_scale_of_powers():
    assert axes.lengths([0.01, 60.0]).logarithmic and not axes.lengths([1.0, 60.0]).logarithmic
    spread = Spread(5, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert "several times" not in render(replace(PAGES["a crawl"], wait=spread))
