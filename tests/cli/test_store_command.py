"""`penstock migrate` and `penstock doctor`, and what the doctor of SQLite files finds."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.cli.conftest import QuickShell
from tests.cli.shell import Shell
from tests.support import postgres

import penstock
from penstock.engines.finding import Finding, exit_status, how_long
from penstock.engines.sqlite import doctor, migrate
from penstock.engines.sqlite.doctor import Limits, examine

AT_ONCE = Limits(wal=(1, 1 << 40), free_pages=(0.0, 1), disk=(0.0, 2.0), lease=-1, ready=-1, overdue=-1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def q(file: Path) -> Iterator[penstock.Queue]:
    with penstock.connect(file, durability="relaxed") as queue:
        yield queue


def found(file: Path, check: str, limits: Limits = AT_ONCE) -> list[Finding]:
    return [finding for finding in examine(str(file), limits) if finding.check == check]


def by_hand(file: Path, *statements: str) -> None:
    connection = apsw.Connection(str(file))
    for statement in statements:
        connection.execute(statement)
    connection.close()


# -- the doctor of files -----------------------------------------------------------------------------


def test_a_healthy_file_has_nothing_to_complain_about(q, file):
    jobs = q.create_tube("jobs", lane_concurrency=1)
    jobs.put_many([1, 2, 3], lane="a")
    jobs.take()
    q.create_tube("flying", temporary=True).put(1)
    findings = examine(str(file), Limits(disk=(2.0, 3.0)))
    assert {finding.level for finding in findings} == {"ok"}
    checks = {finding.check for finding in findings}
    assert {"integrity", "journal mode", "log", "free pages", "schema", "sessions", "counters"} <= checks
    assert {"oldest lease", "oldest ready task", "disk", "file", "SQLite"} <= checks
    assert [it.value for it in findings if it.check == "counters"] == ["3 rows, as counted", "1 row, as counted"]


def test_what_is_worth_a_warning_says_what_to_do(q, file):
    jobs = q.create_tube("jobs")
    jobs.put_many(["x" * 5000] * 30)
    jobs.take(ttr=1000)
    findings = examine(str(file), AT_ONCE)
    warned = {finding.check for finding in findings if finding.level == "warn"}
    assert {"log", "disk", "oldest lease", "oldest ready task"} <= warned
    assert [it.level for it in findings] == sorted((it.level for it in findings), key=["bad", "warn", "ok"].index)
    for finding in findings:
        assert finding.meaning and (finding.next_step or finding.level == "ok"), finding
    jobs.pause()
    assert found(file, "oldest ready task")[0].level == "ok"
    jobs.truncate()
    q.close()
    assert found(file, "free pages")[0].level == "warn"


def test_what_time_has_not_done_because_nobody_was_there(q, file):
    q.create_tube("jobs").put(1, delay=1000)
    assert found(file, "overdue") == []
    number = q._engine.store._tx.tube("jobs").number  # type: ignore[attr-defined]
    q.close()
    by_hand(file, f"UPDATE penstock_tasks_{number} SET due_at = 0 WHERE seq > 0")  # noqa: S608
    assert found(file, "overdue")[0].level == "warn"


def test_counters_that_do_not_fit_the_rows(q, file):
    q.create_tube("jobs").put_many([1, 2])
    number = q._engine.store._tx.tube("jobs").number  # type: ignore[attr-defined]
    q.close()
    by_hand(file, f"DELETE FROM penstock_tasks_{number} WHERE seq = 1")  # noqa: S608
    (finding,) = found(file, "counters")
    assert (finding.level, finding.value) == ("bad", "ready 2 counted, 1 stored")


def test_indexes_and_tables_that_are_missing(q, file):
    q.create_tube("jobs").put(1, lane="a")
    number = q._engine.store._tx.tube("jobs").number  # type: ignore[attr-defined]
    q.close()
    by_hand(file, f"DROP INDEX penstock_tasks_{number}_waiting")
    (finding,) = found(file, "index")
    assert finding.level == "bad" and finding.next_step.startswith("CREATE INDEX")
    by_hand(file, finding.next_step)
    assert found(file, "index") == []
    by_hand(file, f"DROP TABLE penstock_tasks_{number}")
    (finding,) = found(file, "table")
    assert (finding.level, finding.value) == ("bad", f"penstock_tasks_{number} is missing")


def test_a_damaged_file(q, file):
    q.create_tube("jobs").put_many(["x" * 500] * 500)
    q.close()
    content = bytearray(file.read_bytes())
    content[4096:40960] = random.Random(1).randbytes(40960 - 4096)
    file.write_bytes(content)
    findings = examine(str(file))
    assert findings[0].check == "integrity" and findings[0].level == "bad" and ".recover" in findings[0].next_step


def test_files_of_other_versions_and_of_others(q, file, tmp_path):
    q.close()
    by_hand(file, "UPDATE penstock_store SET schema = schema + 90")
    assert found(file, "schema")[0].level == "bad"
    other = tmp_path / "other.db"
    by_hand(other, "CREATE TABLE mine (x)")
    assert [(it.check, it.level) for it in examine(str(other)) if it.level == "bad"] == [
        ("journal mode", "bad"),
        ("schema", "bad"),
    ]
    text = tmp_path / "text.db"
    text.write_text("this is no database, whatever its name says, and it is long enough to be looked at\n" * 20)
    with pytest.raises(penstock.UsageError, match="not a SQLite database"):
        examine(str(text))


def test_the_worst_finding_is_the_exit_status():
    levels = [Finding("x", "", "ok", "", ""), Finding("x", "", "warn", "", ""), Finding("x", "", "bad", "", "")]
    assert [exit_status(levels[:number]) for number in range(4)] == [0, 0, 1, 2]
    assert [how_long(seconds) for seconds in (1, 119, 120, 7200, 86400 * 2)] == [
        "1 second",
        "119 seconds",
        "2 minutes",
        "2 hours",
        "2 days",
    ]


# -- the programs ------------------------------------------------------------------------------------


def test_the_doctor_prints_the_worst_first_and_exits_by_it(q, file, shell):
    q.create_tube("jobs").put(1)
    q.close()
    well = shell.run("doctor", "--all")
    assert well.status in (0, 1) and well.out.startswith(f"{file}: 0 bad, ")  # the disk may be rather full
    assert "\nok   counters jobs: 1 row, as counted\n" in well.out
    by_hand(file, "DELETE FROM penstock_tasks_1 WHERE seq > 0")
    ill = shell.run("doctor", "--json")
    assert ill.status == ill.document["status"] == 2
    assert "counters" in [finding["check"] for finding in ill.document["findings"]]
    assert "ok" not in [finding["level"] for finding in ill.document["findings"]]


def test_a_file_is_made_and_its_version_told(file, shell):
    newest = len(doctor.migrations("migrations"))
    assert shell.inside("migrate", "--sql").out.startswith("BEGIN IMMEDIATE;\n") and not file.exists()
    assert shell.run("migrate", "--json").document == {"place": str(file), "version": newest, "before": 0}
    again = shell.inside("migrate")
    assert (again.status, again.out) == (0, f"{file} has version {newest}; it had {newest}\n")
    assert "nothing is to be done" in shell.inside("migrate", "--sql").out


def test_the_script_makes_what_migrate_makes(file):
    by_hand(file, migrate.script(str(file)))
    with penstock.connect(file) as q:
        assert q.create_tube("jobs").put(1).state == "ready"


def test_on_postgresql_they_do_what_the_modules_do(tmp_path):
    url = postgres.lent_place()
    shell = QuickShell(url, tmp_path)
    penstock.connect(url).close()
    for name in ("migrate", "doctor"):
        module = [sys.executable, "-m", f"penstock.engines.postgres.{name}", url]
        theirs = subprocess.run(module, capture_output=True, text=True)
        ours = shell.run(name)
        assert (ours.status, ours.out) == (theirs.returncode, theirs.stdout)
    assert shell.inside("migrate", "--force", "--json").document["before"] > 0
    assert "create or replace function" in shell.inside("migrate", "--sql").out
    postgres.give_back(url)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["migrate", "--url", "memory:"], "nothing to migrate in memory"),
        (["doctor", "--url", "memory:"], "nothing to examine in memory"),
        (["migrate", "--force", "--url", "tasks.db"], "--force"),
        (["doctor", "--url", "tasks.db"], "does not exist"),
        (["migrate", "--url", "sqlite:///tasks.db?mode=ro"], "mode=ro"),
        (["doctor", "--url", "redis://h"], "no engine for redis://"),
        (["doctor"], "PENSTOCK_URL"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments, words, tmp_path):
    done = Shell("", tmp_path).inside(*arguments)
    assert done.status >= 64 and done.out == ""
    assert done.err.startswith("penstock: ") and done.err.count("\n") == 1 and words in done.err
    assert list(tmp_path.iterdir()) == []
