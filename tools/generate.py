"""Make the files that are made: `python tools/generate.py` writes them, `--check` only compares.

src/penstock/aio/          the awaiting facade, from src/penstock/blocking/
docs/states.md             the state diagram and tables, from src/penstock/model/state.py
docs/conformance.md        which behaviours have a test, from tests/conformance.txt and the tests
src/penstock/wire/_generated/   stubs of gRPC, from src/penstock/wire/penstock.proto
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import conformance
import stubs

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "penstock"
FACADE = ("task.py", "tube.py", "handler.py", "queue.py")
NAMES = {
    "Queue": "AsyncQueue",
    "Tube": "AsyncTube",
    "Lane": "AsyncLane",
    "Task": "AsyncTask",
    "Handler": "AsyncHandler",
    "Engine": "AsyncEngine",
    "Transactor": "AsyncTransactor",
    "Iterator": "AsyncIterator",
    "contextmanager": "asynccontextmanager",
    "connect": "aconnect",
    "open_engine": "open_async_engine",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
}
AWAITED = re.compile(
    r"(?<![\w.])("
    r"open_async_engine\(|queue\._start\(|self\._engine\.(?:execute|wait|dismiss|close)\(|self\._tube\._engine\.execute\("
    r"|self\._engine\.join\(transaction\)\.execute\(|self\._queue\._run\(|self\.close\(|self\.wait\(|self\.take_many\("
    r"|self\.(?:ack|release|fail)\(|self\._wait_for_task\("
    r"|self\.create_tube\(|self\.tube\(|tube\.(?:put|put_many|tasks|cancel|snatch)\(|self\._(?:made|tube_of|fitted|store_schedule)\("
    r"|self\._queue\._tube_of\("
    r"|self\.(?:_tube\.)?_(?:put|take|ack|release|bury|fail|touch|holds)\(|(?:self|view)\._(?:was|recall)\(|engine\.close\("
    r")"
)
MODULES = {
    "penstock.blocking": "penstock.aio",
    "from penstock.engines import AsyncEngine": "from penstock.engines.bridge import AsyncEngine",
    "from penstock.engines.transactor import AsyncTransactor": "from penstock.engines.bridge import AsyncTransactor",
}
ALWAYS_ASYNC = ("register_kind", "on_task_change", "put", "put_many", "ack_many", "__aenter__", "_end_of_file")


def generated_aio(name: str) -> str:
    """A file of the blocking facade with every call that blocks awaited instead."""
    source = (PACKAGE / "blocking" / name).read_text()
    banner = f'"""Made from blocking/{name} by tools/generate.py. Do not edit."""\n'
    source = re.sub(r'^""".*?"""\n', banner, source, flags=re.S)
    for old, new in NAMES.items():
        source = re.sub(rf"(?<![\w.`'\"]){re.escape(old)}\b(?!`)", new, source)
    source = re.sub(r"\n\s*\n(\s*)>>> .*?(?=\n\s*\"\"\")", "", source, flags=re.S)
    for old, new in MODULES.items():
        source = source.replace(old, new)
    source = source.replace("with self._engine.transaction()", "async with self._engine.transaction()")
    source = AWAITED.sub(r"await \1", source)
    blocks = re.split(r"(?m)^(?=(?:    )?(?:@\w+.*\n(?:    )?)?(?:def|class) )", source)
    return _formatted("".join(_coloured(block) for block in blocks))


def _coloured(block: str) -> str:
    head = re.search(r"(?m)^(?:    )?def (\w+)", block)
    if head and ("await " in block or "async with" in block or head[1] in ALWAYS_ASYNC):
        block = re.sub(r"(?m)^((?:    )?)def ", r"\1async def ", block, count=1)
    return block


def _formatted(text: str) -> str:
    for words in (["check", "--quiet", "--select", "I", "--fix"], ["format"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(PACKAGE / "aio" / "queue.py"), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def generated_states() -> str:
    """The state machine as a diagram and two tables."""
    from penstock.model.state import TRANSITIONS, VERBS, State

    columns = [*list(State)[:2], "other", *list(State)[2:]]
    edges: dict[tuple[str, str], set[str]] = {}
    for event, source, target, reason in TRANSITIONS:
        label = event.value if reason is None else f"{event.value} ({reason.value})"
        edges.setdefault((source.value if source else "[*]", target.value), set()).add(label)
    lines = [
        "# States",
        "",
        "Made from `src/penstock/model/state.py` by `tools/generate.py`.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        *(f"    {a} --> {b}: {', '.join(sorted(labels))}" for (a, b), labels in sorted(edges.items())),
        "```",
        "",
        "| from | to | events |",
        "|---|---|---|",
        *(
            f"| {'(new)' if a == '[*]' else a} | {b} | {', '.join(sorted(labels))} |"
            for (a, b), labels in sorted(edges.items())
        ),
        "",
        "## What a verb given an id answers",
        "",
        "`taken` is held by the caller, `other` by another session. A capitalised name is the error that is raised.",
        "",
        "| verb | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
        *(f"| {verb} | " + " | ".join(row[column] for column in columns) + " |" for verb, row in VERBS.items()),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    check = "--check" in sys.argv
    stale = 0
    made: list[tuple[Path, Callable[[], str]]] = [
        *((PACKAGE / "aio" / name, partial(generated_aio, name)) for name in FACADE),
        (ROOT / "docs" / "states.md", generated_states),
        (ROOT / "docs" / "conformance.md", conformance.page),
        *((stubs.WIRE / "_generated" / name, partial(stubs.stub, name)) for name in stubs.NAMES),
    ]
    for path, make in made:
        text = make()
        if path.exists() and path.read_text() == text:
            continue
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run `make generate`", file=sys.stderr)
            stale += 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    sys.exit(main())
