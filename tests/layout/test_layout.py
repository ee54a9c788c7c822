"""Rules of the code base that a program can check."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
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
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
MAX_FUNCTION = 70
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


@functools.cache
def text_of(path: Path) -> str:
    """Several rules read every file."""
    return path.read_text()


STRINGS = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""', re.DOTALL)
DEFINITION = re.compile(r" *(?:async )?def \w")
INSIDE = re.compile(r" *(?:[)\]}#]|$)")
"""A line that begins no statement: it is empty, closes a bracket, or is a comment."""


def longest_function(text: str) -> int:
    """Lines of the longest function of a file, by how its lines are indented: to parse all files takes seconds."""
    lines = STRINGS.sub(lambda found: "\n" * found[0].count("\n") + " " * 100 + "x", text).splitlines()
    depths = [1000 if INSIDE.match(line) else len(line) - len(line.lstrip(" ")) for line in lines]
    longest = 0
    begins = [number for number, line in enumerate(lines) if DEFINITION.match(line)]
    for begin in begins:
        depth = depths[begin]
        end = next((number for number in range(begin + 1, len(lines)) if depths[number] <= depth), len(lines))
        while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
            end -= 1
        longest = max(longest, end - begin)
    return longest


def longest_node(text: str) -> int:
    """The same, by the parser."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return max(((node.end_lineno or 0) - node.lineno + 1 for node in nodes), default=0)


def public(cls: type) -> dict[str, object]:
    """What a class shows, inherited or its own."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("penstock")]
    return {name: value for base in reversed(ours) for name, value in vars(base).items() if not name.startswith("_")}


def public_functions(cls: type) -> dict[str, object]:
    return {name: value for name, value in public(cls).items() if inspect.isfunction(value)}


@pytest.mark.processes
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


def test_no_function_is_long():
    lines = {relative(path): longest_function(text_of(path)) for path in [*SOURCE, *TESTS, *EXAMPLES]}
    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION} == {}


@pytest.mark.exhaustive
def test_functions_are_as_long_as_their_lines_say():
    for path in [*SOURCE, *TESTS, *EXAMPLES]:
        assert longest_function(text_of(path)) == longest_node(text_of(path)), relative(path)


def test_no_file_is_named_after_nothing():
    nothing = {"utils", "util", "common", "base", "helpers", "misc"}
    assert [relative(path) for path in [*SOURCE, *TESTS] if path.stem in nothing] == []


def test_every_module_says_what_it_is():
    told = re.compile(r'\s*$|"""\S')
    assert [relative(path) for path in SOURCE if not told.match(text_of(path))] == []


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


@pytest.mark.processes
def test_make_alone_lists_the_targets():
    listed = subprocess.run(["make", "-s"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    for target in ("demo", "test", "check", "format", "coverage", "bench"):
        assert re.search(rf"^{target}\s+\w", listed, re.M), f"`make` does not explain {target}"


def test_no_test_sleeps_or_is_skipped():
    forbidden = {"sleep", "skip", "skipif", "importorskip", "xfail"}
    for path in TESTS:
        text = text_of(path).replace("asyncio.sleep(0)", "None")  # this only lets the loop run
        if not any(f".{name}" in text for name in forbidden):
            continue
        used = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
        assert not used & forbidden, f"{relative(path)} uses {used & forbidden}"


def test_sources_hold_no_places_of_one_machine():
    for path in [*SOURCE, *TESTS, *sorted((ROOT / "tools").glob("*.py"))]:
        assert not re.search(r"[\"' ]/(?:home|work|root)/", text_of(path)), relative(path)
