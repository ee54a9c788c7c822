"""grpc:// URLs: what is not in the contract that every engine fulfils."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid

import grpc
import pytest
from grpc._cython import cygrpc
from tests.support.grpcs import PATIENCE, Client, Feed, limited
from tests.support.postgres import until
from tests.support.reservation import free_port
from tests.support.servers import Running, run

import penstock
from penstock.model import errors, ops
from penstock.server.auth import EVERYTHING
from penstock.server.grpc_engine import EngineStream
from penstock.server.peer import Peer
from penstock.wire import codec, talk
from penstock.wire._generated import penstock_pb2 as pb

FORKING = """
import os, sys, warnings
import penstock
warnings.simplefilter("ignore")
url = sys.argv[1]
queue = penstock.connect(url)
jobs = queue.create_tube("jobs")
child = os.fork()
if child == 0:
    found = []
    for call in (lambda: jobs.put(1), lambda: penstock.connect(url)):
        try:
            call()
        except penstock.UsageError as error:
            found.append("fork" in str(error))
    os._exit(0 if found == [True, True] else 1)
_, ended = os.waitpid(child, 0)
jobs.put("still works")
print(os.waitstatus_to_exitcode(ended), jobs.statistics().tasks["ready"])
queue.close()
"""


def test_a_child_is_refused_clearly_and_the_parent_goes_on(server):
    done = subprocess.run([sys.executable, "-c", FORKING, server.grpc_url], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["0", "1"], done.stderr


def test_nobody_there_is_said_at_once():
    with pytest.raises(errors.EngineUnavailable, match="no server answers"):
        penstock.connect("grpc://127.0.0.1:1", session_ttl=0.1)


def test_what_listens_but_is_no_server_is_said(server):
    with Running("memory:") as other:
        url = other.url.replace("penstock://", "grpc://")
        with pytest.raises(errors.EngineUnavailable, match="does not speak gRPC: that has a port of its own"):
            penstock.connect(url, session_ttl=0.1)


def test_a_server_that_stops_and_comes_back_is_found_again(tmp_path):
    place = str(tmp_path / "tasks.db")
    port = free_port()
    first = Running(place, port=None, grpc_port=port)
    queue = penstock.connect(first.grpc_url, session_ttl=PATIENCE)
    jobs = queue.create_tube("jobs")
    jobs.put_many([1, 2])
    task = jobs.take()
    first.stop()
    with Running(place, port=None, grpc_port=port):
        assert task.ack().state == penstock.State.DONE
        assert jobs.take().data == 2
        queue.close()


def test_big_answers_pass(server):
    with penstock.connect(server.grpc_url) as queue:
        jobs = queue.create_tube("jobs", max_payload=8 << 20)
        text = "x" * (7 << 20)
        jobs.put(text)
        assert jobs.take().data == text


def test_a_client_that_goes_leaves_nothing_behind(server):
    """Nobody waits, no link is kept, and no thread of the server's goes on for it."""
    door = server.server.doors["grpc_port"]
    queue = penstock.connect(server.grpc_url)
    queue.create_tube("jobs")
    assert len(door.desk.links) == 1
    queue.close()
    until(lambda: not door.desk.links, "the link should be gone")


def frames(client, requests):
    """A stream of an engine that says hello and asks for something again and again, under new numbers."""
    hello = codec.pack(talk.Hello(codec.VERSION, str(uuid.uuid4()), None))
    feed = Feed(pb.Frame(number=-1, kind="hello", payload=hello))
    for number in range(1, requests + 1):
        payload = codec.encode_ops([ops.Peek("jobs", 1)])
        feed.send(pb.Frame(number=number, seen=number - 1, kind="do", payload=payload))
    return feed, client.stub.Engine(iter(feed), timeout=PATIENCE)


def test_a_client_that_does_not_read_is_cut_off(caplog):
    with limited(unsent=4 << 20, slow_seconds=0.2) as (_, client):
        client.put("jobs", f'"{"x" * 1_000_000}"')
        _, replies = frames(client, 200)
        until(lambda: "reads too slowly, and was cut off" in caplog.text, "it should be cut off")
        with pytest.raises(grpc.RpcError) as failed:
            list(replies)
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.put("jobs", "2")[0].outcome == pb.OUTCOME_NEW


def test_requests_are_read_as_they_are_answered():
    """No more than the pipeline are taken in at once, and all are answered, in order."""
    with limited(pipeline=3) as (_, client):
        client.put("jobs", "1")
        feed, replies = frames(client, 100)
        assert [next(replies).number for _ in range(101)] == [-1, *range(1, 101)]
        feed.end()
        assert list(replies) == []


def test_frames_that_mean_nothing_hurt_nobody_else(server):
    client, other = Client(server.grpc_url), Client(server.grpc_url)
    for frame in (
        pb.Frame(number=1, kind="do", payload=b"\xc1"),
        pb.Frame(number=1, kind="hello", payload=b"\xc1"),
        pb.Frame(number=-7, kind="odd"),
        pb.Frame(),
    ):
        feed = Feed(frame)
        feed.end()
        (answer,) = client.stub.Engine(iter(feed), timeout=PATIENCE)
        assert answer.failed
        assert isinstance(codec.decode_error(answer.payload), errors.UsageError)
    feed, replies = frames(client, 0)
    assert not next(replies).failed
    for number, payload in enumerate((b"", b"\xc1", b"\x91\x92\xff", b"\x00" * 1000), 1):
        feed.send(pb.Frame(number=number, kind="do", payload=payload))
        assert next(replies).failed
    other.create("jobs")
    client.close()
    other.close()


class Gone:
    """What a stream sees that goes on for a moment after its client, or the server, has gone."""

    def __init__(self, reading, writing):
        self._reading, self._writing = reading, writing

    async def requests(self):
        yield pb.Frame(number=1, kind="nothing")
        await asyncio.sleep(0)  # the answer is written now
        if self._reading is not None:
            raise self._reading

    def peer(self):
        return "ipv4:127.0.0.1:1"

    async def send_initial_metadata(self, metadata):
        pass

    async def write(self, message):
        if self._writing is not None:
            raise self._writing


@pytest.mark.parametrize(
    ("reading", "writing", "errors"),
    [
        (None, cygrpc.ExecuteBatchError("Failed grpc_call_start_batch: 1"), 0),
        (cygrpc._ServerStoppedError("Server already stopped."), None, 0),
        (ValueError("a fault"), None, 1),
    ],
    ids=["gone", "stopped", "fault"],
)
def test_a_client_or_server_that_goes_before_an_answer_is_no_error(server, caplog, reading, writing, errors):
    desk, context = server.server.doors["grpc_port"].desk, Gone(reading, writing)
    run(EngineStream(desk)._serve(Peer("here", EVERYTHING), context.requests(), context))
    assert [record.levelname for record in caplog.records].count("ERROR") == errors
