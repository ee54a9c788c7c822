"""The examples do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.servers import Running

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(example: str, *words: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / example), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("scheme", ["memory", "penstock", "grpc"])
def test_next_and_done_try_a_failed_job_again(scheme, tmp_path):  # cases 315, 316
    with ExitStack() as stack:
        url = "memory:"
        if scheme != "memory":
            server = stack.enter_context(Running("memory:", grpc_port=0))
            url = server.grpc_url if scheme == "grpc" else server.url
        lines = in_examples(tmp_path, "python", "-m", "jobqueue", url).split("\n")
    assert lines[:2] == ["page 0 done", "page 1 delayed"]
    assert sorted(lines[2:4]) == ["page 1 done", "page 2 done"]


def test_a_worker_without_the_library():
    with Running("memory:", port=None, grpc_port=0) as server:
        address = server.grpc_url.removeprefix("grpc://")
        lines = run("grpc_client.py", address, str(ROOT / "src" / "penstock" / "wire")).splitlines()
    assert lines[:4] == ["put 1", "put 2", "put 3", "NOT_FOUND task_not_found"]
    assert lines[4:] == [f"did {{'to': '{name}@example.org'}}" for name in ("ann", "bob", "cat")]


def test_handlers_answer_results_and_are_tried_again():
    lines = run("handlers.py").splitlines()
    assert sorted(lines[:2]) == ["attempt 1 to halve 7", "attempt 2 to halve 7, the last"]
    assert lines[2:] == [
        "12 squared is 144",
        "a page of 17 letters",
        "7 halved: buried no_attempts after 2 attempts",
        "in all: 2 done, 2 failed",
    ]


def in_examples(place: Path, *words: str) -> str:
    """Do what the shop's first lines say, on a queue of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT / "examples",
        env={**inherited, "PENSTOCK_URL": str(place), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_shop_is_served_by_a_worker(tmp_path):
    assert in_examples(tmp_path / "shop.db", "python", "-m", "shop").count("\n") == 3
    assert in_examples(tmp_path / "shop.db", "python", "-m", "shop").count("\n") == 3, "orders are placed once"
    mails = in_examples(tmp_path / "shop.db", "penstock", "worker", "shop.tasks:q", "--until-empty")
    assert sorted(mails.splitlines()) == [
        "mail to ann@a.example: your tea is on its way",
        "mail to bob@b.example: your cup is on its way",
        "mail to cat@a.example: order 3: the card is blocked",
    ]


def test_the_tests_of_the_shop_pass(tmp_path):
    words = ("-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    out = in_examples(tmp_path / "shop.db", "pytest", *words)
    assert "7 passed" in out
    assert list(tmp_path.iterdir()) == [], "their queue is in memory"


def test_every_example_is_run_here():
    """That of Spark beside the tests which start it."""
    text = Path(__file__).read_text() + (ROOT / "tests" / "spark" / "test_demo.py").read_text()
    parts = {"crawl": '"crawl"', "jobqueue": '"jobqueue"', "pytest.ini": '"pytest"', "shop": '"shop"'}
    for path in (ROOT / "examples").glob("[a-z]*"):
        assert parts.get(path.name, path.name) in text, path.name
