"""The pytest plugin, in real runs of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Options for every run; to load Hypothesis takes as long as all the rest."""
STRICT = "[pytest]\nfilterwarnings = error\naddopts = --strict-config --strict-markers\n"
APP = """
    import os
    import penstock

    q = penstock.connect(os.environ["PENSTOCK_URL"])
    sent = []

    @q.handler("mail", retry=60, max_attempts=3, keep=True)
    def send(to: str) -> None:
        if to == "nobody":
            raise LookupError(to)
        sent.append(to)
"""
TESTS = """
    import app
    import pytest
    from penstock.testing import assert_not_put, assert_put, drain

    @pytest.mark.parametrize("n", range(3))
    def test_every_test_begins_with_an_empty_queue(n):
        assert_not_put(app.q, "mail")
        app.send.put(f"{n}")
        assert_put(app.q, "mail", count=1)
        assert drain(app.q).ok == 1
        assert f"{n}" in app.sent

    def test_the_clock_is_that_of_the_app(penstock_clock, penstock_queue):
        start = penstock_clock.now()
        app.send.put("nobody")
        assert drain(app.q, clock=penstock_clock, horizon=600).trouble == 3
        assert penstock_clock.now() - start == 120_000_000
        assert [task.reason for task in app.q.tube("mail").tasks()] == ["no_attempts"]
        assert penstock_queue.tubes() == []
"""


class Project:
    """A folder with tests."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **files: str) -> None:
        for name, text in files.items():
            stem, _, kind = name.rpartition("_")
            (self.path / f"{stem}.{kind}").write_text(dedent(text))

    def pytest(self, *words: str, code: int = 0, **environment: str) -> str:
        """Run pytest there; what it prints."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PENSTOCK"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *QUICK, *words],
            cwd=self.path,
            env={**known, **environment},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_test_gets_a_queue_and_its_clock(project):
    project.write(
        pytest_ini=STRICT,
        test_it_py="""
            import penstock
            import pytest
            from penstock.testing import ManualClock

            queues = []

            @pytest.mark.parametrize("n", range(2))
            def test_queue(penstock_queue, penstock_clock, n):
                jobs = penstock_queue.create_tube("jobs")
                task = jobs.put(n, delay=60)
                assert (task.id, jobs.take()) == (1, None)
                penstock_clock.advance(60)
                assert jobs.take().data == n
                queues.append(penstock_queue)

            def test_afterwards():
                with pytest.raises(penstock.UsageError, match="closed"):
                    queues[0].tubes()
                assert len({id(queue._engine.store) for queue in queues}) == 2

            def test_clock(penstock_clock):
                assert isinstance(penstock_clock, ManualClock)
        """,
    )
    assert "4 passed" in project.pytest()


def test_strangers_pay_nothing_and_may_leave_it_out(project):
    project.write(
        pytest_ini=STRICT,
        test_it_py="""
            import os, sys

            def test_nothing_is_imported():
                assert not {"penstock", "apsw", "msgspec"} & set(sys.modules)
                assert os.environ.get("PENSTOCK_URL") == "theirs"
        """,
    )
    assert "1 passed" in project.pytest(PENSTOCK_URL="theirs")
    assert "1 passed" in project.pytest("-p", "no:penstock", PENSTOCK_URL="theirs")


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.exhaustive)])
def test_a_program_that_connects_when_it_is_imported_finds_a_queue_in_memory(project, workers):
    project.write(
        pytest_ini=STRICT + "pythonpath = .\npenstock_url = memory:app\n",
        conftest_py="import app",
        app_py=APP,
        test_it_py=TESTS,
    )
    assert "4 passed" in project.pytest("-n", workers, PENSTOCK_URL="nowhere://")


def test_another_url_is_handed_on_and_nothing_more(project):
    project.write(
        pytest_ini=STRICT + "penstock_url = tasks.db\n",
        test_it_py="""
            import os
            import penstock
            import pytest

            @pytest.mark.parametrize("n", range(2))
            def test_it(n):
                with penstock.connect(os.environ["PENSTOCK_URL"]) as q:
                    jobs = q.create_tube("jobs", if_not_exists=True)
                    jobs.put(n)
                    assert len(jobs.tasks()) == n + 1
        """,
    )
    assert "2 passed" in project.pytest()
    assert (project.path / "tasks.db").exists()


def test_a_queue_in_memory_needs_a_name_to_be_found(project):
    project.write(pytest_ini="[pytest]\npenstock_url = memory:\n", test_it_py="def test_it(): pass")
    assert "name it, as memory:tests" in project.pytest(code=4)


def test_the_environment_is_left_as_it_was(project):
    project.write(
        pytest_ini="[pytest]\npenstock_url = memory:app\n",
        test_it_py="import os\n\ndef test_it(): assert os.environ['PENSTOCK_URL'] == 'memory:app'\n",
        run_py=f"""
            import os, pytest
            for before in (None, "mine"):
                if before:
                    os.environ["PENSTOCK_URL"] = before
                assert pytest.main({list(QUICK)}) == 0
                assert os.environ.get("PENSTOCK_URL") == before
        """,
    )
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
    subprocess.run([sys.executable, "run.py"], cwd=project.path, env=environment, check=True, capture_output=True)


def test_the_plugin_is_shipped_and_named():
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert names["project"]["entry-points"]["pytest11"] == {"penstock": "_penstock_pytest"}
    assert names["tool"]["setuptools"]["py-modules"] == ["_penstock_pytest", "pyspark_penstock"]
