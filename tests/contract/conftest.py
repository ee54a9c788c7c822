"""Every test of this folder is a promise of the queue, on every engine."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/contract/"):
            item.add_marker("contract")
