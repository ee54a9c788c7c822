"""The functions of tarantool/queue over the wire, by the connector that its users have."""

from __future__ import annotations

import decimal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.clients import Client
from tests.support.servers import Running, run
from tests.worker.bench import until

from penstock.server import tarantool_caller
from penstock.server.auth import Login, Secret, new_token
from penstock.server.logins import Entry, new_right, write_entries
from penstock.testing import ManualClock

KINDS = ("fifo", "fifottl", "utube", "utubettl")
TIMED = ("fifottl", "utubettl")
GO_CREATE = "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)"
GO_EXISTS = "local name = ... ; return queue.tube[name] ~= nil"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def server(request: Any, tmp_path: Any, clock: ManualClock) -> Iterator[Running]:
    with Running("memory:" if request.param == "memory" else str(tmp_path / "tasks.db"), clock) as running:
        yield running


@pytest.fixture
def connect(server: Running) -> Iterator[Any]:
    made: list[Client] = []

    def connect(**options: Any) -> Client:
        made.append(Client(server.server.port(), **options))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def client(connect: Any) -> Client:
    made: Client = connect()
    for kind in KINDS:
        made.call("queue.create_tube", kind, kind)
    return made


def waiting(server: Running, tube: str, number: int = 1) -> None:
    """Come back when so many takes wait."""
    until(lambda: server.server.core.engine.store.waiting(tube) == number)


# -- tubes ---------------------------------------------------------------------------------------------


def test_a_tube_is_made_found_listed_and_dropped(connect):
    client = connect()
    assert client.call("queue.create_tube", "mail", "fifottl", {"ttl": 60, "ttr": 5.5, "pri": 3}) == []
    assert client.call("queue.create_tube", "fax", "fifo") == []
    assert client.call("queue.tube") == [["fax", "mail"]]
    assert client.call("queue.tube", "mail") == [True]
    assert client.call("queue.tube", "telex") == [False]
    assert client.refused("queue.tube", 5) == (32, "argument #1 should be string or nil")
    assert client.call("queue.tube.mail:drop") == [True]
    assert client.call("queue.tube", "mail") == [False]
    assert client.refused("queue.tube.mail:put", 1) == (33, "Procedure 'queue.tube.mail:put' is not defined")


def test_go_makes_and_finds_tubes_by_evaluating_two_texts(connect):
    client = connect()
    assert client.evaluate(GO_EXISTS, "mail") == [False]
    options = {"temporary": False, "if_not_exists": True, "ttl": 60.0}
    assert client.evaluate(GO_CREATE, "mail", "fifottl", options) == []
    assert client.evaluate(GO_CREATE, "mail", "fifottl", options) == []
    assert client.evaluate(GO_EXISTS, "mail") == [True]


def test_a_text_that_calls_one_function_is_evaluated_and_no_other_is(client):
    task = client.evaluate("return queue.tube.fifo:put(...)", {"a": 1})[0]
    assert task[1:] == ["r", {"a": 1}]
    assert client.evaluate("queue.tube.fifo:peek( ... );", task[0]) == [task]
    for text in ("return 1", "os.exit()", "return queue.tube.fifo:put(1)", "", "return box.cfg"):
        with pytest.raises(Exception, match="runs no Lua"):
            client.evaluate(text)
    with pytest.raises(Exception, match=r"'os\.exit' is not defined"):
        client.evaluate("return os.exit(...)")


def test_a_tube_that_exists_is_refused_or_found_as_it_is(connect):
    client = connect()
    client.call("queue.create_tube", "mail", "fifottl", {"ttl": 60})
    assert client.refused("queue.create_tube", "mail", "fifottl") == (32, "Space 'mail' already exists")
    assert client.call("queue.create_tube", "mail", "fifottl", {"if_not_exists": True, "ttl": 5}) == []
    code, text = client.refused("queue.create_tube", "mail", "fifo", {"if_not_exists": True})
    assert code == 32 and "is of type fifottl, asked for fifo" in text


def test_an_unknown_type_or_option_makes_nothing(connect):
    client = connect()
    assert client.refused("queue.create_tube", "x", "nosuch") == (32, "Unknown tube type nosuch")
    assert client.refused("queue.create_tube", "x") == (32, "Unknown tube type nil")
    code, text = client.refused("queue.create_tube", "x", "fifo", {"if_not_exist": True})
    assert code == 32 and "unknown option 'if_not_exist'" in text
    assert "options must be a map" in client.refused("queue.create_tube", "x", "fifo", "temporary")[1]
    assert client.call("queue.tube") == [[]]


def test_options_that_a_kind_has_no_use_for_and_those_of_the_module_are_overlooked(connect):
    client = connect()
    options = {
        "ttl": 1,
        "ttr": 1,
        "pri": 1,
        "capacity": 1,
        "engine": "memtx",
        "temporary": True,
        "on_task_change": None,
    }
    assert client.call("queue.create_tube", "x", "fifo", options) == []
    assert client.call("queue.create_tube", "y", "limfifottl", {"capacity": 2.0, "max_attempts": 3}) == []


def test_names_of_tubes_are_checked(connect):  # case 13
    client = connect()
    assert client.call("queue.create_tube", "a" * 33, "fifo") == []
    assert client.call("queue.create_tube", "shop.mail-2", "fifo") == []
    assert client.call("queue.tube.shop.mail-2:put", 1)[0][1:] == ["r", 1]
    for name in ("a" * 65, "a b", "", "é", None, 5):
        code, text = client.refused("queue.create_tube", name, "fifo")
        assert code == 32 and "a tube's name is 1 to 64 characters" in text, name


def test_names_lead_to_functions_or_nowhere(client):
    for name in (
        "nosuch",
        "queue.nosuch",
        "queue.tube.fifo:nosuch",
        "queue.tube.nosuch:take",
        "box.space",
        "queue.kick",
    ):
        assert client.refused(name) == (33, f"Procedure '{name}' is not defined"), name
    for name in ("queue", "queue.tube.fifo", "queue.tube.fifo.put"):
        code, text = client.refused(name)
        assert code == 32 and text.startswith("attempt to call a table value"), name
    assert client.call("box.queue.tube.fifo:put", 1)[0][1:] == ["r", 1]
    assert client.call("box.queue.statistics", "fifo")[0]["tasks"]["ready"] == 1


# -- put and take --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_goes_its_way(client, kind):  # case 5
    tube = f"queue.tube.{kind}:"
    number = client.call(tube + "put", {"url": "http://a.example/"})[0][0]
    assert client.call(tube + "put", "second")[0][1:] == ["r", "second"]
    assert client.call(tube + "peek", number) == [[number, "r", {"url": "http://a.example/"}]]
    assert client.call(tube + "take") == [[number, "t", {"url": "http://a.example/"}]]
    assert client.call(tube + "release", number) == [[number, "r", {"url": "http://a.example/"}]]
    assert client.call(tube + "take", 0) == [[number, "t", {"url": "http://a.example/"}]]
    assert client.call(tube + "ack", number) == [[number, "-", {"url": "http://a.example/"}]]
    assert client.refused(tube + "peek", number) == (32, f"Task {number} not found")


@pytest.mark.parametrize(
    "data",
    [None, True, 0, -5, 2**64 - 1, -(2**63), 1.5, "", "é\u20ac", [], {}, [1, None, {"x": []}], {"a": {"b": None}}],
    ids=repr,
)
def test_data_comes_back_as_it_was_put(client, data):
    number = client.call("queue.tube.fifo:put", data)[0][0]
    for answer in (client.call("queue.tube.fifo:take", 0), client.call("queue.tube.fifo:ack", number)):
        assert answer[0][2] == data and type(answer[0][2]) is type(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({1: 2}, "keys in data must be text, got 1"),
        ({"a": {None: 2}}, "keys in data must be text, got None"),
        (b"ab", 'a tube with payload="bytes" takes bytes as they are'),
        ([b"ab"], "not bytes: b'ab'"),
        (float("nan"), "numbers in data must be finite"),
        ("a\0b", "NUL"),
        (uuid.UUID(int=5), "data may hold None, bool, int"),
        ([decimal.Decimal("1.5")], "data may hold None, bool, int"),
    ],
    ids=repr,
)
def test_what_json_cannot_say_is_refused_by_name(client, data, words):
    code, text = client.refused("queue.tube.fifo:put", data)
    assert code == 32 and words in text
    assert client.call("queue.statistics", "fifo")[0]["tasks"]["total"] == 0


def test_strings_that_are_no_text_are_refused_or_kept_as_bytes(client, connect):
    raw = connect(encoding=None)
    code, text = raw.refused("queue.tube.fifo:put", {"a": b"\xff\xfe"})
    assert code == 32 and "must be UTF-8, got b'\\xff\\xfe'" in text and 'payload="bytes"' in text
    client.call("queue.create_tube", "blobs", "fifo", {"payload": "bytes"})
    first = raw.call("queue.tube.blobs:put", b"\xff\x00")[0]
    second = client.call("queue.tube.blobs:put", "text")[0]
    assert (first[2], second[2]) == (b"\xff\x00", b"text")
    assert client.call("queue.tube.blobs:take", 0) == [[first[0], "t", b"\xff\x00"]]
    assert client.call("queue.tube.blobs:ack", first[0]) == [[first[0], "-", b"\xff\x00"]]
    assert "takes bytes, got dict" in client.refused("queue.tube.blobs:put", {})[1]


def test_data_that_is_too_large_is_refused(client):
    code, text = client.refused("queue.tube.fifo:put", "x" * (1 << 20))
    assert code == 110 and "tuple is too large" in text
    assert client.call("queue.tube.fifo:put", "x" * 1_000_000)[0][1] == "r"


@pytest.mark.parametrize(("kind", "field"), [("fifo", 3), ("fifottl", 8), ("utube", 4), ("utubettl", 9)])
def test_put_needs_data(client, kind, field):
    text = f"Tuple field {field} required by space format is missing"
    assert client.refused(f"queue.tube.{kind}:put") == (39, text)


@pytest.mark.parametrize("kind", TIMED)
def test_options_of_put(client, clock, kind):
    tube = f"queue.tube.{kind}:"
    client.call(tube + "put", "late", {"pri": 5, "utube": "a"})
    client.call(tube + "put", "early", {"pri": 1.0, "utube": "b"})
    client.call(tube + "put", "first", {"pri": -1, "utube": 7})
    short = client.call(tube + "put", "short", {"ttl": 2, "pri": 3, "utube": "c"})[0]
    delayed = client.call(tube + "put", "delayed", {"delay": 1.5, "ttl": 10, "utube": "d"})[0]
    assert (short[1], delayed[1]) == ("r", "~")
    assert [client.call(tube + "take", 0)[0][2] for _ in range(2)] == ["first", "early"]
    clock.advance(2)
    assert client.refused(tube + "peek", short[0]) == (32, f"Task {short[0]} not found")
    assert client.call(tube + "take", 0) == [[delayed[0], "t", "delayed"]]
    assert client.call(tube + "take", 0)[0][2] == "late"


def test_kinds_without_times_overlook_options_of_times(client):  # case 6
    options = {"ttl": 0, "ttr": 1, "pri": "x", "delay": 5}
    for tube in ("queue.tube.fifo:", "queue.tube.utube:"):
        number = client.call(tube + "put", "x", options)[0][0]
        assert client.call(tube + "take", 0) == [[number, "t", "x"]]


@pytest.mark.parametrize("options", [None, [], {}, {"ttl": None, "pri": None}, {"nosuch": 1}], ids=repr)
def test_no_options_come_in_many_forms(client, options):
    for kind in KINDS:
        number = client.call(f"queue.tube.{kind}:put", "x", options, "more", 5)[0][0]
        client.call(f"queue.tube.{kind}:take", 0)
        assert client.call(f"queue.tube.{kind}:release", number, options)[0][1] == "r"


def test_bad_options_are_refused_and_nothing_is_put(client):
    put = "queue.tube.fifottl:put"
    assert client.refused(put, "x", {"pri": 1.5})[0] == 23
    assert client.refused(put, "x", {"pri": "1"})[0] == 23
    for options in ({"ttl": "abc"}, {"ttr": "5"}, {"delay": []}, {"ttl": True}):
        code, text = client.refused(put, "x", options)
        assert code == 32 and text.startswith("attempt to compare"), options
    assert "NaN" in client.refused(put, "x", {"ttl": float("nan")})[1]
    assert "options must be a map" in client.refused(put, "x", "ttl")[1]
    assert "utube must be text" in client.refused("queue.tube.utube:put", "x", {"utube": {}})[1]
    assert client.call("queue.statistics", "fifottl")[0]["tasks"]["total"] == 0


def test_a_negative_ttl_is_none_at_all_and_a_huge_one_is_for_ever(client, clock):
    client.call("queue.tube.fifottl:put", "gone", {"ttl": -1})
    number = client.call("queue.tube.fifottl:put", "stays", {"ttl": 1e18})[0][0]
    clock.advance(1e8)
    assert client.call("queue.tube.fifottl:take", 0) == [[number, "t", "stays"]]


def test_one_task_of_a_subqueue_at_a_time(client):
    tube = "queue.tube.utube:"
    for data, lane in (
        ("a1", "a"),
        ("a2", "a"),
        ("1", 1),
        ("1 as text", "1"),
        ("true", True),
        ("none", None),
        ("nil", None),
    ):
        client.call(tube + "put", data, {"utube": lane})
    taken = [client.call(tube + "take", 0)[0] for _ in range(4)]
    assert [task[2] for task in taken] == ["a1", "1", "true", "none"]
    assert client.call(tube + "take", 0) == []
    client.call(tube + "ack", taken[0][0])
    assert client.call(tube + "take", 0)[0][2] == "a2"


def test_take_without_a_timeout_waits_for_ever(server, client, connect):  # case 23
    for args in ((), (None,)):
        waiter = connect().later("queue.tube.fifo:take", *args)
        waiting(server, "fifo")
        number = client.call("queue.tube.fifo:put", "x")[0][0]
        assert waiter.result() == [[number, "t", "x"]]


def test_take_with_a_timeout_answers_nothing_when_it_is_over(server, client, connect, clock):  # case 193
    assert client.call("queue.tube.fifo:take", 0) == []
    assert client.call("queue.tube.fifo:take", -1.5) == []
    waiter = connect().later("queue.tube.fifo:take", 2.5)
    waiting(server, "fifo")
    clock.advance(2.4)
    waiting(server, "fifo")
    clock.advance(0.1)
    assert waiter.result() == []
    code, text = client.refused("queue.tube.fifo:take", "abc")
    assert code == 32 and text.startswith("attempt to compare string with number")


def test_who_came_first_is_served_first_whatever_its_timeout(server, client, connect):  # case 28
    first = connect().later("queue.tube.fifo:take", 10)
    waiting(server, "fifo")
    second = connect().later("queue.tube.fifo:take", 1)
    waiting(server, "fifo", 2)
    client.call("queue.tube.fifo:put", "a")
    assert first.result()[0][2] == "a"
    client.call("queue.tube.fifo:put", "b")
    assert second.result()[0][2] == "b"


def test_a_full_tube_answers_nil_at_once_or_after_the_timeout(server, client, connect, clock):  # cases 91, 96
    client.call("queue.create_tube", "lim", "limfifottl", {"capacity": 3})
    tube = "queue.tube.lim:"
    numbers = [client.call(tube + "put", n)[0][0] for n in range(3)]
    assert client.call(tube + "put", 3) == [None]
    assert client.call(tube + "put", 3, {"timeout": 0}) == [None]
    late = connect().later(tube + "put", 3, {"timeout": 0.1})
    until(lambda: server.server.core.engine.store.waiters == 1)
    clock.advance(0.1)
    assert late.result() == [None]
    assert client.call("queue.statistics", "lim")[0]["tasks"]["total"] == 3
    patient = connect().later(tube + "put", 3, {"timeout": 60})
    until(lambda: server.server.core.engine.store.waiters == 1)
    client.call(tube + "delete", numbers[0])
    assert patient.result()[0][1:] == ["r", 3]


# -- the end of a lease --------------------------------------------------------------------------------


def test_only_the_session_that_took_a_task_may_end_it(client, connect):  # case 38
    other = connect()
    for kind in KINDS:
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x")[0][0]
        client.call(tube + "take", 0)
        for verb in ("ack", "release"):
            assert other.refused(tube + verb, number) == (32, "Task was not taken")
        assert client.call(tube + "ack", number) == [[number, "-", "x"]]


def test_what_nobody_took_cannot_be_ended(client):  # case 39
    ready = client.call("queue.tube.fifottl:put", "x")[0][0]
    for number in (ready, 999):
        for verb in (("ack",), ("release",), ("touch", 5)):
            assert client.refused(f"queue.tube.fifottl:{verb[0]}", number, *verb[1:]) == (32, "Task was not taken")
    client.call("queue.tube.fifottl:take", 0)
    client.call("queue.tube.fifottl:ack", ready)
    assert client.refused("queue.tube.fifottl:ack", ready) == (32, "Task was not taken")


def test_after_its_ttr_a_task_is_another_ones(client, connect, clock):  # case 64
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", "x", {"ttr": 5})[0][0]
    client.call(tube + "take", 0)
    clock.advance(5)
    assert client.refused(tube + "ack", number) == (32, "Task was not taken")
    client.call(tube + "take", 0)
    clock.advance(5)
    other = connect()
    assert other.call(tube + "take", 0) == [[number, "t", "x"]]
    assert client.refused(tube + "ack", number) == (32, "Task was not taken")
    clock.advance(5)
    assert client.call(tube + "take", 0) == [[number, "t", "x"]]
    assert client.call(tube + "ack", number) == [[number, "-", "x"]], "taken again by the same session"


def test_what_another_connection_of_the_session_took_again_can_be_ended(client, connect, clock):
    tube = "queue.tube.fifottl:"
    one, two = connect(encoding=None), connect(encoding=None)
    two.call("queue.identify", one.call("queue.identify")[0])
    number = one.call(tube + "put", "x", {"ttr": 5})[0][0]
    one.call(tube + "take", 0)
    clock.advance(5)
    assert two.call(tube + "take", 0) == [[number, b"t", b"x"]]
    assert one.call(tube + "ack", number) == [[number, b"-", b"x"]]


def test_a_release_may_delay(client, clock):
    for kind in TIMED:
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x")[0][0]
        client.call(tube + "take", 0)
        assert client.call(tube + "release", number, {"delay": 3}) == [[number, "~", "x"]]
        assert client.call(tube + "take", 0) == []
        clock.advance(3)
        assert client.call(tube + "take", 0) == [[number, "t", "x"]]
        assert client.call(tube + "release", number, {"delay": 0}) == [[number, "r", "x"]]


def test_a_release_begins_no_new_life(client, clock):  # case 208
    client.call("queue.create_tube", "short", "fifottl", {"ttl": 5})
    number = client.call("queue.tube.short:put", "x")[0][0]
    client.call("queue.tube.short:take", 0)
    clock.advance(3)
    assert client.call("queue.tube.short:release", number) == [[number, "r", "x"]]
    clock.advance(2)
    assert client.refused("queue.tube.short:peek", number) == (32, f"Task {number} not found")


def test_kinds_without_delays_release_at_once(client):  # case 43
    for kind in ("fifo", "utube"):
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x")[0][0]
        client.call(tube + "take", 0)
        assert client.call(tube + "release", number, {"delay": 5}) == [[number, "r", "x"]]
        assert client.call(tube + "take", 0) == [[number, "t", "x"]]


def test_a_bad_release_keeps_the_task_taken(client):
    number = client.call("queue.tube.fifottl:put", "x")[0][0]
    client.call("queue.tube.fifottl:take", 0)
    assert client.refused("queue.tube.fifottl:release", number, {"delay": "x"})[0] == 32
    assert client.call("queue.tube.fifottl:ack", number) == [[number, "-", "x"]]


def test_touch_gives_more_time_to_the_holder_alone(client, connect, clock):
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", "x", {"ttr": 5, "ttl": 100})[0][0]
    client.call(tube + "take", 0)
    assert connect().refused(tube + "touch", number, 5) == (32, "Task was not taken")
    assert client.call(tube + "touch", number, 4.5) == [[number, "t", "x"]]
    clock.advance(9.4)
    assert client.call(tube + "peek", number) == [[number, "t", "x"]]
    clock.advance(0.1)
    assert client.call(tube + "peek", number) == [[number, "r", "x"]]


def test_touch_lengthens_this_run_and_no_later_one(client, clock):  # case 78
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", "x", {"ttr": 5, "ttl": 100})[0][0]
    client.call(tube + "take", 0)
    client.call(tube + "touch", number, 5)
    clock.advance(10)
    client.call(tube + "take", 0)
    clock.advance(5)
    assert client.call(tube + "peek", number) == [[number, "r", "x"]]


def test_a_touch_by_nothing_answers_nothing(client):
    for args in ((), (None,), (0,), (-5,)):
        assert client.call("queue.tube.fifottl:touch", 999, *args) == []
    for kind in ("fifo", "utube"):
        number = client.call(f"queue.tube.{kind}:put", "x")[0][0]
        client.call(f"queue.tube.{kind}:take", 0)
        text = f"{kind} queue does not support touch"
        assert client.refused(f"queue.tube.{kind}:touch", number, 5) == (32, text)


def test_ttl_tears_no_task_from_its_holder(client, clock):  # case 66
    for kind in TIMED:
        tube = f"queue.tube.{kind}:"
        number = client.call(tube + "put", "x", {"ttl": 1, "ttr": 100})[0][0]
        client.call(tube + "take", 0)
        clock.advance(2)
        assert client.call(tube + "peek", number) == [[number, "t", "x"]]
        assert client.call(tube + "ack", number) == [[number, "-", "x"]]


# -- what anybody may do -------------------------------------------------------------------------------


def test_anybody_buries_any_task(server, client, connect):  # case 45
    other = connect()
    for kind in KINDS:
        tube = f"queue.tube.{kind}:"
        ready = client.call(tube + "put", "ready", {"utube": "a"})[0][0]
        assert other.call(tube + "bury", ready) == [[ready, "!", "ready"]]
        assert other.call(tube + "bury", ready) == [[ready, "!", "ready"]]
        taken = client.call(tube + "put", "taken", {"utube": "b"})[0][0]
        client.call(tube + "take", 0)
        third = connect().later(tube + "take")
        waiting(server, kind)
        assert other.call(tube + "bury", taken) == [[taken, "!", "taken"]]
        waiting(server, kind)
        assert client.refused(tube + "ack", taken) == (32, "Task was not taken")
        assert other.call(tube + "kick", 1) == [1]
        assert third.result() == [[ready, "t", "ready"]]
        assert other.refused(tube + "bury", 999) == (32, "Task 999 not found")


def test_kick_answers_how_many(client):
    tube = "queue.tube.fifo:"
    numbers = [client.call(tube + "put", n)[0][0] for n in range(3)]
    for number in numbers:
        client.call(tube + "bury", number)
    assert client.call(tube + "kick") == [1]
    assert client.call(tube + "peek", numbers[0])[0][1] == "r"
    assert client.call(tube + "kick", 0) == [0]
    assert client.call(tube + "kick", -1) == [0]
    assert client.call(tube + "kick", None) == [1]
    assert client.call(tube + "kick", 5.0) == [1]
    assert "'for' limit must be a number" in client.refused(tube + "kick", "x")[1]


def test_anybody_deletes_any_task(client, connect):
    other = connect()
    tube = "queue.tube.fifottl:"
    taken = client.call(tube + "put", "taken")[0][0]
    client.call(tube + "take", 0)
    assert other.call(tube + "delete", taken) == [[taken, "-", "taken"]]
    assert other.refused(tube + "delete", taken) == (32, f"Task {taken} not found")
    assert client.refused(tube + "ack", taken) == (32, "Task was not taken")


def test_ids_are_checked(client):
    tube = "queue.tube.fifo:"
    kind = "Supplied key type of part {} does not match index part type: expected unsigned"
    for value in ("x", -1, 1.5, {}, True, 2**63, [], [1.5]):
        for verb, part in (("ack", 1), ("peek", 0), ("delete", 0), ("bury", 0), ("release", 1)):
            code, text = client.refused(tube + verb, value)
            assert code == 18 and text.startswith(kind.format(part)), (verb, value)
    assert client.refused(tube + "ack")[0] == 19
    assert "(expected 2, got 1)" in client.refused(tube + "release", None)[1]
    assert "(expected 1, got 0)" in client.refused(tube + "peek")[1]
    number = client.call(tube + "put", "x")[0][0]
    assert client.call(tube + "peek", float(number)) == [[number, "r", "x"]]


def test_tubes_with_other_ids_work_too(client):
    client.call("queue.create_tube", "named", "fifo", {"id": "uuid"})
    name = client.call("queue.tube.named:put", "x")[0][0]
    assert client.call("queue.tube.named:take", 0) == [[name, "t", "x"]]
    assert client.call("queue.tube.named:ack", name) == [[name, "-", "x"]]


def test_a_tube_is_emptied_and_its_tasks_released(client, connect):
    tube = "queue.tube.fifo:"
    numbers = [client.call(tube + "put", n)[0][0] for n in range(2)]
    client.call(tube + "take", 0)
    connect().call(tube + "take", 0)
    assert client.call("queue.statistics", "fifo")[0]["tasks"]["taken"] >= 1
    assert client.call(tube + "release_all") == []
    assert client.call(tube + "peek", numbers[0])[0][1] == "r"
    client.call(tube + "take", 0)
    assert client.call(tube + "truncate") == []
    assert client.refused(tube + "ack", numbers[0]) == (32, "Task was not taken")
    assert client.call("queue.statistics", "fifo")[0]["tasks"]["total"] == 0


def test_a_tube_in_use_is_not_dropped(server, client, connect):
    tube = "queue.tube.fifo:"
    client.call(tube + "put", 1)
    number = client.call(tube + "take", 0)[0][0]
    code, text = client.refused(tube + "drop")
    assert code == 32 and text.startswith("There are taken tasks in the tube")
    client.call(tube + "ack", number)
    waiter = connect().later(tube + "take")
    waiting(server, "fifo")
    code, text = client.refused(tube + "drop")
    assert code == 32 and text.startswith("There are consumers connected the tube")
    client.call(tube + "put", 2)
    client.call(tube + "delete", waiter.result()[0][0])
    assert client.call(tube + "drop") == [True]


def test_a_tube_that_was_made_anew_is_another_one(client, connect):
    other = connect()
    other.call("queue.tube.fifo:put", "x", {"ttl": 0})
    client.call("queue.tube.fifo:drop")
    client.call("queue.create_tube", "fifo", "fifottl")
    assert other.call("queue.tube.fifo:put", "x", {"delay": 5})[0][1] == "~"


# -- counters, state, settings -------------------------------------------------------------------------


def test_statistics_have_the_modules_shape(client, clock):  # case 122
    tube = "queue.tube.fifottl:"
    number = client.call(tube + "put", 1)[0][0]
    client.call(tube + "put", 2, {"ttl": 1})
    client.call(tube + "put", 3, {"delay": 100})
    client.call(tube + "take", 0)
    client.call(tube + "ack", number)
    clock.advance(1)
    found = client.call("queue.statistics", "fifottl")[0]
    assert found == {
        "tasks": {"taken": 0, "buried": 0, "ready": 0, "done": 2, "delayed": 1, "total": 1},
        "calls": {
            **dict.fromkeys(("bury", "delete", "kick", "release", "touch", "ttr", "delay"), 0),
            "put": 3,
            "take": 1,
            "ack": 1,
            "ttl": 1,
        },
    }
    assert client.call("queue.stats", "fifottl") == [found]
    every = client.call("queue.statistics")[0]
    assert set(every) == set(KINDS) and every["fifottl"] == found
    assert client.call("queue.stats") == [every]
    for name in ("nosuch", 5):
        code, text = client.refused("queue.statistics", name)
        assert code == 32 and text.startswith("attempt to index a nil value")


def test_the_state_is_running(client):
    assert client.call("queue.state") == ["RUNNING"]


def test_settings_are_checked_before_any_is_changed(server, client):
    assert client.call("queue.cfg") == client.call("queue.cfg", {}) == client.call("queue.cfg", []) == []
    assert client.call("queue.cfg", {"ttr": 1.5, "in_replicaset": True}) == []
    assert server.server.sessions.linger == 1_500_000
    assert client.refused("queue.cfg", {"ttr": -1}) == (32, "Invalid value of ttr: -1")
    assert client.refused("queue.cfg", {"ttr": "x"}) == (32, "Invalid value of ttr: x")
    assert client.refused("queue.cfg", {"ttr": 5, "foo": 1}) == (32, "Unknown option foo")
    assert client.refused("queue.cfg", {"ttr": 5, "in_replicaset": 1}) == (32, "Invalid value of in_replicaset: 1")
    assert server.server.sessions.linger == 1_500_000
    assert client.call("queue.cfg", {"ttr": 0}) == []
    assert server.server.sessions.linger == 0


def test_older_calls_answer_rows(server, client, connect):
    old = connect(call_16=True)
    number = old.call("queue.tube.fifo:put", "x")[0][0]
    assert old.call("queue.tube.fifo:take", 0) == [[number, "t", "x"]]
    assert old.call("queue.tube.fifo:take", 0) == []
    assert old.call("queue.tube.fifo:kick", 5) == [[0]]
    assert old.call("queue.state") == [["RUNNING"]]
    assert old.call("queue.tube") == [sorted(KINDS)]


def test_more_leases_than_a_connection_remembers_are_ended_all_the_same(client, monkeypatch):
    monkeypatch.setattr(tarantool_caller, "MAX_LEASES", 2)
    monkeypatch.setattr(tarantool_caller, "MAX_REMEMBERED", 100)
    tube = "queue.tube.fifo:"
    tasks = [client.call(tube + "put", data)[0] for data in ("a", "b", "c", "x" * 200)]
    for number, _, data in tasks:
        assert client.call(tube + "take", 0) == [[number, "t", data]]
    for number, _, data in tasks:
        assert client.call(tube + "ack", number) == [[number, "-", data]]


# -- logins --------------------------------------------------------------------------------------------


def test_a_login_does_what_its_roles_say(tmp_path):  # case 161
    secrets = {name: new_token() for name in ("worker", "producer", "reader", "boss")}
    rights = {
        "worker": new_right(["take"], ["jobs"]),
        "producer": new_right(["put"], ["jobs"]),
        "reader": new_right(["read"], ["*"]),
        "boss": new_right(["admin"], ["*"]),
    }
    file = str(tmp_path / "logins.toml")
    write_entries(file, {n: Entry(Login(n, (rights[n],)), (Secret.of(secrets[n]),)) for n in secrets})
    with Running("memory:", logins=file) as server:
        port = server.server.port()
        guest = Client(port)
        worker, producer, reader, boss = (Client(port, user=n, password=secrets[n]) for n in secrets)
        put, take = "queue.tube.jobs:put", "queue.tube.jobs:take"
        boss.call("queue.create_tube", "jobs", "fifo")
        denied = f"Execute access to function '{put}' is denied for user "
        for client, name in ((guest, "guest"), (worker, "worker"), (reader, "reader")):
            code, text = client.refused(put, 1)
            assert code == 42 and text.startswith(f"{denied}'{name}'")
        assert producer.refused("queue.tube.other:put", 1)[0] == worker.refused("queue.tube.other:take")[0] == 42
        numbers = [producer.call(put, n)[0][0] for n in range(4)]
        assert producer.refused(take, 0)[0] == reader.refused(take, 0)[0] == 42
        assert worker.call("queue.tube.jobs:bury", numbers[0])[0][1] == "!"
        assert worker.call("queue.tube.jobs:kick", 1) == [1]
        assert worker.call("queue.tube.jobs:delete", numbers[0])[0][1] == "-"
        assert worker.call(take, 0)[0][0] == numbers[1]
        assert worker.refused("queue.tube.jobs:peek", numbers[1])[0] == 42
        assert reader.call("queue.tube.jobs:peek", numbers[1])[0][1] == "t"
        assert worker.call("queue.tube.jobs:ack", numbers[1])[0][1] == "-"
        for function in ("queue.tube.jobs:truncate", "queue.tube.jobs:drop", "queue.tube.jobs:release_all"):
            assert worker.refused(function)[0] == 42
        assert worker.refused("queue.create_tube", "x", "fifo")[0] == worker.refused("queue.cfg", {"ttr": 5})[0] == 42
        assert reader.call("queue.statistics", "jobs")[0]["tasks"]["total"] == 2
        assert reader.refused("queue.tube.jobs:kick")[0] == producer.refused("queue.tube.jobs:delete", 3)[0] == 42
        assert boss.call("queue.tube.jobs:truncate") == boss.call("queue.cfg", {"ttr": 0}) == []
        for client in (guest, worker, producer, reader, boss):
            client.close()


# -- order ---------------------------------------------------------------------------------------------


def test_calls_of_one_connection_are_performed_in_their_order(server):
    """Some take several steps; what was sent behind them has to see what they did."""
    from penstock.server.auth import EVERYTHING
    from penstock.server.peer import Peer
    from penstock.server.tarantool import Facade

    async def pipeline() -> list[Any]:
        core, sessions = server.server.core, server.server.sessions
        peer = Peer("here", EVERYTHING)
        facade = Facade(core, sessions, peer)
        answers: list[Any] = []
        done = core.loop.create_future()
        calls: list[tuple[str, list[Any]]] = [
            ("queue.create_tube", ["x", "fifottl"]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:put", ["a"]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:put", ["b", {"pri": 1}]),
            ("queue.tube.x:take", [0]),
            ("queue.tube.x:drop", []),
            ("queue.tube.x:release_all", []),
            ("queue.tube.x:drop", []),
            ("queue.tube.x:put", ["c"]),
        ]

        def then(answer: Any) -> None:
            answers.append(answer if isinstance(answer, list) else answer.text)
            if len(answers) == len(calls):
                done.set_result(None)

        for name, args in calls:
            facade.call(name, args, then)
        await done
        await sessions.leave(peer)
        return answers

    answers = run(pipeline())
    assert [row[0][1:] if row and row[0] is not True else row for row in answers[1:7]] == [
        [],
        ["r", "a"],
        ["t", "a"],
        [],
        ["r", "b"],
        ["t", "b"],
    ]
    assert answers[7].startswith("There are taken tasks")
    assert answers[8:] == [[], [True], "Procedure 'queue.tube.x:put' is not defined"]
