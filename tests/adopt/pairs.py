"""The engines that have tables, and which of them a test is for in every run."""

from __future__ import annotations

import pytest
from tests.support.engines import COLOURS, ENGINES, parameters

PAIRS = [(engine, colour) for engine in ENGINES if engine.durable for colour in COLOURS]
sqlite_in_every_run = pytest.mark.parametrize("bench", parameters(PAIRS, ["sqlite-blocking"]), indirect=True)
"""For what is decided before an engine's own code, or by code of PostgreSQL that other tests here lead through too."""
