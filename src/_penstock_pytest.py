"""The pytest plugin of Penstock: a clock and a queue for tests, and the URL that programs under test find.

It lies outside of the package because pytest loads it at every start, also where nobody uses it: importing penstock
would take as long as importing pytest. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock import Queue
    from penstock.testing import ManualClock

VARIABLE = "PENSTOCK_URL"
MEMORY = "memory:"
_queue = pytest.StashKey["Queue"]()
"""On the store that programs under test find, if that is in memory."""
_clock = pytest.StashKey["ManualClock"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "penstock_url",
        f"What {VARIABLE} is while tests run. A queue in memory, such as memory:tests, has the clock of the fixture "
        "penstock_clock and is emptied before every test.",
        default=None,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before a conftest.py, or a test, imports the program that connects."""
    url = early_config.getini("penstock_url")
    if not url:
        return
    if url == MEMORY:
        raise pytest.UsageError("penstock_url = memory: is another queue for every connect(): name it, as memory:tests")
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = url
    early_config.add_cleanup(lambda: _restore(before))
    if url.startswith(MEMORY):
        _open(early_config, url)


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = before


def _open(config: pytest.Config, url: str) -> None:
    """Open the store first: whoever connects without a clock finds it with ours."""
    import penstock
    from penstock.engines import open_store
    from penstock.testing import ManualClock

    store = open_store(url)  # of an earlier pytest.main() in this process
    clock = ManualClock() if store is None else store.clock
    config.stash[_queue] = queue = penstock.connect(url, clock=clock)
    config.add_cleanup(queue.close)
    if isinstance(clock, ManualClock):
        config.stash[_clock] = clock


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    queue = item.config.stash.get(_queue, None)
    if queue is not None:
        from penstock.testing import empty

        empty(queue)


@pytest.fixture
def penstock_clock(pytestconfig: pytest.Config) -> ManualClock:
    """A clock that stands still until advance(seconds): that of penstock_queue, and of penstock_url in memory."""
    if _clock in pytestconfig.stash:
        return pytestconfig.stash[_clock]
    from penstock.testing import ManualClock

    return ManualClock()


@pytest.fixture
def penstock_queue(penstock_clock: ManualClock) -> Iterator[Queue]:
    """An empty queue in memory on the clock penstock_clock."""
    import penstock

    with penstock.connect(MEMORY, clock=penstock_clock) as queue:
        yield queue
