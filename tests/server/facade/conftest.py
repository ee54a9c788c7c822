"""The functions of tarantool/queue over the wire, by the connector that its users have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.clients import Client
from tests.server.facade.kinds import KINDS
from tests.support.servers import Running

from penstock.testing import ManualClock


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.exhaustive)])
def server(request: Any, tmp_path: Path, clock: ManualClock) -> Iterator[Running]:
    with Running("memory:" if request.param == "memory" else str(tmp_path / "tasks.db"), clock) as running:
        yield running


@pytest.fixture
def client(connect: Any) -> Client:
    made: Client = connect()
    for kind in KINDS:
        made.call("queue.create_tube", kind, kind)
    return made
