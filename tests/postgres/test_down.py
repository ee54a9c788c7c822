"""A server that cannot be reached: what is told, and what is not hidden by it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from tests.support.postgres import Server

import penstock
from penstock import EngineUnavailable


@pytest.fixture
def server(servers: ExitStack) -> Server:
    return servers.enter_context(Server.start())


def interrupted(server: Server) -> None:
    with penstock.connect(server.url(patience="0.1")):
        server.stop("immediate")
        raise KeyError("mine")


async def interrupted_async(server: Server) -> None:
    async with await penstock.aconnect(server.url(patience="0.1")):
        server.stop("immediate")
        raise KeyError("mine")


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_the_error_of_a_block_is_not_hidden_by_a_queue_that_cannot_be_closed(server, colour):
    with pytest.raises(KeyError) as caught:
        interrupted(server) if colour == "blocking" else asyncio.run(interrupted_async(server))
    assert caught.value.__notes__[0].startswith("penstock: the queue could not be closed: ")


def test_a_block_without_an_error_says_that_the_queue_could_not_be_closed(server):
    q = penstock.connect(server.url(patience="0.1"))
    server.stop("immediate")
    with pytest.raises(EngineUnavailable), q:
        pass
