"""The examples do what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(example: str, *words: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / example), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_crawls_every_page_once_and_holds_the_rates():
    out = run("demo.py", "--sites", "3", "--pages", "20", "--workers", "4", "--fast")
    assert "for 60 pages" in out and "0 fetched twice" in out
    assert " yes " in out and " NO " not in out


def test_the_demo_ends_with_one_line_on_ctrl_c(tmp_path):
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    while not list(tmp_path.glob("*/crawl.db-wal")):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.splitlines()[-1].startswith("stopped before the end")
    assert list(tmp_path.iterdir()) == []


def test_next_and_done_try_a_failed_job_again():  # cases 315, 316
    lines = run("jobqueue.py").split("\n")
    assert lines[:2] == ["page 0 done", "page 1 delayed"]
    assert sorted(lines[2:4]) == ["page 1 done", "page 2 done"]


def test_the_handler_loop_answers_results_and_buries_failures():
    out = run("handlers.py")
    assert "12 squared is 144" in out
    assert "7 halved: buried no_attempts after 2 attempts" in out
