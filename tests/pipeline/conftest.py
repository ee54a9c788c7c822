"""What the stores of Spark's processes leave open in this one is closed after every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.spark import stores


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    stores.close_all()
