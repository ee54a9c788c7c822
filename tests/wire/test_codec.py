"""Ops, answers and errors come out of the codec as they went in; anything else is refused with a reason."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import payload as payloads
from penstock.model import errors, ops
from penstock.model.duration import FOREVER, At
from penstock.model.errors import PenstockError, UsageError
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.ledger import Note
from penstock.model.retry import Exponential
from penstock.model.session import Session
from penstock.model.staging import Lost, Promoted, StagedJob
from penstock.model.state import Reason, State
from penstock.model.stats import Counters
from penstock.model.task import Draft, Gone, HistoryRow, Placed, Record
from penstock.model.tube import KINDS, Adoption, new_tube
from penstock.wire import codec, talk

SESSION = Session("8a53a1c0-7b6a-4f5e-9d3e-0c1d2e3f4a5b", "host:1", 30_000_000, direct=False)
LEASE = ops.Lease(7, 5 << 32)
CONFIG = new_tube("jobs", KINDS["standard"], False, {"ttl": 5, "retry": Exponential(max=9), "lane_rate": 0.5})
ODD = {
    "a": dt.timedelta(seconds=1.5),
    "b": Exponential(base=2),
    "c": (1, "x", None),
    "d": [1.5, True],
    "e": Decimal("1.10"),
    "f": uuid.UUID(int=7),
    "g": dt.date(2026, 1, 2),
    "h": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    "i": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    "j": dt.time(3, 4),
    "k": 1 << 90,
    "l": b"\0\xff",
    "m": {"n": float("inf")},
    "o": None,
}


def record(**values: Any) -> Record:
    fields = {**dict.fromkeys(Record._fields), "seq": 1, "id": 1, "state": "ready", "data": "1", "pri": 0, **values}
    for name in ("attempt", "failures", "created_at", "cancel_asked"):
        fields[name] = fields[name] or 0
    return Record(**fields)


HISTORY = HistoryRow(*(1, 2, "jobs", ("a", 1), "put", None, "ready", None, 0, -5), *[None] * 8, b"x")
PAIRS: list[tuple[ops.Op[Any], Any]] = [
    (ops.CreateTube(CONFIG, True, {"ttl": 5, "retry": Exponential(max=9)}), CONFIG),
    (ops.GetTube("jobs"), CONFIG),
    (ops.ListTubes(), [CONFIG, CONFIG]),
    (ops.AlterTube("jobs", ODD), CONFIG),
    (ops.PauseTube("jobs", True), CONFIG),
    (ops.TruncateTube("jobs"), 5),
    (ops.DropTube("jobs", force=True), None),
    (ops.AdoptTable(Adoption("o", "orders", {"status": "s"}, {"retry": (1, 2)}, ODD)), CONFIG),
    (
        ops.Put("jobs", (Draft("1"), Draft(b"\0", -5, "derived", 1, At(7), "l", "k", "replace", "p", ("a", 1)))),
        [Placed(record(id=("a", 1), data=b"\0"), "existing"), errors.DuplicateKey("there")],
    ),
    (ops.Load("jobs", ["1", b"2"], [1, None], None, Draft("")), [errors.PayloadTooLarge("long")]),
    (ops.Take("jobs", 3, SESSION, 5, "lane", True), None),
    (
        ops.Ack("jobs", (ops.Finish(LEASE, "1", 3, ODD), ops.Finish(LEASE), ops.Finish(LEASE)), SESSION),
        [record(), Gone(5), errors.LeaseLost("late", "finished")],
    ),
    (ops.Release("jobs", LEASE, SESSION, At(1), 2, 3, b"x", True, ODD), record()),
    (ops.Bury("jobs", LEASE, SESSION, "broken", {"a": 1}), record()),
    (ops.Fail("jobs", LEASE, SESSION, "broken", 5, Reason.ABORTED), record()),
    (ops.Touch("jobs", LEASE, SESSION, 5), record()),
    (ops.Peek("jobs", "id"), record()),
    (ops.Watch("jobs", ("a", 1), 7), record(state="done")),
    (ops.Kick("jobs", None, At(5), 6, {"a": 1}), 7),
    (ops.Dig("jobs", 1, 2, 3), record()),
    (ops.Delete("jobs", 1), record()),
    (ops.ReleaseAll("jobs"), 3),
    (ops.Snatch("jobs", 1, 5), record()),
    (ops.Switch("jobs", 1, State.BURIED), record()),
    (ops.Restart("jobs", 1), record()),
    (ops.Cancel("jobs", key="k"), None),
    (ops.AddRetries("jobs", 2), 2),
    (ops.ListTasks("jobs", State.DONE, 5, ("a", 1)), [record(), record(data=b"x")]),
    (ops.GetExtent("jobs"), (1, 2)),
    (ops.ConfigureLane("jobs", "l", {"rate": None, "burst": 2}), LaneLimits(1, 0.5, 2, True)),
    (ops.ListLanes("jobs", 5, "a"), [LaneInfo("a", 1, 2, LaneLimits(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))]),
    (ops.GetStatistics(), {"jobs": Counters.zero().statistics()}),
    (ops.ReadHistory("jobs", 1, 2, 3), [HISTORY]),
    (ops.ForgetHistory(5), 1),
    (ops.MarkHistory(1, 2, 3, "jobs", 4), [1, 2]),
    (ops.WriteLedger("l", 0, ("a", "b")), None),
    (ops.ReadLedger("l"), [Note(1, "a")]),
    (ops.LastNotes("l", 2), [Note(1, "a")]),
    (ops.TrimLedger("l", 5), 4),
    (ops.ListLedgers("a", 5, "b"), ["a", "b"]),
    (ops.Stage("jobs", "job", "part", b"arrow"), 5),
    (ops.Promote("jobs", "job", (("a", 1), ("b", 2)), "replace"), Promoted(1, 2, 3, 4)),
    (ops.Discard("job"), 1),
    (ops.ListStaged(), [StagedJob("job", "jobs", 1, 2)]),
    (ops.OpenSession(SESSION), None),
    (ops.Identify(SESSION.uuid, SESSION), SESSION),
    (ops.KeepAlive(SESSION, 5), [1, 2]),
    (ops.EndSession(SESSION), 3),
    (ops.ListLeases(SESSION, 1), [ops.Held("jobs", ("a", 1), 5)]),
    (ops.Tick(), None),
    (ops.GetState(), "RUNNING"),
    (ops.GetMoment(), 1 << 50),
]


def alike(one: Any, two: Any) -> bool:
    """Errors are alike by class, text and details."""
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(alike(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, BaseException):
        return (type(one), str(one), vars(one)) == (type(two), str(two), vars(two))
    return bool(one == two)


def test_every_op_is_here() -> None:
    assert [type(op) for op, _ in PAIRS] == list(ops.ALL)


def test_the_first_words_may_grow() -> None:
    """A release may meet a later one at the other end, when a server is taken over by its successor."""
    hello, welcome = talk.Hello(1, "c", None), talk.Welcome(1, "i", "s", True, False, 5, 6)
    for said, decode in ((hello, talk.decode_hello), (welcome, talk.decode_welcome)):
        plain = msgspec.msgpack.decode(codec.pack(said))
        assert decode(codec.pack(said)) == decode(codec.pack([*plain, "new", {"more": 1}])) == said


@pytest.mark.parametrize(("op", "answer"), PAIRS, ids=lambda it: type(it).__name__ if isinstance(it, ops.Op) else "")
def test_comes_out_as_it_went_in(op: ops.Op[Any], answer: Any) -> None:
    assert codec.decode_ops(codec.encode_ops([op, op])) == [op, op]
    assert alike(codec.decode_answers([op], codec.encode_answers([op], [answer])), [answer])
    assert alike(codec.decode_answer(op, codec.encode_answer(op, answer)), answer)
    assert talk.decode_wait(talk.encode_wait(op, None, [1])) == (op, None, [1])
    assert talk.decode_in(talk.encode_in(7, op)) == (7, op)


def test_every_error_comes_back_as_the_same_class() -> None:
    made: list[PenstockError] = [kind(f"{kind.code} ü") for kind in errors.ALL]
    made += [errors.EngineUnavailable("gone", "unknown"), errors.NotOwner("no", "host:5"), Lost("part", "not_done")]
    for error in made:
        if isinstance(error, errors.TaskFailed):
            continue  # of the facade: it has a task
        assert alike(codec.decode_error(codec.encode_error(error)), error)
        assert alike(codec.decode_answer(ops.GetState(), codec.encode_answer(ops.GetState(), error)), error)


def test_results_of_a_batch_come_with_its_error() -> None:
    results = [Placed(record(), "new"), record(id=("a", 1)), errors.TubeFull("full")]
    came = codec.decode_error(codec.encode_error(errors.BatchError("some", results)))
    assert isinstance(came, errors.BatchError) and alike(came.results, results)


def test_an_error_that_is_not_ours_may_have_come_after_anything() -> None:
    came = codec.decode_error(codec.encode_error(KeyError("x")))
    assert isinstance(came, errors.EngineUnavailable) and came.outcome == "unknown" and "KeyError" in str(came)


def test_a_text_that_is_not_unicode_can_be_told() -> None:
    assert "ud800" in str(codec.decode_error(codec.encode_error(UsageError("\ud800"))))


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
IDS = WHOLE | TEXT | st.lists(WHOLE | TEXT, max_size=3).map(tuple)
MAYBE = st.none() | WHOLE
TIME = st.none() | st.integers(0, FOREVER)
DELAY = st.none() | st.integers(-FOREVER, FOREVER) | WHOLE.map(At)
NAME = st.none() | TEXT
COUNT = st.none() | st.integers(1, 1 << 62)
DRAFTS = st.tuples(
    *(TEXT.map(payloads.encode) | st.binary(), MAYBE, TIME | st.just("derived"), TIME, DELAY, NAME, NAME),
    *(st.sampled_from(["error", "ignore"]), NAME, IDS, COUNT, TIME, st.none() | st.integers(1, FOREVER)),
).map(lambda values: Draft(*values))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary(max_size=9),
    lambda part: st.lists(part, max_size=3) | st.tuples(part, part) | st.dictionaries(TEXT, part, max_size=3),
    max_leaves=8,
)


SAME = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
"""The same values in every run, however slow the machine is."""


@SAME
@given(st.lists(DRAFTS, max_size=4), IDS, st.dictionaries(TEXT, PLAIN, max_size=4))
def test_any_values_come_out_as_they_went_in(drafts: list[Draft], task: Any, options: dict[str, Any]) -> None:
    asked = [ops.Put("jobs", tuple(drafts)), ops.Peek("jobs", task), ops.AlterTube("jobs", options)]
    assert codec.decode_ops(codec.encode_ops(asked)) == asked


def test_long_data_does_not_come_back() -> None:
    op, long = ops.Put("jobs", (Draft("x" * 5000),)), record(data="x" * 5000)
    payload = codec.encode_answer(op, [Placed(long, "new")])
    assert len(payload) < 1000
    assert codec.decode_answer(op, payload) == [Placed(long, "new")]
    other = codec.encode_answer(op, [Placed(long, "existing")])
    assert codec.decode_answer(op, other) == [Placed(long, "existing")]


def test_a_session_is_never_one_of_a_direct_process() -> None:
    [came] = codec.decode_ops(codec.encode_ops([ops.EndSession(SESSION._replace(direct=True))]))
    assert came == ops.EndSession(SESSION)


encode = msgspec.msgpack.encode
BAD: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "nothing": (codec.decode_ops, b""),
    "cut off": (codec.decode_ops, codec.encode_ops([ops.GetTube("jobs")])[:-1]),
    "too much": (codec.decode_ops, codec.encode_ops([ops.GetTube("jobs")]) + b"\0"),
    "no such op": (codec.decode_ops, encode([[99, "jobs"]])),
    "negative op": (codec.decode_ops, encode([[-1, "jobs"]])),
    "op by name": (codec.decode_ops, encode([["GetTube", "jobs"]])),
    "a map": (codec.decode_ops, encode([{"tube": "jobs"}])),
    "wrong type": (codec.decode_ops, encode([[1, 5]])),
    "one field too many": (codec.decode_ops, encode([[1, "jobs", 5]])),
    "one too few": (codec.decode_ops, encode([[1]])),
    "data that is a list": (codec.decode_ops, encode([[8, "jobs", [[[1]]]]])),
    "data that is a number": (codec.decode_ops, encode([[9, "jobs", [5], None, None, [""]]])),
    "not unicode": (codec.decode_ops, b"\x91\x92\x01\xa1\xff"),
    "an unknown extension": (codec.decode_ops, encode([[3, "jobs", {"a": msgspec.msgpack.Ext(99, b"")}]])),
    "a bad extension": (codec.decode_ops, encode([[3, "jobs", {"a": msgspec.msgpack.Ext(codec.DECIMAL, b"\xa1x")}]])),
    "an array that claims to be long": (codec.decode_ops, b"\xdd\xff\xff\xff\xff"),
    "deep": (codec.decode_ops, b"\x91" * 100_000),
    "wrong name of a tube": (codec.decode_ops, encode([[0, {"name": "../x"}, False, None]])),
    "no answer": (lambda payload: codec.decode_answers([ops.GetState()], payload), encode([])),
    "an answer to something else": (lambda payload: codec.decode_answer(ops.GetState(), payload), encode([2, None])),
    "an answer of another type": (lambda payload: codec.decode_answer(ops.GetState(), payload), encode([4, 5])),
    "no error": (codec.decode_error, encode([1])),
    "no wait": (talk.decode_wait, encode([1])),
}


@pytest.mark.parametrize("case", BAD)
def test_what_has_another_shape_is_refused(case: str) -> None:
    decode, payload = BAD[case]
    with pytest.raises(UsageError):
        decode(payload)


UNFIT: dict[str, ops.Op[Any]] = {
    "no JSON": ops.Put("jobs", (Draft("{"),)),
    "a NUL in JSON": ops.Put("jobs", (Draft('"\\u0000"'),)),
    "repeat": ops.Put("jobs", (Draft("1", repeat=0),)),
    "ttl": ops.Put("jobs", (Draft("1", ttl=-1),)),
    "max_attempts": ops.Put("jobs", (Draft("1", max_attempts=-1),)),
    "a NUL in a key": ops.Put("jobs", (Draft("1", key="a\0b"),)),
    "take of none": ops.Take("jobs", 0, SESSION),
    "take of fewer than none": ops.Take("jobs", -1, SESSION),
    "take of too many": ops.Take("jobs", 100_001, SESSION),
    "kick": ops.Kick("jobs", -3),
    "limit": ops.ListTasks("jobs", limit=-1),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_the_library_would_not_send_is_refused(case: str) -> None:
    sent = codec.encode_ops([UNFIT[case]])
    with pytest.raises(UsageError):
        codec.decode_ops(sent)


@SAME
@given(st.binary(max_size=200))
def test_no_bytes_do_harm(payload: bytes) -> None:
    for decode in (codec.decode_ops, talk.decode_wait, talk.decode_in, codec.decode_error):
        try:
            decode(payload)
        except UsageError:
            continue


@pytest.mark.parametrize(
    "change", [{"name": "../x"}, {"pri": 1 << 63}, {"ttl": -1}, {"lane_rate": -1.0}, {"max_payload": 1 << 40}]
)
def test_a_tube_that_no_call_could_make_is_refused(change: dict[str, Any]) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError):
        codec.decode_ops(codec.encode_ops([ops.CreateTube(replace(CONFIG, **change))]))


@pytest.mark.parametrize(
    "number", [1 << 64, -(1 << 63) - 1, 10**5000, -(10**5000)], ids=["2**64", "min", "big", "-big"]
)
def test_whole_numbers_of_any_length_reach_the_server(number: int) -> None:
    """The server checks options, so that the error for a value that is too large is the same on every engine."""
    op = ops.AlterTube("jobs", {"capacity": number})
    assert codec.decode_ops(codec.encode_ops([op])) == [op]


def test_what_cannot_be_sent_is_refused_with_its_name() -> None:
    for op in (ops.AlterTube("jobs", {"a": object()}), ops.TrimLedger("l", 1 << 70), ops.Peek("jobs", "\ud800")):
        with pytest.raises(UsageError, match="cannot be sent"):
            codec.encode_ops([op])


@pytest.mark.parametrize(
    "op",
    [
        ops.Peek("jobs", 1 << 63),
        ops.Peek("jobs", (1, 1 << 63)),
        ops.ListTasks("jobs", limit=(1 << 64) - 1),
        ops.Take("jobs", 1 << 63, SESSION),
        ops.Touch("jobs", ops.Lease(1, 1 << 63), SESSION, 1),
        ops.Release("jobs", LEASE, SESSION, delay=1 << 62),
        ops.Release("jobs", LEASE, SESSION, delay=At(1 << 63)),
        ops.Put("jobs", (Draft("1", pri=1 << 63),)),
        ops.Put("jobs", (Draft("1", ttl=1 << 62),)),
        ops.OpenSession(SESSION._replace(ttl=1 << 63)),
        ops.KeepAlive(SESSION._replace(ttl=0)),
        ops.OpenSession(SESSION._replace(uuid="not-a-uuid")),
        ops.OpenSession(SESSION._replace(uuid=SESSION.uuid + "\n")),
        ops.EndSession(SESSION._replace(name="x" * 10_000)),
        ops.Identify("not-a-uuid", SESSION),
    ],
    ids=lambda op: type(op).__name__,
)
def test_what_no_store_could_write_down_is_refused(op: ops.Op[Any]) -> None:
    with pytest.raises(UsageError):
        codec.decode_ops(codec.encode_ops([op]))
