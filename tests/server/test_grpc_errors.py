"""Errors over gRPC: status, stable code, attributes; logins, TLS, health and limits."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.grpcs import PATIENCE, Client, Stream, limited, number
from tests.support.postgres import until
from tests.support.servers import Running

import penstock
from penstock.model import errors, state, tube
from penstock.server import grpc_health, logins
from penstock.server.auth import new_token
from penstock.wire import messages, status
from penstock.wire._generated import penstock_pb2 as pb

PROTO = Path(penstock.__file__).parent / "wire" / "penstock.proto"


@pytest.fixture
def server(one_server):
    return one_server


@pytest.fixture
def client(grpc_client):
    return grpc_client


def refused(call, *args, **named):
    with pytest.raises(grpc.RpcError) as failed:
        call(*args, **named)
    return failed.value


def made(cls):
    """An error of a class, with all its attributes."""
    more = {
        errors.EngineUnavailable: ("unknown",),
        errors.NotOwner: ("ann",),
        errors.LeaseLost: ("taken",),
        errors.BatchError: ([None, errors.NotOwner("no", "bob"), None],),
    }
    return cls(f"the text of {cls.code}", *more.get(cls, ()))


@pytest.mark.parametrize("cls", [*errors.ALL, errors.PenstockError], ids=lambda cls: cls.code)
def test_every_error_comes_back_as_it_was(cls):
    error = made(cls)
    code, text, trailing = status.trailer(error)
    assert code is status.STATUS.get(cls, grpc.StatusCode.UNKNOWN)
    assert text == str(error)
    assert dict(trailing)["penstock-code"] == cls.code
    back = status.error(pb.Error.FromString(dict(trailing)["penstock-error-bin"]))
    assert type(back) is cls
    assert str(back) == str(error)
    for name in ("outcome", "owner", "now"):
        assert getattr(back, name, None) == getattr(error, name, None)
    if cls is errors.BatchError:
        assert [type(result) for result in back.results] == [type(None), errors.NotOwner, type(None)]
        assert back.results[1].owner == "bob"


def test_the_specification_lists_every_code_with_its_status():
    listed = re.findall(r"^//     ([a-z_]+) +([A-Z_]+)\b", PROTO.read_text(), re.M)
    assert listed == [(cls.code, status.STATUS[cls].name) for cls in errors.ALL]


def test_the_specification_lists_every_name():
    """Other languages have the file and nothing else."""
    names = re.search(r"^// Names$(.*?)^//$", PROTO.read_text(), re.M | re.S)[1]
    words, kind = {}, ""
    for key, line in re.findall(r"^//     (\w*) +(.*)$", names, re.M):
        kind = key or kind
        words.setdefault(kind, set()).update(line.rpartition(":")[2].split())
    assert words == {"kind": {*tube.KINDS}, "reason": {*state.Reason}, "event": {*state.Event}}


def test_the_task_of_a_failure_comes_along():
    with penstock.connect("memory:") as queue:
        task = queue.create_tube("jobs").put({"a": 1})
        error = status.error(status.message(errors.TaskFailed("it failed", task)))
    assert error.task == messages.task(task._record)
    assert status.error(status.message(errors.TaskFailed("it is gone"))).task is None


def test_what_does_not_fit_into_metadata_is_left_out():
    results = [errors.UsageError("x" * 5000) for _ in range(50)]
    _, text, trailing = status.trailer(errors.BatchError("y" * 5000, results))
    assert len(text) == status.MAX_TEXT
    assert sum(len(value) for _, value in trailing) < 4096


def test_an_error_that_is_not_ours_is_no_answer(client):
    client.close()
    gone = Client("grpc://127.0.0.1:1")
    failed = refused(gone.stub.ListTubes, pb.ListTubesRequest(), timeout=PATIENCE)
    error = status.error_of(failed)
    assert isinstance(error, errors.EngineUnavailable)
    assert error.outcome == "unknown"
    gone.close()


def test_refusals_of_calls(client):
    client.open()
    client.create("errors")
    client.put("errors", "1")
    cases = [
        ("GetTube", pb.TubeName(tube="nowhere"), errors.TubeNotFound),
        ("GetTube", pb.TubeName(tube="no name"), errors.UsageError),
        ("CreateTube", pb.CreateTubeRequest(name="errors"), errors.TubeExists),
        ("CreateTube", pb.CreateTubeRequest(name="x", kind="odd"), errors.UsageError),
        ("CreateTube", pb.CreateTubeRequest(name="x", options=pb.TubeOptions(id="function")), errors.UsageError),
        ("AlterTube", pb.AlterTubeRequest(tube="errors", unset=["nothing"]), errors.UsageError),
        ("AlterTube", pb.AlterTubeRequest(tube="errors", options=pb.TubeOptions(payload="bytes")), errors.UsageError),
        ("Peek", pb.TaskName(tube="errors", id=number(9)), errors.TaskNotFound),
        ("Peek", pb.TaskName(tube="errors"), errors.UsageError),
        ("Dig", pb.DigRequest(tube="errors", id=number(1)), errors.WrongState),
        ("Snatch", pb.RestartRequest(tube="errors", id=number(1)), errors.NotTaken),
        ("Release", pb.ReleaseRequest(tube="errors", lease=pb.Lease(id=number(1))), errors.NotTaken),
        ("Release", pb.ReleaseRequest(tube="errors", lease=pb.Lease(id=number(1), token=5)), errors.LeaseLost),
        ("Touch", pb.TouchRequest(tube="errors", lease=pb.Lease(id=number(1)), by_us=-1), errors.UsageError),
        ("Cancel", pb.CancelRequest(tube="errors"), errors.UsageError),
        ("Take", pb.TakeRequest(tube="errors", n=100_001), errors.UsageError),
        ("Take", pb.TakeRequest(tube="errors", ttr_us=-1), errors.UsageError),
        ("ListTasks", pb.ListTasksRequest(tube="errors", limit=-1), errors.UsageError),
        ("ListTasks", pb.ListTasksRequest(tube="errors", limit=10_001), errors.UsageError),
        ("Wait", pb.WaitRequest(tube="errors", id=number(1), timeout_us=0), errors.WaitTimeout),
        ("Wait", pb.WaitRequest(tube="errors", id=number(9)), errors.TaskNotFound),
        ("Result", pb.WaitRequest(tube="errors", id=number(9)), errors.TaskFailed),
        ("Put", pb.PutRequest(tube="nowhere", drafts=[pb.Draft(json="1")]), errors.TubeNotFound),
    ]
    for verb, request, cls in cases:
        failed = refused(client.call, verb, request)
        error = status.error_of(failed)
        assert type(error) is cls, (verb, error)
        assert failed.code() is status.STATUS[cls], verb


def test_drafts_are_refused_one_by_one(client):
    client.create("drafts")
    drafts = [
        pb.Draft(),
        pb.Draft(json="1", ttl_us=-1),
        pb.Draft(json="2", key="k"),
        pb.Draft(json="3", key="k"),
        pb.Draft(json="4", repeat_us=0),
        pb.Draft(json="5", max_attempts=0),
        pb.Draft(json="6", lane="x" * 256),
        pb.Draft(json=f'"{"x" * (1 << 20)}"'),
        pb.Draft(raw=b"7"),
        pb.Draft(json="8"),
    ]
    results = client.call("Put", pb.PutRequest(tube="drafts", drafts=drafts)).results
    assert [result.error.code for result in results] == [
        "usage", "usage", "", "duplicate_key", "usage", "usage", "usage", "payload_too_large", "usage", "",
    ]  # fmt: skip


def test_acks_are_refused_one_by_one(client):
    client.open()
    client.create("acks")
    client.put("acks", "1", "2")
    (task,) = client.take("acks")
    items = [
        pb.AckRequest.Finish(id=number(2)),
        pb.AckRequest.Finish(id=task.id, token=task.token),
        pb.AckRequest.Finish(id=number(7)),
    ]
    reply = client.call("Ack", pb.AckRequest(tube="acks", items=items))
    assert reply.done == 1
    assert [(each.index, each.error.code) for each in reply.refused] == [(0, "not_taken"), (2, "task_not_found")]


def test_what_cannot_be_an_ack_is_refused_alone(client):
    client.open()
    client.create("bad_acks")
    client.put("bad_acks", "1", "2")
    one, two = client.take("bad_acks", 2)
    items = [
        pb.AckRequest.Finish(),
        pb.AckRequest.Finish(id=one.id, token=one.token, result="no json"),
        pb.AckRequest.Finish(id=one.id, token=one.token, keep_us=-1),
        pb.AckRequest.Finish(id=number(9)),
        pb.AckRequest.Finish(id=two.id, token=two.token),
    ]
    reply = client.call("Ack", pb.AckRequest(tube="bad_acks", items=items))
    assert reply.done == 1
    assert [(each.index, each.error.code) for each in reply.refused] == [
        (0, "usage"), (1, "usage"), (2, "usage"), (3, "task_not_found"),
    ]  # fmt: skip
    assert client.ack("bad_acks", one).done == 1


def test_a_batch_of_acks_has_so_many_items(client):
    client.open()
    client.create("many_acks")
    items = [pb.AckRequest.Finish(id=number(1))] * 100_001
    error = status.error_of(refused(client.call, "Ack", pb.AckRequest(tube="many_acks", items=items)))
    assert isinstance(error, errors.UsageError)


def test_health(server, client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "penstock.v1.Queue"):
        found = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
        assert found.status == health_pb2.HealthCheckResponse.SERVING


def told(watching, status):
    """Read on until it is so: a store that is slow for once is bad for a moment."""
    while next(watching).status != status:
        pass


def test_health_follows_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(grpc_health, "STORE_PATIENCE", 0.05)
    monkeypatch.setattr(grpc_health, "LOOK_SECONDS", 0.01)
    good, bad = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    with Running(f"{tmp_path}/tasks.db", port=None, grpc_port=0) as server:
        client = Client(server.grpc_url)
        stub = health_pb2_grpc.HealthStub(client.channel)
        asked = health_pb2.HealthCheckRequest()
        watching = stub.Watch(health_pb2.HealthCheckRequest(service="penstock.v1.Queue"), timeout=PATIENCE)
        queue = penstock.connect(server.server.settings.url)
        tube = queue.create_tube("mail")
        told(watching, good)
        with queue.transaction() as transaction:  # holds the store
            tube.put(1, transaction=transaction)
            told(watching, bad)
            until(lambda: stub.Check(asked, timeout=PATIENCE).status == bad, "it should be bad")
        told(watching, good)
        queue.close()
        client.close()


def test_health_knows_no_other_service(client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    asked = health_pb2.HealthCheckRequest(service="other")
    assert refused(stub.Check, asked, timeout=PATIENCE).code() is grpc.StatusCode.NOT_FOUND
    assert next(stub.Watch(asked, timeout=PATIENCE)).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.fixture
def guarded(tmp_path):
    """A server with logins, and the secret of one."""
    file, token = f"{tmp_path}/logins.toml", new_token()
    rights = [logins.new_right(["admin"], ["*"])]
    logins.write_entries(file, {"ann": logins.new_entry("ann", rights, token)})
    with Running("memory:", port=None, grpc_port=0, logins=file) as server:
        yield server, token


def test_whoever_has_not_logged_in_reaches_nothing(guarded):
    """Whether a session is there, or a request is right, is not for everybody to know."""
    server, token = guarded
    client = Client(server.grpc_url)
    known = Stream(client.stub, metadata=(("authorization", f"Bearer ann:{token}"),))
    performed = sum(server.server.core.tally.performed.values())
    answers = set()
    for uuid in (known.opened.uuid, "11111111-1111-4111-8111-111111111111", "no uuid"):
        named = (("penstock-session", uuid),)
        for call in (
            lambda named=named: client.call("Take", pb.TakeRequest(tube="jobs"), metadata=named),
            lambda named=named: client.call("Peek", pb.TaskName(), metadata=named),
            lambda named=named: next(client.stub.TakeStream(iter(()), metadata=named)),
            lambda named=named: next(client.stub.Session(iter(()), metadata=named)),
            lambda named=named: next(client.stub.Engine(iter(()), metadata=named)),
        ):
            failed = refused(call)
            answers.add((failed.code(), dict(failed.trailing_metadata())["penstock-code"], failed.details()))
    assert [answer[:2] for answer in answers] == [(grpc.StatusCode.UNAUTHENTICATED, "access_denied")]
    assert sum(server.server.core.tally.performed.values()) == performed
    known.close()
    client.close()


def test_a_wrong_secret_is_one_line_of_the_log(guarded, caplog):
    server, _ = guarded
    client = Client(server.grpc_url)
    wrong = (("authorization", "Bearer ann:guess"),)
    failed = refused(client.call, "ListTubes", pb.ListTubesRequest(), metadata=wrong)
    assert failed.code() is grpc.StatusCode.UNAUTHENTICATED
    (line,) = [record.getMessage() for record in caplog.records if record.name == "penstock.server"]
    assert "127.0.0.1" in line and "'ann'" in line and "guess" not in line
    client.close()


def test_health_says_when_a_server_goes():
    server = Running("memory:", port=None, grpc_port=0)
    client = Client(server.grpc_url)
    watching = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    server.stop()
    assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert list(watching) == []
    client.close()


def test_health_reports_a_stop_that_begins_while_the_first_status_is_written():
    seen = list[int]()

    class Context:
        async def write(self, reply):
            seen.append(reply.status)
            health.leave()

    with Running("memory:", port=None, grpc_port=0) as server:
        core = server.server.core
        health = grpc_health.Health(core)
        watching = health.Watch(health_pb2.HealthCheckRequest(), Context())
        asyncio.run_coroutine_threadsafe(watching, core.loop).result(PATIENCE)
    assert seen == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


def test_a_message_that_is_too_big_is_refused_and_the_connection_goes_on():
    with limited(frame=100_000) as (_, client):
        failed = refused(client.put, "jobs", f'"{"x" * 200_000}"')
        assert failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.put("jobs", "1")[0].outcome == pb.OUTCOME_NEW


def test_only_so_many_takes_may_wait():
    with limited(waiting_each=2) as (server, client):
        client.open()
        first = [client.waiting("jobs") for _ in range(2)]
        until(lambda: server.server.core.engine.store.waiters == 2, "two should wait")
        error = status.error_of(refused(client.waiting("jobs").result))
        assert isinstance(error, errors.EngineUnavailable)
        assert error.outcome == "not_done"
        client.put("jobs", "1", "2")
        assert sorted(call.result().tasks[0].json for call in first) == ["1", "2"]


def test_a_port_that_is_taken_is_refused(server):
    taken = server.server.port("grpc_port")
    with pytest.raises(errors.UsageError, match="nobody can listen"):
        Running("memory:", port=None, grpc_port=taken)


@pytest.mark.parametrize("module", ["penstock.server.grpc_door", "penstock.engines.remote.grpc_link"])
@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "ERROR"), pytest.param({"GRPC_VERBOSITY": "DEBUG"}, "DEBUG", marks=pytest.mark.exhaustive)],
)
def test_grpc_writes_no_lines_of_its_own_unless_told_to(module, given, found):
    """It looks into the environment when it is loaded, which is as far as this goes."""
    text = f"""
import os, sys
class Look:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_VERBOSITY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Look())
import {module}
"""
    env = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"} | given
    told = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == [found]
