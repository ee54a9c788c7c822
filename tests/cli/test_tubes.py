"""Commands about tubes, lanes, counts and schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cli.shell import Shell

import penstock
from penstock.model.tube import OPTIONS


def options(shell: Shell, tube: str) -> dict[str, Any]:
    (found,) = [it for it in shell.inside("tubes", "--json").documents if it["name"] == tube]
    return {**found["options"], "paused": found["paused"], "temporary": found["temporary"], "kind": found["kind"]}


EVERY = {
    "ttl": ("2h", 7200),
    "ttr": ("1.5m", 90),
    "pri": ("-3", -3),
    "capacity": ("10", 10),
    "max_attempts": ("5", 5),
    "retry": ("1,5s,1m", [1, 5, 60]),
    "keep": ("7d", 604800),
    "keep_failed": ("yes", True),
    "concurrency": ("4", 4),
    "lane_concurrency": ("1", 1),
    "lane_rate": ("0.5", 0.5),
    "lane_burst": ("3", 3),
    "lane_order": ("strict", "strict"),
    "lane_pick": ("order", "order"),
    "max_payload": ("1000", 1000),
    "history": ("yes", True),
    "history_data": ("yes", True),
    "id": ("uuid", "uuid"),
    "payload": ("bytes", "bytes"),
}


def test_stats_of_a_file_say_since_when_they_count(shell: Shell):
    shell.inside("create", "a")
    before = datetime.now(UTC).replace(microsecond=0)
    ran = shell.inside("stats", "a", "--json")
    (told,) = ran.err.splitlines()
    assert told.startswith("done and calls are counted since ")
    since = datetime.fromisoformat(told.removeprefix("done and calls are counted since ").partition(",")[0])
    # The command itself has opened the file, that nobody had open.
    assert since >= before


def words(named: dict[str, str]) -> list[str]:
    return [word for name, text in named.items() for word in (f"--{name.replace('_', '-')}", text)]


def test_create_knows_every_option_of_a_tube(any_shell: Shell):
    assert set(EVERY) == set(OPTIONS)
    made = any_shell.inside("create", "a", *words({name: text for name, (text, _) in EVERY.items()}), "--json")
    assert made.status == 0, made.err
    assert made.document["options"] == {name: value for name, (_, value) in EVERY.items()}


def test_alter_changes_options_and_takes_them_back(shell: Shell):
    shell.inside("create", "a")
    altered = {name: text for name, (text, _) in EVERY.items() if name not in ("id", "payload")}
    assert shell.inside("alter", "a", *words(altered)).status == 0
    assert options(shell, "a")["retry"] == [1, 5, 60]
    assert shell.inside("alter", "a", "--ttl", "none", "--retry", "exponential:base=2,max=1h,jitter=0.1").status == 0
    found = options(shell, "a")
    assert (found["ttl"], found["ttr"]) == (None, 90)
    assert found["retry"] == {"base": 2, "factor": 2, "max": 3600, "jitter": 0.1}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--ttl", "soon"], "--ttl: 'soon' is no length of time such as 30"),
        (["--pri", "high"], "--pri: 'high' is no whole number"),
        (["--retry", "exponential:size=1"], "--retry: exponential has base, factor, max and jitter"),
        (["--retry", "1,x"], "--retry: 'x' is no length of time"),
        (["--history", "maybe"], "--history: 'maybe' is neither yes nor no"),
        (["--lane-rate", "fast"], "--lane-rate: 'fast' is no number"),
        (["--lane-order", "loose"], "lane_order"),
        (["--capacity", "-1"], "capacity"),
        ([], "alter what?"),
        (["--id", "uuid"], "No such option: --id"),
    ],
)
def test_what_alter_cannot_read_is_named(shell: Shell, given: list[str], why: str):
    shell.inside("create", "a")
    ran = shell.inside("alter", "a", *given)
    assert ran.status == 64 and why in ran.err
    assert len(ran.err.splitlines()) == 1


def test_an_option_of_a_feature_that_the_kind_lacks_is_refused(shell: Shell):
    shell.inside("create", "a", "fifo")
    assert shell.inside("alter", "a", "--ttl", "1h").status == 64
    assert shell.inside("create", "b", "fifth").status == 64
    assert shell.inside("create", "no spaces").status == 64
    assert shell.inside("create", "b", "--id", "function").status == 64


def test_a_tube_that_exists_is_found_only_when_asked(shell: Shell):
    shell.inside("create", "a", "--ttl", "1h")
    again = shell.inside("create", "a")
    assert again.status == penstock.TubeExists.exit_status() and "--if-not-exists" in again.err
    assert shell.inside("create", "a", "--if-not-exists", "--ttl", "1h").status == 0
    assert shell.inside("create", "a", "--if-not-exists", "--ttl", "2h").status == 64


def test_tubes_are_listed_with_their_tasks_and_remarks(shell: Shell):
    shell.inside("create", "b", "utube", "--temporary")
    shell.inside("create", "a")
    shell.inside("put", "a", "1")
    shell.inside("pause", "a", "b")
    head, first, second = shell.inside("tubes").out.splitlines()
    assert head.split() == ["NAME", "KIND", "READY", "TAKEN", "DELAYED", "BURIED", "KEPT", "DONE", "REMARKS"]
    assert first.split() == ["a", "standard", "1", "0", "0", "0", "0", "0", "paused"]
    assert second.split(None, 8) == ["b", "utube", "0", "0", "0", "0", "0", "0", "paused, temporary"]
    assert shell.inside("resume", "a", "--json").document["paused"] is False
    assert options(shell, "b")["paused"] is True


def test_a_paused_tube_grants_nothing(shell: Shell):
    shell.inside("create", "a")
    shell.inside("put", "a", "1")
    assert "penstock resume a" in shell.inside("pause", "a").err
    assert shell.inside("take", "a").status == 1
    shell.inside("resume", "a")
    assert shell.inside("take", "a", "--ack").out == "1\n"


def test_one_tube_that_is_not_there_pauses_none(shell: Shell):
    shell.inside("create", "a")
    assert shell.inside("pause", "a", "b").status == penstock.TubeNotFound.exit_status()
    assert options(shell, "a")["paused"] is False


def test_truncate_and_drop(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "a")
    shell.inside("put", "a", "-f", "-", "--format", "lines", input=b"x\ny\nz")
    shell.inside("take", "a")
    busy = shell.inside("drop", "a", "--yes")
    assert busy.status == penstock.TubeBusy.exit_status() and "--force" in busy.err
    assert shell.inside("truncate", "a", "--yes").out == "3\n"
    assert shell.inside("put", "a", "1").out == "4\n"
    assert shell.inside("drop", "a", "--yes", "--json").document == {"dropped": "a"}
    assert shell.inside("tubes", "--json").documents == []
    assert "penstock create" in shell.inside("tubes").err


def test_lanes_are_listed_and_given_limits(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "crawl")
    for lane in ("a", "a", "b", "c"):
        shell.inside("put", "crawl", "1", "--lane", lane)
    told = shell.inside("lanes", "crawl", "b", "--rate", "0.5", "--concurrency", "1", "--pause")
    assert told.status == 0 and "rate 0.5" in told.err
    found = {it["lane"]: it for it in shell.inside("lanes", "crawl", "--json").documents}
    assert [found[name]["ready"] for name in "abc"] == [2, 1, 1]
    assert (found["b"]["rate"], found["b"]["concurrency"], found["b"]["paused"]) == (0.5, 1, True)
    shell.inside("lanes", "crawl", "b", "--rate", "none", "--resume")
    page = shell.inside("lanes", "crawl", "--limit", "1", "--after", "a")
    assert page.out.splitlines()[1].split() == ["b", "1", "0", "1", "-", "1", "no", "-"]
    assert "--after 'b'" in page.err
    assert shell.inside("lanes", "crawl", "b").status == 64
    assert shell.inside("lanes", "crawl", "--rate", "1").status == 64


def test_counts_of_tasks_and_calls(shell: Shell):
    shell.inside("create", "a")
    shell.inside("create", "b")
    # Somebody has the store open, so one run goes on over all commands.
    with penstock.connect(shell.folder / "tasks.db"):
        shell.inside("put", "a", "1")
        shell.inside("put", "a", "2")
        shell.inside("take", "a", "--ack")
        both = shell.inside("stats").out.splitlines()
        assert both[0].split() == ["TUBE", "READY", "TAKEN", "DELAYED", "BURIED", "TOTAL", "KEPT", "DONE"]
        assert both[1].split() == ["a", "1", "0", "0", "0", "1", "0", "1"]
        assert both[4].split() == ["CALLS", "PUT", "TAKE", "ACK"]
        assert both[5].split() == ["a", "2", "1", "1"]
        one = shell.inside("stats", "a").out.split("\n\n")
        assert "ready    1" in one[0] and "put calls   2" in one[1]
        document = shell.inside("stats", "a", "--json").document
        assert (document["tube"], document["tasks"]["ready"], document["calls"]["put"]) == ("a", 1, 2)
    assert shell.inside("stats", "c").status == penstock.TubeNotFound.exit_status()


def test_schedules_are_added_listed_and_removed(shell: Shell):
    shell.inside("create", "reports")
    assert shell.inside("schedules", "list").out.split() == ["NAME", "TUBE", "WHEN", "TZ", "NEXT"]
    nightly = ["schedules", "add", "nightly", "reports", '{"of": "sales"}', "--cron", "0 3 * * *"]
    made = shell.inside(*nightly, "--tz", "Europe/Berlin", "--missed", "skip", "--json").document
    assert (made["data"], made["tz"], made["missed"]) == ({"of": "sales"}, "Europe/Berlin", "skip")
    assert "fires next at" in shell.inside("schedules", "add", "sweep", "reports", "--every", "10m").err
    rows = [line.split("  ") for line in shell.inside("schedules", "list").out.splitlines()]
    assert [row[0].strip() for row in rows] == ["NAME", "nightly", "sweep"]
    assert [it["every"] for it in shell.inside("schedules", "list", "--json").documents] == [None, 600]
    assert shell.inside("schedules", "remove", "sweep").status == 0
    assert shell.inside("schedules", "remove", "sweep").status == 1
    assert shell.inside("schedules", "add", "x", "nope", "--every", "1m").status == penstock.TubeNotFound.exit_status()
    assert shell.inside("schedules", "add", "x", "reports").status == 64
    assert shell.inside("schedules", "add", "x", "reports", "--cron", "when it rains").status == 64
