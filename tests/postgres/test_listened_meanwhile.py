"""Changes of a tube are told also while its definition is read anew."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support import postgres
from tests.support.watching import Events

import penstock
from penstock.engines.postgres import tubes
from penstock.engines.postgres.work import Work


def test_a_take_while_the_statistics_of_its_tube_are_read_is_told(warm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.connect(warm, durability="relaxed") as q:
        jobs = q.create_tube("jobs")
        events = Events(jobs)
        jobs.put(1)
        inside, go_on = threading.Event(), threading.Event()
        existing, rows = tubes.existing, Work.rows
        reader = threading.Thread(target=jobs.statistics, daemon=True)

        def read(*args: Any) -> Any:
            inside.set()
            assert go_on.wait(postgres.PATIENCE)
            return existing(*args)

        def asked(work: Work, sql: str, params: Any) -> Any:
            """The definition is read from here on, with the answer to the take at hand."""
            found = rows(work, sql, params)
            if ".take" in sql and not inside.is_set():
                monkeypatch.setattr(tubes, "existing", read)
                reader.start()
                assert inside.wait(postgres.PATIENCE)
            return found

        monkeypatch.setattr(Work, "rows", asked)
        assert jobs.take() is not None
        go_on.set()
        reader.join(postgres.PATIENCE)
        assert inside.is_set() and events.names == ["put", "take"]
