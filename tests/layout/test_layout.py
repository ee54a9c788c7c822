"""Rules of the code base that a program can check."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import penstock
import penstock.testing
from penstock.engines import verbs
from penstock.model import errors, ops, tube

ROOT = Path(__file__).resolve().parents[2]
SOURCE = sorted(path for path in (ROOT / "src" / "penstock").rglob("*.py") if path.parent.name != "_generated")
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = 500
MAX_FUNCTION = 70
LONG = {
    "src/penstock/model/ops.py": "lists every op once",
    "src/penstock/blocking/tube.py": "lists every verb of a tube once, with an example each",
    "src/penstock/aio/tube.py": "is made from blocking/tube.py",
    "src/penstock/blocking/queue.py": "lists every verb of a queue once, with an example each",
}
OPTIONAL = (
    "psycopg grpc google.protobuf pyspark pyarrow pandas uvloop typer rich starlette uvicorn jinja2 opentelemetry "
    "prometheus_client croniter"
)
TWINS = [
    (penstock.Queue, penstock.AsyncQueue),
    (penstock.Tube, penstock.AsyncTube),
    (penstock.Lane, penstock.AsyncLane),
    (penstock.Task, penstock.AsyncTask),
]
NOT_AWAITED = {"lane", "handler", "periodic", "middleware"}
FACADE = [penstock.Queue, penstock.Tube, penstock.Lane, penstock.Task]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def public(cls: type) -> dict[str, object]:
    """What a class shows, inherited or its own."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("penstock")]
    return {name: value for base in reversed(ours) for name, value in vars(base).items() if not name.startswith("_")}


def public_functions(cls: type) -> dict[str, object]:
    return {name: value for name, value in public(cls).items() if inspect.isfunction(value)}


def test_importing_penstock_loads_no_optional_dependency():
    code = f"import sys, penstock; print([name for name in {OPTIONAL.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_every_op_has_a_verb_in_the_same_order():
    assert list(verbs.VERBS) == list(ops.ALL)
    named = [value for value in vars(ops).values() if isinstance(value, type) and issubclass(value, ops.Op)]
    assert [op for op in named if op is not ops.Op] == list(ops.ALL)


@pytest.mark.parametrize(("blocking", "awaiting"), TWINS, ids=lambda cls: cls.__name__)
def test_both_facades_have_the_same_names_and_signatures(blocking, awaiting):
    renamed = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
    mine = {renamed.get(name, name): value for name, value in vars(blocking).items() if inspect.isroutine(value)}
    theirs = {name: value for name, value in vars(awaiting).items() if inspect.isroutine(value)}
    assert list(mine) == list(theirs)
    for name, value in mine.items():
        assert signature(value) == signature(theirs[name]), name
    properties = [name for name, value in vars(blocking).items() if isinstance(value, property)]
    assert properties == [name for name, value in vars(awaiting).items() if isinstance(value, property)]


def signature(function: object) -> str:
    return re.sub(r"\b(Async|a(?=connect))", "", re.sub(r" ->.*", "", str(inspect.signature(function))))


@pytest.mark.parametrize("cls", [awaiting for _, awaiting in TWINS], ids=lambda cls: cls.__name__)
def test_every_verb_of_the_async_facade_is_awaited(cls):
    for name, value in public_functions(cls).items():
        manages = hasattr(value, "__wrapped__")
        assert inspect.iscoroutinefunction(value) or manages or name in NOT_AWAITED, name


def test_connect_and_aconnect_have_the_same_arguments():
    assert signature(penstock.connect) == signature(penstock.aconnect)


@pytest.mark.parametrize("path", SOURCE, ids=relative)
def test_no_source_file_is_long(path):
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES or relative(path) in LONG, f"{lines} lines: split it by subject"


@pytest.mark.parametrize("path", [*SOURCE, *TESTS, *sorted((ROOT / "examples").glob("*.py"))], ids=relative)
def test_no_function_is_long(path):
    for node in functions(ast.parse(path.read_text())):
        lines = (node.end_lineno or 0) - node.lineno + 1
        assert lines <= MAX_FUNCTION, f"{node.name} has {lines} lines"


def test_no_file_is_named_after_nothing():
    nothing = {"utils", "util", "common", "base", "helpers", "misc"}
    assert [relative(path) for path in [*SOURCE, *TESTS] if path.stem in nothing] == []


@pytest.mark.parametrize("path", SOURCE, ids=relative)
def test_every_module_says_what_it_is(path):
    text = path.read_text()
    assert not text.strip() or re.match(r'"""\S', text)


def test_all_is_sorted_and_complete():
    names = penstock.__all__
    assert names == sorted(names)
    imported = {
        name for name, value in vars(penstock).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert set(names) == imported
    assert {error.__name__ for error in errors.ALL} <= set(names)
    assert penstock.testing.__all__ == sorted(penstock.testing.__all__)


@pytest.mark.parametrize("cls", FACADE, ids=lambda cls: cls.__name__)
def test_every_public_method_shows_an_example(cls):
    for name, value in public_functions(cls).items():
        text = inspect.getdoc(value) or ""
        assert ">>> " in text, f"{cls.__name__}.{name} has no example"
    for name, value in public(cls).items():
        if isinstance(value, property):
            assert value.__doc__, f"{cls.__name__}.{name} has no docstring"
    assert ">>> " in (inspect.getdoc(penstock.connect) or "")


def test_help_explains_every_option():
    options = {*tube.OPTIONS, "if_not_exists", "temporary"}
    assert options - set(re.findall(r"\w+", inspect.getdoc(penstock.Queue.create_tube) or "")) == set()
    explained = set(re.findall(r"(?m)^(\w+): ", inspect.getdoc(penstock.Tube.put) or ""))
    assert explained == set(inspect.signature(penstock.Tube.put).parameters) - {"self", "data"}


def test_the_package_is_shipped_with_its_types_and_its_sql():
    package = files("penstock")
    assert package.joinpath("py.typed").is_file()
    project = (ROOT / "pyproject.toml").read_text()
    assert "py.typed" in project and "**/*.sql" in project


def test_make_alone_lists_the_targets():
    listed = subprocess.run(["make", "-s"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    for target in ("demo", "test", "check", "format", "coverage", "bench"):
        assert re.search(rf"^{target}\s+\w", listed, re.M), f"`make` does not explain {target}"


def test_no_test_sleeps_or_is_skipped():
    forbidden = {"sleep", "skip", "skipif", "importorskip", "xfail"}
    for path in TESTS:
        text = path.read_text().replace("asyncio.sleep(0)", "None")  # this only lets the loop run
        if not any(f".{name}" in text for name in forbidden):
            continue
        used = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
        assert not used & forbidden, f"{relative(path)} uses {used & forbidden}"


def test_sources_hold_no_places_of_one_machine():
    for path in [*SOURCE, *TESTS, *sorted((ROOT / "tools").glob("*.py"))]:
        assert not re.search(r"[\"' ]/(?:home|work|root)/", path.read_text()), relative(path)
