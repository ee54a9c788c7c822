"""Sessions of gRPC: their stream is the connection."""

from __future__ import annotations

import threading

import grpc
import pytest
from tests.support.grpcs import FOR_EVER, GOING, PATIENCE, Client, Feed, Stream, lease
from tests.support.postgres import until
from tests.support.servers import Running, run

import penstock
from penstock.model import errors
from penstock.server import grpc_calls, grpc_streams
from penstock.server.settings import Limits
from penstock.wire import status
from penstock.wire._generated import penstock_pb2 as pb

SECOND = 1_000_000


@pytest.fixture
def client(grpc_client):
    grpc_client.create("jobs")
    return grpc_client


@pytest.fixture
def other(server):
    with Client(server.grpc_url) as made:
        made.open()
        yield made


def refused(call, *args, **named):
    with pytest.raises(grpc.RpcError) as failed:
        call(*args, **named)
    return status.error_of(failed.value)


def test_a_stream_that_ends_gives_tasks_back(client, other):
    session = client.open()
    client.put("jobs", "1")
    assert len(client.take("jobs")) == 1
    assert other.take("jobs") == []
    session.close()
    (task,) = other.take("jobs", timeout_us=PATIENCE * SECOND)
    assert task.attempt == 2


def test_a_stream_that_is_cut_gives_tasks_back(client, other):
    client.open()
    client.put("jobs", "1")
    client.take("jobs")
    client.channel.close()
    assert len(other.take("jobs", timeout_us=PATIENCE * SECOND)) == 1


def test_a_session_is_resumed_by_its_uuid(client, other):
    session = client.open(session_ttl_us=PATIENCE * SECOND)
    assert (session.opened.session_ttl_us, session.opened.resumed) == (PATIENCE * SECOND, False)
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    session.close()
    assert other.take("jobs") == []
    again = client.open(uuid=session.opened.uuid)
    assert (again.opened.uuid, again.opened.resumed) == (session.opened.uuid, True)
    assert client.ack("jobs", task).done == 1


def test_a_session_ends_some_time_after_its_stream(client, other):
    session = client.open(session_ttl_us=SECOND // 5)
    client.put("jobs", "1")
    client.take("jobs")
    session.close()
    assert len(other.take("jobs", timeout_us=PATIENCE * SECOND)) == 1
    error = refused(client.open, uuid=session.opened.uuid)
    assert isinstance(error, errors.SessionExpired)


def test_two_streams_may_share_a_session(client, other):
    first = client.open()
    second = Stream(client.stub, uuid=first.opened.uuid)
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    first.close()
    assert other.take("jobs") == []
    assert client.ack("jobs", task).done == 1
    second.close()


def test_a_keepalive_tells_which_tasks_shall_stop(client):
    session = client.open()
    client.put("jobs", "1", "2")
    one, _ = client.take("jobs", 2)
    assert session.keep_alive() == []
    client.call("Cancel", pb.CancelRequest(tube="jobs", id=one.id))
    assert session.keep_alive() == [one.token]


def test_a_silent_client_loses_its_session(client, other, monkeypatch):
    session = client.open(silence_us=600 * SECOND)
    client.put("jobs", "1")
    client.take("jobs")
    monkeypatch.setattr(grpc_streams, "SECOND", 6000 * SECOND)  # it is over soon after the next sign of life
    assert session.keep_alive() == []
    with pytest.raises(grpc.RpcError) as failed:
        next(session.replies)
    assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert len(other.take("jobs", timeout_us=PATIENCE * SECOND)) == 1


def test_verbs_that_hold_tasks_need_a_session(client):
    client.put("jobs", "1")
    assert isinstance(refused(client.take, "jobs"), errors.UsageError)
    unknown = (("penstock-session", "11111111-1111-4111-8111-111111111111"),)
    asked = pb.TakeRequest(tube="jobs")
    assert isinstance(refused(client.call, "Take", asked, metadata=unknown), errors.SessionExpired)
    wrong = (("penstock-session", "mine"),)
    assert isinstance(refused(client.call, "Take", asked, metadata=wrong), errors.UsageError)


def test_a_stream_begins_with_open_and_once(client):
    feed = iter([pb.SessionRequest(keep_alive=pb.SessionRequest.KeepAlive())])
    assert isinstance(refused(next, client.stub.Session(feed)), errors.UsageError)
    session = client.open()
    session.feed.send(pb.SessionRequest(open=pb.SessionRequest.Open()))
    assert isinstance(refused(next, session.replies), errors.UsageError)


def test_another_session_cannot_finish_a_task(client, other):
    client.open(name="ann")
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    error = refused(other.call, "Release", pb.ReleaseRequest(tube="jobs", lease=pb.Lease(id=task.id)))
    assert isinstance(error, errors.NotOwner)
    assert error.owner == "ann"
    assert isinstance(
        refused(other.call, "Release", pb.ReleaseRequest(tube="jobs", lease=lease(task))), errors.LeaseLost
    )


def test_a_take_that_waits_ends_with_its_session(server, client):
    session = client.open()
    waiting = client.waiting("jobs")
    wait_for_takers(server, 1)
    session.close()
    assert isinstance(refused(waiting.result), errors.SessionExpired)
    client.put("jobs", "1")
    client.open()
    assert client.take("jobs")[0].attempt == 1


def test_a_session_is_the_same_however_its_uuid_is_written(server, client):
    session = client.open()
    named = (("penstock-session", session.opened.uuid.upper()),)
    waiting = client.waiting("jobs", named)
    wait_for_takers(server, 1)
    session.close()
    assert isinstance(refused(waiting.result), errors.SessionExpired)


def test_a_cancelled_take_takes_nothing(server, client):
    client.open()
    waiting = client.waiting("jobs")
    wait_for_takers(server, 1)
    waiting.cancel()
    wait_for_takers(server, 0)
    client.put("jobs", "1")
    assert client.take("jobs")[0].attempt == 1


def test_a_take_answers_before_its_deadline(client, monkeypatch):
    within, found = grpc_calls.Call.within, []

    def looked(call, timeout):
        found.append((call.context.time_remaining(), within(call, timeout)))
        return 0.05

    monkeypatch.setattr(grpc_calls.Call, "within", looked)
    client.open()
    asked = pb.TakeRequest(tube="jobs", timeout_us=FOR_EVER)
    assert list(client.call("Take", asked).tasks) == []
    [(left, seconds)] = found
    assert 0 <= seconds <= left - 1, "a second before that"


def test_a_take_ends_with_its_timeout(client):
    client.open()
    assert client.take("jobs", timeout_us=SECOND // 20) == []


def test_a_take_is_served_by_a_put(client, other):
    other.create("mail")
    client.open()
    waiting = client.waiting("mail")
    other.put("mail", '"hello"')
    assert waiting.result().tasks[0].json == '"hello"'


def test_a_drained_tube_says_so(client):
    client.open()
    asked = pb.TakeRequest(tube="jobs", timeout_us=FOR_EVER, drain=True)
    assert client.call("Take", asked).drained
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    waiting = client.stub.Take.future(asked, metadata=client.session.metadata, timeout=PATIENCE)
    client.ack("jobs", task)
    assert waiting.result().drained


def test_calls_of_a_session_may_go_to_another_server_of_the_store(tmp_path):
    place = str(tmp_path / "tasks.db")
    with Running(place, port=None, grpc_port=0) as one, Running(place, port=None, grpc_port=0) as two:
        here, there = Client(one.grpc_url), Client(two.grpc_url)
        here.create("jobs")
        here.open()
        there.session = here.session
        there.put("jobs", "1")
        (task,) = there.take("jobs")
        assert here.ack("jobs", task).done == 1
        here.close()
        there.close()


def test_leases_outlive_a_restart_of_the_server(tmp_path):
    place = str(tmp_path / "tasks.db")
    with Running(place, port=None, grpc_port=0) as one:
        here = Client(one.grpc_url)
        here.create("jobs")
        session = here.open(session_ttl_us=PATIENCE * SECOND)
        here.put("jobs", "1")
        (task,) = here.take("jobs")
    with pytest.raises(grpc.RpcError) as failed:
        next(session.replies)
    assert isinstance(status.error_of(failed.value), errors.EngineUnavailable)
    here.close()
    with Running(place, port=None, grpc_port=0) as two:
        there = Client(two.grpc_url)
        there.open(uuid=session.opened.uuid)
        assert there.ack("jobs", task).done == 1
        there.close()


def test_a_server_that_retires_leaves_time_to_go_over(tmp_path, monkeypatch):
    """The client is told, and resumes the session at the process that listens now: no lease is lost."""
    monkeypatch.setattr(grpc_streams, "KEPT_TTL", PATIENCE * SECOND)
    place = str(tmp_path / "tasks.db")
    one = Running(place, port=None, grpc_port=0, drain_seconds=GOING)
    here = Client(one.grpc_url)
    here.create("jobs")
    session = here.open()
    here.put("jobs", "1")
    (task,) = here.take("jobs")
    run(one.server.retire())
    with pytest.raises(grpc.RpcError) as failed:
        next(session.replies)
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    with Running(place, port=None, grpc_port=0) as two:
        there = Client(two.grpc_url)
        there.open(uuid=session.opened.uuid)
        assert there.ack("jobs", task).done == 1
        there.close()
    here.close()
    one.stop()


def test_connections_are_counted(server, client):
    door, tally = server.server.doors["grpc_port"], server.server.core.tally
    assert (len(door.connections), tally.accepted) == (0, 0)
    session = client.open()
    with penstock.connect(server.grpc_url):
        assert (len(door.connections), tally.accepted) == (2, 2)
    session.close()
    until(lambda: not door.connections, "nobody should be connected")


def test_only_so_many_clients_are_let_in():
    with (
        Running("memory:", port=None, grpc_port=0, limits=Limits(connections=2)) as server,
        Client(server.grpc_url) as client,
    ):
        client.open()
        second = Stream(client.stub)
        error = refused(client.open)
        assert isinstance(error, errors.EngineUnavailable)
        second.close()
        until(lambda: len(server.server.doors["grpc_port"].connections) == 1, "one should have gone")
        client.open()


def test_a_server_that_stops_ends_what_waits():
    server = Running("memory:", port=None, grpc_port=0)
    client = Client(server.grpc_url)
    client.create("jobs")
    client.open()
    waiting = client.waiting("jobs")
    wait_for_takers(server, 1)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    error = refused(waiting.result)
    stopping.join()
    assert isinstance(error, errors.EngineUnavailable)
    assert error.outcome == "not_done"
    client.close()


def test_a_stream_that_has_not_opened_its_session_hears_that_the_server_stops(server, client):
    replies = client.stub.Session(iter(Feed()))
    client.call("ListTubes", pb.ListTubesRequest())  # on the same connection, so the stream has arrived
    server.stop()
    error = refused(next, replies)
    assert isinstance(error, errors.EngineUnavailable)
    assert error.outcome == "not_done", error


def test_a_stream_that_does_not_open_its_session_is_ended():
    with (
        Running("memory:", port=None, grpc_port=0, limits=Limits(login_seconds=0.1)) as server,
        Client(server.grpc_url) as client,
    ):
        assert isinstance(refused(next, client.stub.Session(iter(Feed()), timeout=PATIENCE)), errors.UsageError)
        until(lambda: not server.server.doors["grpc_port"].connections, "it should be gone")


@pytest.mark.parametrize("kind", ["silent", "of one session"])
def test_streams_count_as_clients_whatever_their_session(kind):
    with (
        Running("memory:", port=None, grpc_port=0, limits=Limits(connections=2)) as server,
        Client(server.grpc_url) as client,
    ):
        uuid = client.open().opened.uuid
        door = server.server.doors["grpc_port"]
        if kind == "silent":
            second = client.stub.Session(iter(Feed()))
            until(lambda: len(door.connections) == 2, "two should be there")
        else:
            second = Stream(client.stub, uuid=uuid).replies
        assert isinstance(refused(Stream, client.stub, uuid=uuid), errors.EngineUnavailable)
        second.cancel()
        until(lambda: len(door.connections) == 1, "one should have gone")
        Stream(client.stub, uuid=uuid)


@pytest.mark.parametrize("ttl", [101 * 365 * 86400 * SECOND, 2**63 - 1])
def test_a_session_may_be_asked_to_live_for_ever_where_that_is_allowed(ttl):
    limits = Limits(session_seconds=float("inf"))
    with (
        Running("memory:", port=None, grpc_port=0, limits=limits) as server,
        Client(server.grpc_url) as client,
    ):
        client.create("jobs")
        client.put("jobs", "1")
        session = client.open(session_ttl_us=ttl)
        assert 0 < session.opened.session_ttl_us < ttl
        (task,) = client.take("jobs")
        session.close()
        client.open(uuid=session.opened.uuid, session_ttl_us=0)
        assert client.ack("jobs", task).done == 1


def test_a_silence_of_nothing_is_none(client):
    session = client.open(silence_us=0)
    assert session.keep_alive() == []


def wait_for_takers(server, number):
    store = server.server.core.engine.store
    until(lambda: store.waiters == number, f"{number} takes should wait")
