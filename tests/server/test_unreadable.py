"""Names and data that are no text: whoever sent them is answered, and so are the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.raw import Raw, call
from tests.support.servers import Running, run

from penstock.model import ops
from penstock.model.task import Draft

ODD = "\udcff"


@pytest.fixture
def server() -> Iterator[Running]:
    with Running("memory:") as running:
        yield running


def test_a_refusal_may_quote_what_is_no_text(server: Running) -> None:
    with Raw(server.server.port()) as raw:
        answer = raw.ask(call(1, "queue.create_tube", "mail", ODD))
        assert answer.error is not None and "\\udcff" in answer.text
        assert raw.ask(call(1, f"nothing{ODD}")).error is not None
        raw.call("queue.create_tube", "mail", "fifo")


def test_data_that_is_no_json_is_shown_as_it_is(server: Running) -> None:
    with Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        run(server.server.core.execute(ops.Put("mail", (Draft("{"),))))
        [[task, _, data]] = raw.call("queue.tube.mail:peek", 1)
        assert (task, data) == (1, "{")
        assert raw.call("queue.tube.mail:take", 0) == [[1, "t", "{"]]
        assert raw.call("queue.tube.mail:ack", 1) == [[1, "-", "{"]]
