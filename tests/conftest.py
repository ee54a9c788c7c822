from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import postgres
from tests.support.engines import PAIRS, Bench, parameters

from penstock import engines
from penstock.testing import ManualClock, waiting

# Hundreds of tests start programs, and each would compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# These options are for this run, not for the pytest of a project that a test makes.
os.environ.pop("PYTEST_ADDOPTS", None)
# A shell without job control starts background commands with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


NOWHERE = Path("nowhere")


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and postgres.memory_has_room():
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(postgres.MEMORY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Twenty thousand tests stay until the end: the collector of garbage need not look at them again and again.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Close stores that tests have left open because their server was gone: else their connections complain."""
    for store in list(engines._stores.values()):
        if store.name.startswith("postgresql:"):
            with contextlib.suppress(Exception):
                engines.release_store(store)


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A name with an address in it differs in every process, and then tests cannot be shared out to two.
    odd = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if odd:
        raise pytest.UsageError(f"tests whose names are not the same in every process: {odd[:3]}; give them ids")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=parameters(PAIRS))
def bench(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Bench]:
    """A store under test, over every engine, blocking and async."""
    engine, colour = request.param
    # To make a folder takes longer than many a test.
    path = request.getfixturevalue("tmp_path") if engine.name == "sqlite" else NOWHERE
    with postgres.warmth():
        bench = Bench(engine, colour, path, clock)
    yield bench
    bench.close()


@pytest.fixture
def q(bench: Bench) -> Any:
    """A queue on the store under test."""
    return bench.connect()


class Background:
    """A call in a thread of its own, for tests of waiting."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome.append(call())
        except BaseException as error:
            self._error.append(error)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        """Return the result of the call or raise its error; fails if it does not end."""
        self._thread.join(timeout=90)
        assert not self._thread.is_alive(), "the call does not end"
        if self._error:
            raise self._error[0]
        return self._outcome[0]


@pytest.fixture
def waiter(bench: Bench) -> Callable[..., Background]:
    """Start a call that waits, and come back once it stands in line."""

    def start(queue: Any, call: Callable[[], Any]) -> Background:
        target = getattr(queue, "_target", queue)
        before = waiting(target)
        background = Background(call)
        pause = threading.Event()
        while waiting(target) == before and background.running:
            pause.wait(0.001)
        return background

    return start
