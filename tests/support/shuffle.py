"""A pytest plugin: `--shuffle=SEED` runs the tests in a random order, the same one for the same seed."""

from __future__ import annotations

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in a random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("shuffle")) is not None:
        random.Random(seed).shuffle(items)
