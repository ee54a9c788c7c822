"""Very many tasks at once: puts from files, and what is done with all tasks that a filter finds."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.cli.shell import PATIENCE, Shell
from tests.support.postgres import until

import penstock
from penstock.cli import selection
from penstock.cli.bulk import PART

URLS = """site,url,rank
a.example,http://a.example/1,5
a.example,http://a.example/2,
b.example,"http://b.example/?q=""x""
3",-1
"""


@pytest.fixture
def crawl(shell: Shell) -> Shell:
    with penstock.connect(shell.folder / "tasks.db", durability="relaxed") as queue:
        queue.create_tube("crawl")
    return shell


def tasks(shell: Shell, *words: str, tube: str = "crawl") -> list[dict[str, object]]:
    return shell.inside("tasks", tube, "--limit", "1000000", "--json", *words).documents


def total(shell: Shell, tube: str = "crawl") -> int:
    return int(shell.inside("stats", tube, "--json").document["tasks"]["total"])


# -- puts from files -------------------------------------------------------------------------------


def test_a_csv_file_becomes_tasks_with_options_from_its_fields(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "crawl")
    (shell.folder / "urls.csv").write_text(URLS)
    fields = ["--lane-field", "site", "--key-field", "url", "--pri-field", "rank"]
    assert shell.inside("put", "crawl", "--file", "urls.csv", *fields, "--ttl", "1h").out == "3\n"
    found = [(task["lane"], task["key"], task["pri"], task["ttl"]) for task in tasks(shell)]
    assert found == [
        ("a.example", "http://a.example/1", 5, 3600),
        ("a.example", "http://a.example/2", 0, 3600),
        ("b.example", 'http://b.example/?q="x"\n3', -1, 3600),
    ]
    again = shell.inside("put", "crawl", "-f", "urls.csv", *fields, "--on-conflict", "ignore", "--json")
    assert again.document == {"stored": 0, "existing": 3, "refused": 0, "line": 5}


def test_json_lines_are_read_with_marks_empty_lines_and_no_last_line_break(crawl: Shell):
    (crawl.folder / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\r\n  [2]\n"\xc3\xa9"')
    assert crawl.inside("put", "crawl", "-f", "a.jsonl").out == "3\n"
    assert [task["data"] for task in tasks(crawl)] == [{"n": 1}, [2], "é"]


def test_plain_lines_are_text(crawl: Shell):
    ran = crawl.inside("put", "crawl", "--file", "-", "--format", "lines", input=b"one two\r\n\n 3 \n")
    assert ran.out == "2\n"
    assert [task["data"] for task in tasks(crawl)] == ["one two", " 3 "]


def test_bad_lines_are_named_and_do_not_hold_up_the_others(crawl: Shell):
    lines = [b'{"n": 1}', b'{"n": 2', b"NaN", b'"\xff"', b'"a\\u0000b"', b'{"n": 6}']
    (crawl.folder / "a.jsonl").write_bytes(b"\n".join(lines))
    ran = crawl.inside("put", "crawl", "--file", "a.jsonl", "--refused", "bad.jsonl")
    assert ran.status == penstock.BatchError.exit_status() == 83
    assert ran.out == "2\n"
    *told, last = ran.err.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"a.jsonl:{n}" for n in (2, 3, 4, 5)]
    assert last.startswith("penstock: 4 of 6 records of a.jsonl were refused; the others are stored")
    assert (crawl.folder / "bad.jsonl").read_bytes().splitlines() == lines[1:5]
    assert [task["data"] for task in tasks(crawl)] == [{"n": 1}, {"n": 6}]


def test_with_json_every_refused_line_is_a_document(crawl: Shell):
    data = b"".join(b"{\n" for _ in range(30)) + b"1\n"
    ran = crawl.inside("put", "crawl", "-f", "-", "--format", "jsonl", "--json", input=data)
    *refused, counts = ran.documents
    assert [document["line"] for document in refused] == list(range(1, 31))
    assert {document["code"] for document in refused} == {"usage"}
    assert counts == {"stored": 1, "existing": 0, "refused": 30, "line": 31}
    plain = crawl.inside("put", "crawl", "-f", "-", "--format", "jsonl", input=data)
    assert len(plain.err.splitlines()) == 22


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x,y", "2 fields"),
        ("x,y,1,z", "4 fields"),
        ("x,y,high", "field 'rank' is 'high', no whole number"),
        ('x,"never closed,1', "no CSV"),
        ('x,"closed"too early,1', "no CSV"),
        (f"{'x' * 300},y,1", "255"),
        ("\udcff,y,1", "UTF-8"),
    ],
)
def test_a_bad_row_of_csv_costs_no_other(crawl: Shell, row: str, why: str):
    good = "".join(f"s,u{n},{n}\n" for n in range(5))
    text = f"site,url,rank\n{good}{row}\n{good}"
    (crawl.folder / "a.csv").write_bytes(text.encode(errors="surrogateescape"))
    ran = crawl.inside("put", "crawl", "-f", "a.csv", "--lane-field", "site", "--pri-field", "rank")
    assert (ran.status, ran.out) == (83, "10\n")
    assert ran.err.startswith("a.csv:7: ") and why in ran.err.splitlines()[0]


def test_refused_rows_of_csv_can_be_mended_and_put(crawl: Shell):
    (crawl.folder / "a.csv").write_text("n,rank\n1,1\n2,x\n3,3\n")
    assert crawl.inside("put", "crawl", "-f", "a.csv", "--pri-field", "rank", "--refused", "b.csv").status == 83
    mended = (crawl.folder / "b.csv").read_text().replace("x", "2")
    assert mended == "n,rank\n2,2\n"
    (crawl.folder / "c.csv").write_text(mended)
    assert crawl.inside("put", "crawl", "-f", "c.csv", "--pri-field", "rank").status == 0
    kept = crawl.inside("put", "crawl", "-f", "c.csv", "--refused", "b.csv")
    assert kept.status == 64 and "does not exist" in kept.err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "no object"),
        ('{"n": 1}', "no field 'site'"),
        ('{"site": [1]}', "no text"),
        ('{"site": true}', "no text"),
    ],
)
def test_a_record_without_the_field_is_refused(crawl: Shell, line: str, why: str):
    data = f'{line}\n{{"site": null}}\n{{"site": 7}}\n'.encode()
    ran = crawl.inside("put", "crawl", "-f", "-", "--format", "jsonl", "--lane-field", "site", input=data)
    assert ran.out == "2\n" and why in ran.err.splitlines()[0]
    assert [task["lane"] for task in tasks(crawl)] == [None, "7"]


def test_ids_come_from_a_field(shell: Shell):
    shell.inside("create", "orders", "--id", "required")
    data = b'{"id": 1}\n{"id": "b"}\n{"id": "b"}\n{"n": 1}'
    ran = shell.inside("put", "orders", "-f", "-", "--format", "jsonl", "--id-field", "id", input=data)
    assert (ran.out, len(ran.err.splitlines())) == ("2\n", 3)
    assert [task["id"] for task in tasks(shell, tube="orders")] == [1, "b"]


def test_a_file_is_stored_while_it_is_read(crawl: Shell):
    process = crawl.start("put", "crawl", "--file", "-", "--format", "jsonl")
    assert process.stdin is not None
    process.stdin.write(b"1\n" * (PART + 1))
    process.stdin.flush()
    with penstock.connect(crawl.folder / "tasks.db") as queue:
        stored = lambda: queue.tube("crawl").statistics().tasks["total"]  # noqa: E731
        until(lambda: stored() == PART, "the first part is not stored")
        out, _ = process.communicate(b"2\n", timeout=PATIENCE)
        assert (out, stored()) == (b"2002\n", 2002)


def test_ctrl_c_stops_a_put_which_says_how_to_go_on(crawl: Shell, real_shell: Shell):
    process = real_shell.start("put", "crawl", "--file", "-", "--format", "jsonl")
    assert process.stdin is not None
    process.stdin.write(b"1\n" * (PART + 1))
    process.stdin.flush()
    with penstock.connect(crawl.folder / "tasks.db") as queue:
        until(lambda: queue.tube("crawl").statistics().tasks["total"], "the first part is not stored")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, f"{PART}\n".encode())
    assert f"go on with --skip {PART}".encode() in err


def test_a_full_tube_stops_the_put_which_can_go_on_later(shell: Shell):
    shell.inside("create", "crawl", "--capacity", "3")
    (shell.folder / "a.txt").write_text("a\nb\n\nc\nd\ne\n")
    ran = shell.inside("put", "crawl", "-f", "a.txt", "--json")
    assert ran.status == penstock.TubeFull.exit_status()
    assert ran.document == {"stored": 3, "existing": 0, "refused": 0, "line": 4}
    assert "go on with --skip 4" in ran.err
    shell.inside("alter", "crawl", "--capacity", "none")
    assert shell.inside("put", "crawl", "-f", "a.txt", "--skip", "4").out == "2\n"
    assert [task["data"] for task in tasks(shell)] == ["a", "b", "c", "d", "e"]


def test_a_put_with_patience_waits_for_room_for_each_part(shell: Shell):
    shell.inside("create", "crawl", "--capacity", "2")
    process = shell.start("put", "crawl", "--file", "-", "--format", "lines", "--timeout", "forever")
    assert process.stdin is not None
    process.stdin.write(b"a\nb\nc\n")
    process.stdin.close()
    with penstock.connect(shell.folder / "tasks.db") as queue:
        found = [queue.tube("crawl").take(timeout=PATIENCE) for _ in range(2)]
        assert process.poll() is None
        for task in found:
            task.ack()
        assert queue.tube("crawl").take(timeout=PATIENCE).data == "c"
    assert process.wait(PATIENCE) == 0
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.read() == b"3\n"


def test_what_is_no_file_of_records_is_said_so(crawl: Shell):
    (crawl.folder / "a.csv").write_text("site,site\n1,2\n")
    (crawl.folder / "a.dat").write_text("1\n")
    for words, why in (
        (["-f", "nope.csv"], "cannot be read"),
        (["-f", "a.dat"], "--format"),
        (["-f", "-"], "--format"),
        (["-f", "a.csv"], "name the columns"),
        (["-f", "a.csv", "--refused", "no/such/folder"], "cannot be made"),
    ):
        ran = crawl.inside("put", "crawl", *words)
        assert ran.status == 64 and why in ran.err, words


def test_an_empty_file_is_no_error(crawl: Shell):
    (crawl.folder / "a.csv").write_text("")
    ran = crawl.inside("put", "crawl", "-f", "a.csv")
    assert (ran.status, ran.out) == (0, "0\n")


def test_a_tube_of_bytes_takes_lines_as_they_are(shell: Shell):
    shell.inside("create", "raw", "--payload", "bytes")
    assert shell.inside("put", "raw", "-f", "-", "--format", "lines", input=b"\xff\x00\nb").out == "2\n"
    assert shell.inside("put", "raw", "-f", "-", "--format", "csv").status == 64


def test_a_bar_shows_the_way_on_a_terminal_only(crawl: Shell):
    (crawl.folder / "a.jsonl").write_text("1\n" * 10_000)
    ran = crawl.terminal("put", "crawl", "-f", "a.jsonl")
    assert "put into crawl" in ran.out and ran.status == 0
    assert crawl.inside("put", "crawl", "-f", "a.jsonl") == (0, "10000\n", "")


# -- filters ---------------------------------------------------------------------------------------


@pytest.fixture
def mixed(crawl: Shell) -> Shell:
    """Tasks of two lanes: of each 2 ready, 2 buried with an error, 1 delayed."""
    with penstock.connect(crawl.folder / "tasks.db", durability="relaxed") as queue:
        tube = queue.tube("crawl")
        for lane in ("a", "b"):
            for n in range(5):
                task = tube.put({"site": lane, "n": n, "odd": n % 2 == 1}, lane=lane, delay=3600 if n == 4 else None)
                if n in (2, 3):
                    tube.bury(task.id, f"timeout of {lane}" if n == 2 else "gone")
    return crawl


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--state", "buried"], [3, 4, 8, 9]),
        (["--lane", "a", "--state", "ready"], [1, 2]),
        (["--error-contains", "timeout"], [3, 8]),
        (["--data", '.site == "b"', "--data", ".n == 4"], [10]),
        (["--data", ".site == b", "--state", "delayed"], [10]),
        (["--data", ".n==1"], [2, 7]),
        (["--data", ".odd == true", "--lane", "b"], [7, 9]),
        (["--data", ".n == true"], []),
        (["--data", ".missing == null"], []),
        (["--older-than", "1h"], []),
        (["--older-than", "0"], list(range(1, 11))),
        (["--older-than", "forever"], []),
        (["--key", "k"], []),
    ],
)
def test_filters_find_tasks(mixed: Shell, words: list[str], ids: list[int]):
    assert [task["id"] for task in tasks(mixed, *words)] == ids


@pytest.mark.parametrize("condition", ["n == 1", ".n", ".a.b == 1", ".n <> 1", ""])
def test_a_condition_that_is_none_is_refused(mixed: Shell, condition: str):
    ran = mixed.inside("tasks", "crawl", "--data", condition)
    assert ran.status == 64 and "--data" in ran.err


def test_a_dry_run_counts_and_changes_nothing(mixed: Shell):
    before = tasks(mixed)
    for verb, words, number in (
        ("delete", ["--state", "buried"], 4),
        ("cancel", ["--lane", "a"], 5),
        ("bury", ["--older-than", "0"], 6),
        ("kick", ["3", "--error-contains", "t"], 2),
        ("kick", ["1", "--lane", "b"], 1),
        ("plow", [], 4),
    ):
        ran = mixed.inside(verb, "crawl", *words, "--dry-run", "--json")
        assert (ran.status, ran.document) == (0, {"matched": number, "dry_run": True}), verb
        assert "nothing is changed" in ran.err
    none = mixed.inside("release", "crawl", "--all", "--dry-run")
    assert (none.status, none.out) == (1, "0\n")
    assert tasks(mixed) == before


def test_tasks_that_a_filter_finds_are_revived_deleted_and_cancelled(any_shell: Shell, monkeypatch):
    monkeypatch.setattr(selection, "PAGE", 7)
    shell = any_shell
    shell.inside("create", "crawl", "--keep-failed", "yes")
    with penstock.connect(shell.url if "://" in shell.url else shell.folder / shell.url) as queue:
        tube = queue.tube("crawl")
        for task in tube.put_many([{"n": n % 5} for n in range(50)]):
            if task.data["n"] < 3:
                tube.bury(task.id, f"error {task.data['n']}")
    assert shell.inside("kick", "crawl", "3", "--data", ".n == 0").out == "3\n"
    assert shell.inside("plow", "crawl", "--error-contains", "error 1", "--delay", "1h").out == "10\n"
    assert shell.inside("delete", "crawl", "--state", "buried", "--yes").out == "17\n"
    assert shell.inside("cancel", "crawl", "--state", "ready", "--yes", "--json").document == {
        "cancelled": 23,
        "failed": 0,
    }
    assert shell.inside("cancel", "crawl", "--older-than", "0", "--dry-run").out == "10\n"
    counts = shell.inside("stats", "crawl", "--json").document["tasks"]
    assert (counts["delayed"], counts["kept"], counts["total"]) == (10, 23, 10)


def test_taken_tasks_are_released_by_a_filter_whoever_holds_them(mixed: Shell):
    mixed.inside("take", "crawl", "-n", "4")
    assert mixed.inside("release", "crawl", "--lane", "a", "--yes").out == "2\n"
    assert mixed.inside("release", "crawl", "--all", "--delay", "1h", "--yes").out == "2\n"
    assert [task["id"] for task in tasks(mixed, "--state", "delayed")] == [5, 6, 7, 10]
    mixed.inside("take", "crawl", "-n", "4")
    assert mixed.inside("release", "crawl", "--all", "--yes").out == "2\n"
    assert mixed.inside("release", "crawl", "--all", "--yes").status == 1
    assert mixed.inside("release", "crawl", "--state", "ready", "--yes").status == 64
    assert mixed.inside("release", "crawl", "1", "--all").status == 64
    assert mixed.inside("release", "crawl", "--all", "--pri", "1").status == 64


def test_tasks_that_wait_are_buried_by_a_filter_and_others_left_alone(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "crawl")
    for words in (["--lane", "a"], ["--lane", "a", "--delay", "1h"], ["--lane", "b"], ["--lane", "a", "--pri", "-1"]):
        shell.inside("put", "crawl", "1", *words)
    shell.inside("take", "crawl")
    ran = shell.inside("bury", "crawl", "--lane", "a", "--error", "not now", "--yes", "--json")
    assert ran.document == {"buried": 2, "failed": 0}
    found = {task["id"]: (task["state"], task["error"]) for task in tasks(shell)}
    assert (found[1], found[2]) == (("buried", "not now"), ("buried", "not now"))
    assert (found[3][0], found[4][0]) == ("ready", "taken")
    assert shell.inside("bury", "crawl", "--lane", "a", "--yes").status == 1
    refused = shell.inside("bury", "crawl", "--state", "taken", "--yes")
    assert refused.status == 64 and "--session" in refused.err


def test_what_destroys_needs_a_yes_where_nobody_can_be_asked(mixed: Shell):
    for words in (
        ["delete", "crawl", "--state", "ready"],
        ["cancel", "crawl", "--lane", "a"],
        ["bury", "crawl", "--lane", "a"],
        ["truncate", "crawl"],
        ["drop", "crawl"],
    ):
        ran = mixed.inside(*words)
        assert ran.status == 64 and "pass --yes" in ran.err, words
    assert total(mixed) == 10
    for words in (["delete", "crawl"], ["cancel", "crawl"], ["bury", "crawl"], ["bury", "crawl", "1", "--lane", "a"]):
        assert mixed.inside(*words, "--yes").status == 64


def test_a_person_is_asked_with_the_number_and_may_say_no(mixed: Shell):
    no = mixed.terminal("delete", "crawl", "--state", "buried", typed="n\n")
    assert "delete 4 tasks of tube 'crawl'? [y/N]" in no.out and no.status == 1
    assert total(mixed) == 10
    yes = mixed.terminal("delete", "crawl", "--state", "buried", typed="y\n")
    assert yes.status == 0 and total(mixed) == 6


def test_no_more_is_done_than_there_was_at_the_start(crawl: Shell, monkeypatch):
    monkeypatch.setattr(selection, "PAGE", 2)
    with penstock.connect(crawl.folder / "tasks.db") as queue:
        tube = queue.tube("crawl")
        tube.put_many(range(4))
        tube.on_task_change(lambda task, event: tube.put(0) if event == "delete" else None)
        assert crawl.inside("delete", "crawl", "--older-than", "0", "--yes").out == "4\n"


@pytest.mark.parametrize("ids", ["auto", "uuid"])
def test_pages_go_on_where_others_remove_tasks_meanwhile(shell: Shell, monkeypatch, ids: str):
    monkeypatch.setattr(selection, "PAGE", 3)
    shell.inside("create", "crawl", "--id", ids)
    with penstock.connect(shell.folder / "tasks.db") as queue:
        tube = queue.tube("crawl")
        put = [task.id for task in tube.put_many(range(10))]
        seen = []
        for page in selection.pages(tube, None):
            seen += [task.data for task in page]
            # The last task of the page that was read ahead goes away before the next one is asked for.
            if len(seen) == 3:
                tube.delete(put[5])
        assert seen == list(range(10))


def test_plow_and_truncate_of_very_many(crawl: Shell, monkeypatch):
    monkeypatch.setattr("penstock.cli.buried.STEP", 400)
    with penstock.connect(crawl.folder / "tasks.db", durability="relaxed") as queue:
        tube = queue.tube("crawl")
        for task in tube.put_many(range(1000)):
            tube.bury(task.id)
    assert crawl.inside("plow", "crawl").out == "1000\n"
    ran = crawl.terminal("truncate", "crawl", typed="y\n")
    assert "remove 1,000 tasks of tube 'crawl'?" in ran.out and ran.status == 0
    assert total(crawl) == 0


def test_the_list_of_tasks_stops_at_its_limit_and_says_how_to_go_on(crawl: Shell):
    crawl.inside("put", "crawl", "-f", "-", "--format", "jsonl", input=b"1\n" * 2500)
    ran = crawl.inside("tasks", "crawl", "--limit", "2100", "--json")
    assert [task["id"] for task in ran.documents] == list(range(1, 2101))
    assert "--after 2100" in ran.err
    rest = crawl.inside("tasks", "crawl", "--after", "2100", "--limit", "400", "--json")
    assert ([task["id"] for task in rest.documents], rest.err) == (list(range(2101, 2501)), "")
    few = crawl.inside("tasks", "crawl", "--state", "ready", "--after", "2498", "--limit", "1")
    assert "--after 2499" in few.err


def test_files_in_the_folder_are_left_alone(crawl: Shell):
    def names() -> set[str]:
        return {path.name for path in Path(crawl.folder).iterdir() if not path.name.startswith("tasks.db")}

    crawl.inside("put", "crawl", "-f", "-", "--format", "lines", input=b"a\n")
    assert names() == set()
    assert json.loads(crawl.inside("tasks", "crawl", "--json").out)["data"] == "a"
