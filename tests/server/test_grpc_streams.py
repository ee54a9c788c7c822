"""Tasks as they come: credit, receipts, and what becomes of tasks that nobody has read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.support.grpcs import GOING, PATIENCE, Client, Feed
from tests.support.postgres import until
from tests.support.servers import Running, run

from penstock.model import errors
from penstock.server import grpc_streams
from penstock.wire import status
from penstock.wire._generated import penstock_pb2 as pb

SECOND = 1_000_000


@pytest.fixture
def client(grpc_client):
    grpc_client.create("jobs")
    grpc_client.open()
    return grpc_client


class Taking:
    """One TakeStream."""

    def __init__(self, client, **first):
        self.feed = Feed(pb.TakeDemand(tube="jobs", **first))
        self.replies = client.stub.TakeStream(
            iter(self.feed), metadata=client.session.metadata if client.session else (), timeout=PATIENCE
        )

    def demand(self, **fields):
        self.feed.send(pb.TakeDemand(**fields))

    def next(self):
        return next(self.replies)


def counts(client):
    tasks = client.call("Statistics", pb.StatisticsRequest(tube="jobs")).tubes["jobs"].tasks
    return tasks["ready"], tasks["taken"]


def ended(taking):
    assert [(reply.ended, len(reply.tasks)) for reply in taking.replies] == [(True, 0)]


def settled(client, ready, taken):
    until(lambda: counts(client) == (ready, taken), f"{ready} tasks should be ready and {taken} taken")


def test_no_more_is_taken_than_there_is_credit_for(client):
    client.put("jobs", *map(str, range(10)))
    taking = Taking(client, credit=3)
    assert [task.json for task in taking.next().tasks] == ["0", "1", "2"]
    assert counts(client) == (7, 3)
    taking.demand(credit=2, read=1)
    reply = taking.next()
    assert (reply.number, [task.json for task in reply.tasks]) == (2, ["3", "4"])
    assert counts(client) == (5, 5)
    taking.feed.end()
    ended(taking)


def test_a_reply_has_at_most_so_many_tasks(client):
    client.put("jobs", *map(str, range(5)))
    taking = Taking(client, credit=5, most=2)
    assert [len(taking.next().tasks) for _ in range(3)] == [2, 2, 1]
    taking.feed.end()


def test_tasks_are_sent_as_they_are_put(server, client):
    taking = Taking(client, credit=10)
    until(lambda: server.server.core.engine.store.waiters == 1, "the stream should wait")
    client.put("jobs", "1")
    assert [task.json for task in taking.next().tasks] == ["1"]
    client.put("jobs", "2")
    assert [task.json for task in taking.next().tasks] == ["2"]
    taking.feed.end()
    ended(taking)


def test_a_cancelled_stream_gives_back_what_was_not_read(server, client):
    client.put("jobs", *map(str, range(6)))
    taking = Taking(client, credit=6, most=2)
    first, second, third = (taking.next() for _ in range(3))
    taking.demand(read=second.number)
    assert third.number == 3
    assert client.ack("jobs", *first.tasks).done == 2
    settled(client, 0, 4)
    taking.demand(credit=1)
    until(lambda: server.server.core.engine.store.waiters == 1, "the receipt should have arrived, and then the credit")
    taking.replies.cancel()
    settled(client, 2, 2)
    assert client.ack("jobs", *second.tasks).done == 2
    assert [task.attempt for task in client.take("jobs", 10)] == [1, 1], "their attempt did not count"


def test_a_stream_that_is_cut_gives_back_what_was_not_read(server, client):
    client.put("jobs", "1")
    other = Client(server.grpc_url)
    other.session = client.session
    taking = Taking(other, credit=5)
    taking.next()
    settled(client, 0, 1)
    other.channel.close()
    settled(client, 1, 0)


def test_a_session_that_ends_gives_back_unused_what_was_not_read(server, client):
    client.put("jobs", "1", "2")
    with Client(server.grpc_url) as other:
        other.open()
        taking = Taking(other, credit=5)
        assert len(taking.next().tasks) == 2
        other.session.feed.end()
        settled(client, 2, 0)
        with pytest.raises(grpc.RpcError) as caught:
            taking.next()
        assert isinstance(status.error_of(caught.value), errors.SessionExpired)
    assert [task.attempt for task in client.take("jobs", 5)] == [1, 1]


def test_of_a_client_that_never_says_read_not_everything_is_remembered(client, monkeypatch):
    monkeypatch.setattr(grpc_streams, "UNREAD", 3)
    client.put("jobs", *map(str, range(6)))
    taking = Taking(client, credit=6, most=2)
    for _ in range(3):
        taking.next()
    taking.replies.cancel()
    settled(client, 2, 4)


def test_a_stream_that_ends_well_gives_nothing_back(server, client):
    client.put("jobs", "1", "2")
    taking = Taking(client, credit=5)
    (reply,) = [taking.next()]
    taking.feed.end()
    ended(taking)
    until(lambda: server.server.core.engine.store.waiters == 0, "nobody should wait")
    assert counts(client) == (0, 2)
    assert client.ack("jobs", *reply.tasks).done == 2


def test_a_drained_tube_ends_the_stream(client):
    client.put("jobs", "1")
    taking = Taking(client, credit=5, drain=True)
    reply = taking.next()
    client.ack("jobs", *reply.tasks)
    assert [(reply.drained, len(reply.tasks)) for reply in taking.replies] == [(True, 0)]


def test_the_end_of_the_session_ends_its_streams(client):
    taking = Taking(client, credit=1)
    client.put("jobs", "1")
    taking.next()
    taking.demand(credit=1)
    client.session.close()
    assert isinstance(refused(taking.next), errors.SessionExpired)


def test_wrong_demands_are_refused(client):
    taking = Taking(client, credit=1)
    taking.demand(read=7)
    assert isinstance(refused(taking.next), errors.UsageError)
    assert isinstance(refused(Taking(client, credit=-1).next), errors.UsageError)
    assert isinstance(refused(Taking(client, most=-1).next), errors.UsageError)
    client.call("DropTube", pb.DropTubeRequest(tube="jobs", force=True))
    assert isinstance(refused(Taking(client, credit=1).next), errors.TubeNotFound)
    client.session = None
    assert isinstance(refused(Taking(client, credit=1).next), errors.UsageError)


def test_streams_beside_each_other_share_the_tasks(client):
    number, streams = 400, 8
    client.put("jobs", *map(str, range(number)))

    def work(_):
        found = []
        taking = Taking(client, credit=10, most=10, drain=True)
        for reply in taking.replies:
            found += [task.json for task in reply.tasks]
            if reply.tasks:
                client.ack("jobs", *reply.tasks)
                taking.demand(credit=len(reply.tasks), read=reply.number)
        return found

    with ThreadPoolExecutor(streams) as pool:
        found = [text for part in pool.map(work, range(streams)) for text in part]
    assert sorted(map(int, found)) == list(range(number))
    assert counts(client) == (0, 0)


def test_acks_are_answered_while_many_takes_wait(server, client):
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    waiting = [client.waiting("jobs") for _ in range(100)]
    until(lambda: server.server.core.engine.store.waiters == 100, "all should wait")
    assert client.ack("jobs", task).done == 1
    assert client.session.keep_alive() == []
    for call in waiting:
        call.cancel()
    until(lambda: server.server.core.engine.store.waiters == 0, "nobody should wait")


def retire(server):
    run(server.server.retire())


def gone_over(tmp_path, leave, **opened):
    """A stream has sent tasks, nobody has said `read`, and its server goes: where, in which session, which tasks."""
    place = str(tmp_path / "tasks.db")
    one = Running(place, port=None, grpc_port=0, drain_seconds=GOING if leave is retire else 30.0)
    here = Client(one.grpc_url)
    here.create("jobs")
    here.put("jobs", "1", "2")
    session = here.open(**opened)
    taking = Taking(here, credit=5)
    tasks = taking.next().tasks
    leave(one)
    try:
        last = [reply.ended for reply in taking.replies]
    except grpc.RpcError as error:
        last = status.error_of(error)
    here.close()
    return place, one, session.opened.uuid, tasks, last


def test_tasks_that_were_sent_stay_with_the_session_when_another_process_takes_over(tmp_path, monkeypatch):
    """The session is resumed there; whether the client has said `read` by then is a matter of luck."""
    monkeypatch.setattr(grpc_streams, "KEPT_TTL", PATIENCE * SECOND)
    place, one, uuid, tasks, last = gone_over(tmp_path, retire)
    assert last == [True]
    with Running(place, port=None, grpc_port=0) as two:
        there = Client(two.grpc_url)
        there.open(uuid=uuid)
        assert there.ack("jobs", *tasks).done == 2
        there.close()
    one.stop()


def test_tasks_that_were_sent_stay_with_a_session_that_outlives_its_server(tmp_path):
    place, _, uuid, tasks, _ = gone_over(tmp_path, Running.stop, session_ttl_us=PATIENCE * SECOND)
    with Running(place, port=None, grpc_port=0) as two:
        there = Client(two.grpc_url)
        there.open(uuid=uuid)
        assert there.ack("jobs", *tasks).done == 2
        there.close()


def test_tasks_that_were_not_read_come_back_with_the_end_of_the_session_and_the_server(tmp_path):
    place, *_ = gone_over(tmp_path, Running.stop)
    with Running(place, port=None, grpc_port=0) as two:
        there = Client(two.grpc_url)
        there.open()
        assert [task.attempt for task in there.take("jobs", 5, timeout_us=PATIENCE * SECOND)] == [1, 1]
        there.close()


def test_the_last_reply_of_a_server_that_goes_says_that_the_tasks_are_the_clients(tmp_path):
    one = Running(str(tmp_path / "tasks.db"), port=None, grpc_port=0, drain_seconds=GOING)
    here = Client(one.grpc_url)
    here.create("jobs")
    here.open()
    taking = Taking(here, credit=5)
    until(lambda: one.server.core.engine.store.waiters == 1, "the stream should wait")
    run(one.server.retire())
    reply = taking.next()
    assert (reply.ended, reply.drained, list(reply.tasks)) == (True, False, [])
    assert list(taking.replies) == []
    here.close()
    one.stop()


@pytest.mark.parametrize("first", [[], [pb.TakeDemand(tube="jobs")]], ids=["silent", "without credit"])
def test_streams_that_do_not_take_hear_that_the_server_stops(server, client, first):
    """In words, that is: a stream that does not hear it is cut off in the end."""
    feed = Feed(*first)
    replies = client.stub.TakeStream(iter(feed), metadata=client.session.metadata, timeout=PATIENCE)
    client.call("ListTubes", pb.ListTubesRequest())  # on the same connection, so the stream has arrived
    server.stop()
    error = refused(lambda: list(replies))
    assert isinstance(error, errors.EngineUnavailable)
    assert error.outcome == "not_done", error


def refused(call):
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return status.error_of(failed.value)
