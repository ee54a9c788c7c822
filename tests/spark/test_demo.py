"""The demo does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_crawls_every_page_once_and_holds_the_rates(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "crawl", "--folder", str(tmp_path / "demo"), "--sites", "3", "--pages", "16", "--fast"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"examples{os.pathsep}src"},
    )
    out = done.stdout
    assert (done.returncode, done.stderr) == (0, ""), out + done.stderr
    assert "for 54 pages of 3 sites" in out and "0 fetched twice" in out
    assert " yes " in out and " NO " not in out
    report = Path(out.splitlines()[-1].removeprefix("The report: "))
    assert "<svg" in report.read_text()


def test_the_demo_ends_with_one_line_on_ctrl_c(tmp_path, monkeypatch, capsys):
    """What the fleet does then is in test_fleet_drivers.py."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    from crawl import __main__ as demo

    def interrupted(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    monkeypatch.setattr(sys, "argv", ["crawl", "--folder", str(tmp_path / "demo")])
    assert demo.main() == 130
    assert capsys.readouterr().out.startswith("stopped before the end")
