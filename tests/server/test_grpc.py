"""The verbs of gRPC, with the generated stubs."""

from __future__ import annotations

import asyncio
import json

import apsw
import grpc
import pytest
from tests.support.grpcs import PATIENCE, Client, lease, number
from tests.support.servers import Running, run

import penstock
from penstock.testing import ManualClock
from penstock.wire._generated import penstock_pb2 as pb

SECOND = 1_000_000


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(clock):
    with Running("memory:", clock, port=None, grpc_port=0) as running:
        yield running


@pytest.fixture
def client(grpc_client):
    grpc_client.open(name="ann")
    return grpc_client


def test_a_task_is_put_taken_and_acked(client):
    client.create("jobs")
    (placed,) = client.put("jobs", '{"url": "http://a.example/"}')
    assert (placed.id.number, placed.outcome, placed.state) == (1, pb.OUTCOME_NEW, pb.STATE_READY)
    (task,) = client.take("jobs")
    assert json.loads(task.json) == {"url": "http://a.example/"}
    assert (task.state, task.attempt, task.token > 0) == (pb.STATE_TAKEN, 1, True)
    reply = client.ack("jobs", task)
    assert (reply.done, list(reply.refused)) == (1, [])
    assert client.take("jobs") == []


def test_no_method_is_waited_for_by_itself():
    """gRPC begins such waits anew, all of them, after every call."""

    async def tasks():
        return len(asyncio.all_tasks())

    before = run(tasks())
    with Running("memory:", port=None, grpc_port=0):
        assert run(tasks()) - before < 10


def test_each_text_of_a_batch_is_looked_at_by_itself(client):
    client.create("jobs")
    good = {
        '{ "a" : [1, 2.50e0] }': '{"a":[1,2.5]}',
        '{"a": 1, "a": 2}': '{"a":2}',
        '"\\u00e4\\n"': '"ä\\n"',
        "[\n]": "[]",
    }
    bad = ["[1", "2]", "1,2", "1 2", "", '"\\u0000"', "9" * 20, "[" * 65 + "]" * 65, "\n"]
    for texts in ([*good], [*good, *bad], [*bad, *good], bad):
        results = client.put("jobs", *texts)
        assert [result.error.code == "usage" for result in results] == [text in bad for text in texts]
        assert [task.json for task in client.take("jobs", 100)] == [good[text] for text in texts if text in good]


def test_tubes_are_made_altered_paused_and_dropped(client):
    retry = pb.Retry(exponential=pb.Retry.Exponential(base_us=SECOND, factor=2, max_us=60 * SECOND, jitter=0.5))
    made = client.create("jobs", ttr_us=5 * SECOND, max_attempts=3, retry=retry, keep_us=SECOND, lane_rate=0.5)
    assert made.kind == "standard"
    assert (made.options.ttr_us, made.options.max_attempts, made.options.lane_rate) == (5 * SECOND, 3, 0.5)
    assert made.options.retry == retry
    assert client.call("GetTube", pb.TubeName(tube="jobs")) == made
    again = pb.CreateTubeRequest(name="jobs", if_not_exists=True, options=pb.TubeOptions(max_attempts=3))
    assert client.call("CreateTube", again) == made
    asked = pb.AlterTubeRequest(
        tube="jobs", options=pb.TubeOptions(pri=7, retry=pb.Retry(delays_us=[SECOND, 5 * SECOND])), unset=["ttr"]
    )
    altered = client.call("AlterTube", asked)
    assert (altered.options.pri, altered.options.HasField("ttr_us")) == (7, False)
    assert list(altered.options.retry.delays_us) == [SECOND, 5 * SECOND]
    client.create("mail", "fifo")
    assert [tube.name for tube in client.call("ListTubes", pb.ListTubesRequest()).tubes] == ["jobs", "mail"]
    client.put("jobs", "1", "2")
    assert client.call("Pause", pb.PauseRequest(tube="jobs")).paused
    assert client.take("jobs") == []
    assert not client.call("Pause", pb.PauseRequest(tube="jobs", resume=True)).paused
    assert len(client.take("jobs", 5)) == 2
    assert client.call("TruncateTube", pb.TubeName(tube="jobs")).count == 2
    client.call("DropTube", pb.DropTubeRequest(tube="jobs"))
    assert [tube.name for tube in client.call("ListTubes", pb.ListTubesRequest()).tubes] == ["mail"]


def test_a_page_shows_what_some_of_its_tasks_have(client):
    client.create("jobs", max_attempts=5)
    special = pb.Draft(json="2", pri=3, lane="a", key="k", ttl_us=SECOND, delay=pb.Delay(length_us=5))
    client.call("Put", pb.PutRequest(tube="jobs", drafts=[pb.Draft(json="1"), special, pb.Draft(json="3")]))
    (one, _) = client.take("jobs", 2)
    client.call("Fail", pb.FailRequest(tube="jobs", lease=lease(one), error="no"))
    tasks = client.call("ListTasks", pb.ListTasksRequest(tube="jobs")).tasks
    named = [{field.name: value for field, value in task.ListFields()} for task in tasks]
    assert [task.get("pri") for task in named] == [None, 3, None]
    assert [(task.get("lane"), task.get("key"), task.get("ttl_us")) for task in named][1] == ("a", "k", SECOND)
    assert [task.get("failures") for task in named] == [1, None, None]
    assert [[text.split("\n")[0] for text in task.errors] for task in tasks] == [["no"], [], []]
    assert [task.state for task in tasks] == [pb.STATE_READY, pb.STATE_DELAYED, pb.STATE_TAKEN]
    assert not any("token" in task for task in named)


def test_finishing_verbs_answer_the_task(client):
    client.create("jobs", max_attempts=5, retry=pb.Retry(delays_us=[10 * SECOND]))
    client.put("jobs", "1", "2", "3", "4")
    one, two, three, four = client.take("jobs", 4)
    released = client.call(
        "Release", pb.ReleaseRequest(tube="jobs", lease=lease(one), pri=5, json='"new"', refund=True)
    )
    assert (released.state, released.pri, released.json, released.attempt) == (pb.STATE_READY, 5, '"new"', 0)
    buried = client.call("Bury", pb.BuryRequest(tube="jobs", lease=lease(two), error="broken"))
    assert (buried.state, buried.reason, buried.error) == (pb.STATE_BURIED, "asked", "broken")
    failed = client.call("Fail", pb.FailRequest(tube="jobs", lease=lease(three), error="no answer"))
    assert (failed.state, list(failed.errors), failed.failures) == (pb.STATE_DELAYED, ["no answer"], 1)
    assert failed.ready_at_us - four.created_at_us == 10 * SECOND
    before = client.call("Peek", pb.TaskName(tube="jobs", id=four.id))
    assert not before.HasField("token"), "it is the holder's"
    touched = client.call("Touch", pb.TouchRequest(tube="jobs", lease=lease(four), by_us=0))
    assert touched.token == four.token
    aborted = client.call("Fail", pb.FailRequest(tube="jobs", lease=pb.Lease(id=four.id), abort=True))
    assert (aborted.state, aborted.reason) == (pb.STATE_BURIED, "aborted")


def test_touch_moves_the_deadline(client):
    client.create("jobs", ttr_us=10 * SECOND)
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    touched = client.call("Touch", pb.TouchRequest(tube="jobs", lease=lease(task), by_us=5 * SECOND))
    assert touched.deadline_us == task.deadline_us + 5 * SECOND


def test_buried_tasks_are_revived(client):
    client.create("jobs")
    client.put("jobs", *"12345")
    for task in client.take("jobs", 5):
        client.call("Bury", pb.BuryRequest(tube="jobs", lease=lease(task)))
    assert client.call("Kick", pb.KickRequest(tube="jobs")).count == 1
    assert client.call("Kick", pb.KickRequest(tube="jobs", n=2)).count == 2
    dug = client.call("Dig", pb.DigRequest(tube="jobs", id=number(5), delay=pb.Delay(length_us=SECOND)))
    assert dug.state == pb.STATE_DELAYED
    assert client.call("Kick", pb.KickRequest(tube="jobs", all=True)).count == 1


def test_tasks_are_moved_by_hand(client):
    client.create("jobs", keep_us=100 * SECOND)
    client.put("jobs", "1", "2", "3", key=None)
    (one, two) = client.take("jobs", 2)
    snatched = client.call("Snatch", pb.RestartRequest(tube="jobs", id=one.id))
    assert snatched.state == pb.STATE_READY
    assert client.call("ReleaseAll", pb.TubeName(tube="jobs")).count == 1
    cancelled = client.call("Cancel", pb.CancelRequest(tube="jobs", id=number(3)))
    assert (cancelled.task.state, cancelled.task.reason) == (pb.STATE_DONE, "cancelled")
    assert not client.call("Cancel", pb.CancelRequest(tube="jobs", key="no such")).HasField("task")
    restarted = client.call("Restart", pb.RestartRequest(tube="jobs", id=number(3)))
    assert restarted.state == pb.STATE_READY
    assert client.call("Delete", pb.TaskName(tube="jobs", id=two.id)).reason == "deleted"
    listed = client.call("ListTasks", pb.ListTasksRequest(tube="jobs")).tasks
    assert [task.id.number for task in listed] == [1, 3]


def test_more_attempts_can_be_given(client):
    client.create("jobs", max_attempts=1)
    client.put("jobs", "1")
    (task,) = client.take("jobs")
    client.call("Fail", pb.FailRequest(tube="jobs", lease=lease(task)))
    assert client.call("AddRetries", pb.AddRetriesRequest(tube="jobs", n=2)).count == 1
    assert client.take("jobs")[0].max_attempts == 3


def test_a_draft_has_all_options(client, clock):
    client.create("jobs")
    moment = clock.now() + 30 * SECOND
    draft = pb.Draft(
        json="[1]", pri=-3, ttl_us=100 * SECOND, ttr_us=7 * SECOND, delay=pb.Delay(moment_us=moment), lane="a",
        key="k", put_id="p", max_attempts=4, keep_us=SECOND, repeat_us=9 * SECOND,
    )  # fmt: skip
    request = pb.PutRequest(tube="jobs", drafts=[draft])
    (placed,) = client.call("Put", request).results
    assert placed.state == pb.STATE_DELAYED
    task = client.call("Peek", pb.TaskName(tube="jobs", id=placed.id))
    assert (task.pri, task.ttl_us, task.ttr_us, task.ready_at_us) == (-3, 100 * SECOND, 7 * SECOND, moment)
    assert (task.lane, task.key, task.put_id, task.max_attempts) == ("a", "k", "p", 4)
    assert task.repeat_us == 9 * SECOND
    assert [result.outcome for result in client.call("Put", request).results] == [pb.OUTCOME_EXISTING]
    other = pb.Draft(json="2", key="k", on_conflict=pb.ON_CONFLICT_REPLACE)
    assert client.call("Put", pb.PutRequest(tube="jobs", drafts=[other])).results[0].outcome == pb.OUTCOME_REPLACED


def test_ids_are_numbers_text_or_the_callers(client):
    client.create("texts", id="uuid")
    client.create("own", id="required")
    (placed,) = client.put("texts", "1")
    assert len(placed.id.text) == 36
    assert client.call("Peek", pb.TaskName(tube="texts", id=placed.id)).json == "1"
    (own,) = client.put("own", "1", id=pb.Id(text="order 7"))
    assert own.id.text == "order 7"
    assert client.ack("own", *client.take("own")).done == 1


def test_bytes_are_data_too(client):
    client.create("blobs", payload="bytes")
    reply = client.call("Put", pb.PutRequest(tube="blobs", drafts=[pb.Draft(raw=b"\0\xff"), pb.Draft(json="1")]))
    assert [result.error.code for result in reply.results] == ["", "usage"]
    assert client.take("blobs")[0].raw == b"\0\xff"


def test_json_is_stored_as_the_library_stores_it(client):
    client.create("jobs")
    client.put("jobs", ' {"a" : [1.0, 18446744073709551615, "\\u00e9"]} ')
    assert client.take("jobs")[0].json == '{"a":[1.0,18446744073709551615,"é"]}'
    for wrong in ("", "{", "NaN", "1e999", '"\\u0000"', "18446744073709551616", "[" * 70 + "]" * 70, "[" * 5000):
        (result,) = client.put("jobs", wrong)
        assert result.error.code == "usage", wrong


def test_lanes_have_limits_and_are_listed(client):
    client.create("jobs")
    asked = pb.ConfigureLaneRequest(tube="jobs", lane="a", rate=0.5, burst=2, concurrency=3)
    assert client.call("ConfigureLane", asked) == pb.LaneLimits(rate=0.5, burst=2, concurrency=3)
    client.put("jobs", "1", "2", "3", lane="a")
    assert len(client.take("jobs", 3)) == 2
    (lane,) = client.call("Lanes", pb.LanesRequest(tube="jobs")).lanes
    assert (lane.name, lane.ready, lane.taken, lane.limits.rate) == ("a", 1, 2, 0.5)
    assert lane.HasField("next_at_us")
    freed = client.call("ConfigureLane", pb.ConfigureLaneRequest(tube="jobs", lane="a", unset=["rate"]))
    assert not freed.HasField("rate")
    assert [lane.name for lane in client.call("Lanes", pb.LanesRequest(tube="jobs", after="a")).lanes] == []


def test_statistics_count(client):
    client.create("jobs")
    client.create("mail")
    client.put("jobs", "1", "2")
    client.ack("jobs", *client.take("jobs"))
    every = client.call("Statistics", pb.StatisticsRequest()).tubes
    assert sorted(every) == ["jobs", "mail"]
    one = client.call("Statistics", pb.StatisticsRequest(tube="jobs")).tubes["jobs"]
    assert (one.tasks["ready"], one.tasks["done"], one.calls["put"], one.calls["ack"]) == (1, 1, 2, 1)


def test_history_tells_every_change(client):
    client.create("jobs", history=True, history_data=True)
    client.put("jobs", "1")
    client.ack("jobs", *client.take("jobs"))
    events = client.call("History", pb.HistoryRequest(tube="jobs")).events
    assert [event.event for event in events] == ["put", "take", "ack"]
    assert (events[0].from_state, events[0].to_state, events[0].json) == (pb.STATE_UNSPECIFIED, pb.STATE_READY, "1")
    assert (events[2].task_id.number, events[2].reason) == (1, "success")
    rest = client.call("History", pb.HistoryRequest(after=events[0].seq, limit=1)).events
    assert [event.event for event in rest] == ["take"]


def test_tasks_are_listed_in_pages(client):
    client.create("jobs")
    client.put("jobs", *"12345")
    client.take("jobs", 2)
    asked = pb.ListTasksRequest(tube="jobs", limit=2)
    assert [task.id.number for task in client.call("ListTasks", asked).tasks] == [1, 2]
    asked = pb.ListTasksRequest(tube="jobs", limit=2, after=number(2))
    assert [task.id.number for task in client.call("ListTasks", asked).tasks] == [3, 4]
    taken = pb.ListTasksRequest(tube="jobs", state=pb.STATE_TAKEN)
    assert [task.id.number for task in client.call("ListTasks", taken).tasks] == [1, 2]


def test_the_result_of_a_task_is_waited_for(client, server):
    client.create("jobs", keep_us=100 * SECOND)
    client.put("jobs", "1", "2")
    one, two = client.take("jobs", 2)
    waiting = client.stub.Result.future(pb.WaitRequest(tube="jobs", id=one.id), timeout=PATIENCE)
    item = pb.AckRequest.Finish(id=one.id, token=one.token, result='{"found": 3}')
    client.call("Ack", pb.AckRequest(tube="jobs", items=[item]))
    assert waiting.result().result == '{"found":3}'
    waiting = client.stub.Wait.future(pb.WaitRequest(tube="jobs", id=two.id), timeout=PATIENCE)
    client.call("Bury", pb.BuryRequest(tube="jobs", lease=lease(two)))
    assert waiting.result().state == pb.STATE_BURIED


def test_a_batch_of_thousands(client):
    client.create("jobs")
    results = client.put("jobs", *map(str, range(2_000)))
    assert [result.id.number for result in results] == list(range(1, 2_001))
    tasks = client.take("jobs", 2_000)
    assert [int(task.json) for task in tasks] == list(range(2_000))
    assert client.ack("jobs", *tasks).done == 2_000


def test_a_reply_is_never_too_big_for_its_client(client):
    """Clients refuse more than 4 MiB; what does not fit stays in the tube, and its attempt does not count."""
    client.create("jobs")
    text = json.dumps("é" * 300_000, ensure_ascii=False)
    for _ in range(12):
        client.put("jobs", text)
    assert len(client.call("ListTasks", pb.ListTasksRequest(tube="jobs")).tasks) == 6
    first = client.take("jobs", 12)
    second = client.take("jobs", 12)
    assert [task.id.number for task in first + second] == list(range(1, 13))
    assert {task.attempt for task in first + second} == {1}


def test_a_put_waits_for_room(client):
    client.create("jobs", capacity=1)
    client.put("jobs", "1")
    assert client.put("jobs", "2")[0].error.code == "tube_full"
    asked = pb.PutRequest(tube="jobs", drafts=[pb.Draft(json="3")], timeout_us=60 * SECOND)
    waiting = client.stub.Put.future(asked, timeout=PATIENCE)
    client.ack("jobs", *client.take("jobs"))
    assert waiting.result().results[0].outcome == pb.OUTCOME_NEW


def test_an_adopted_table_has_composite_ids(tmp_path):
    place = tmp_path / "shop.db"
    shop = apsw.Connection(str(place))
    shop.execute("CREATE TABLE orders (shop TEXT, number INTEGER, status TEXT, item TEXT, PRIMARY KEY (shop, number))")
    shop.execute("INSERT INTO orders VALUES ('north', 7, 'R', 'tea')")
    shop.close()
    with penstock.connect(place) as queue:
        features = {"id": "required"}
        queue.adopt("orders", table="orders", fields={"status": "status"}, features=features)
    with Running(str(place), port=None, grpc_port=0) as server:
        client = Client(server.grpc_url)
        client.open()
        (task,) = client.take("orders")
        assert [(part.text, part.number) for part in task.id.parts.parts] == [("north", 0), ("", 7)]
        assert client.ack("orders", task).done == 1
        (placed,) = client.put("orders", '{"shop": "south", "number": 1, "item": "cup"}')
        assert client.call("Peek", pb.TaskName(tube="orders", id=placed.id)).json == '{"item":"cup"}'
        client.close()


def test_a_tube_with_rules_in_python_is_for_the_library(tmp_path):
    class Picky(penstock.Kind):
        def check_put(self, entry):
            raise penstock.UsageError("no")

    place = tmp_path / "tasks.db"
    with penstock.connect(place) as queue:
        queue.register_kind("picky", Picky)
        queue.create_tube("jobs", "picky")
    with Running(str(place), port=None, grpc_port=0) as server:
        client = Client(server.grpc_url)
        with pytest.raises(grpc.RpcError, match="rules in Python"):
            client.put("jobs", "1")
        client.close()
