"""Replies to the longest batches: clients of gRPC refuse more than 4 MiB, and would not learn what was done."""

from __future__ import annotations

import grpc
import pytest
from tests.support.grpcs import number

from penstock.calls import MAX_BATCH
from penstock.model import errors
from penstock.server import grpc_reply, grpc_verbs
from penstock.wire import status
from penstock.wire._generated import penstock_pb2 as pb

ACCEPTED = 4 * 1024 * 1024
LONG = "x" * 255
BIG = 1 << 62


@pytest.fixture
def server(one_server):
    return one_server


SCALE = 100
MANY = MAX_BATCH // SCALE


@pytest.fixture
def client(grpc_client, monkeypatch):
    """Of a server whose replies, and batches, are a hundredth of what they may be, which takes less time."""
    monkeypatch.setattr(grpc_reply, "MAX_REPLY", grpc_reply.MAX_REPLY // SCALE)
    monkeypatch.setattr(grpc_verbs, "MAX_UUIDS", grpc_verbs.MAX_UUIDS // SCALE)
    grpc_client.open()
    yield grpc_client
    grpc_client.call("DropTube", pb.DropTubeRequest(tube="jobs", force=True))


def put(client, *drafts):
    reply = client.call("Put", pb.PutRequest(tube="jobs", drafts=drafts))
    assert reply.ByteSize() <= ACCEPTED // SCALE
    return reply.results


def test_a_put_of_which_most_is_refused_says_so_for_each(client):
    client.create("jobs", capacity=10)
    results = put(client, *[pb.Draft(json="0")] * MANY)
    assert [result.id.number for result in results[:10]] == list(range(1, 11))
    assert {result.error.code for result in results[10:]} == {"tube_full"}
    assert "capacity" in results[10].error.message
    assert results[-1].error.message == ""


def test_an_ack_of_which_all_is_refused_says_so_for_each(client):
    client.create("jobs")
    items = [pb.AckRequest.Finish(id=number(BIG + index), token=BIG) for index in range(MANY)]
    reply = client.call("Ack", pb.AckRequest(tube="jobs", items=items))
    assert reply.ByteSize() <= ACCEPTED // SCALE
    assert reply.done == 0
    assert [refused.index for refused in reply.refused] == list(range(MANY))
    assert {refused.error.code for refused in reply.refused} == {"lease_lost"}
    assert str(BIG) in reply.refused[0].error.message


def test_a_put_with_long_ids_says_what_became_of_each(client):
    """The caller has the ids already."""
    client.create("jobs", id="required")
    drafts = [pb.Draft(json="0", id=pb.Id(text=f"{index:0>200}")) for index in range(30_000 // SCALE)]
    results = put(client, *drafts)
    assert len(results) == len(drafts)
    assert {result.outcome for result in results} == {pb.OUTCOME_NEW}
    assert results[0].id == drafts[0].id
    assert not results[-1].HasField("id")


def test_more_new_ids_than_a_reply_can_have_are_refused_before_anything_is_put(client):
    client.create("jobs", id="uuid")
    with pytest.raises(grpc.RpcError) as refused:
        put(client, *[pb.Draft(json="0")] * (grpc_verbs.MAX_UUIDS + 1))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "put them in parts" in refused.value.details()
    assert client.take("jobs") == []
    assert len(put(client, *[pb.Draft(json="0")] * grpc_verbs.MAX_UUIDS)) == grpc_verbs.MAX_UUIDS


@pytest.mark.parametrize("cls", errors.ALL, ids=lambda cls: cls.code)
def test_the_shortest_form_of_a_refusal_has_its_room(cls):
    error = pb.Error(code=cls.code)
    assert pb.PutReply(results=[pb.PutResult(error=error)]).ByteSize() <= grpc_reply.SHORT
    refused = pb.AckReply.Refused(index=MAX_BATCH, error=error)
    assert pb.AckReply(refused=[refused], done=MAX_BATCH).ByteSize() <= grpc_reply.SHORT
    placed = pb.PutResult(id=number(BIG), outcome=pb.OUTCOME_REPLACED, state=pb.STATE_DONE)
    assert pb.PutReply(results=[placed]).ByteSize() <= grpc_reply.SHORT


@pytest.mark.parametrize("scale", [SCALE, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_refusals_are_whole_as_long_as_there_is_room(scale, monkeypatch):
    monkeypatch.setattr(grpc_reply, "MAX_REPLY", grpc_reply.MAX_REPLY // scale)
    count = MAX_BATCH // scale
    room = grpc_reply.Room(count)
    reply = pb.PutReply()
    for _ in range(count):
        reply.results.add(error=room.error(errors.NotOwner(LONG, LONG)))
    assert reply.ByteSize() <= ACCEPTED // scale
    assert reply.results[0].error == status.message(errors.NotOwner(LONG, LONG))
    assert reply.results[-1].error == pb.Error(code="not_owner")


def test_the_longest_page_of_lanes_fits():
    limits = pb.LaneLimits(concurrency=BIG, rate=0.5, burst=BIG, paused=True)
    lane = pb.LanesReply.Lane(name=LONG, ready=BIG, taken=BIG, limits=limits, next_at_us=BIG)
    reply = pb.LanesReply(lanes=[lane] * grpc_verbs.MAX_PAGE)
    assert reply.ByteSize() <= ACCEPTED
