"""What handlers take: types of data, checked when tasks are put and before the handler is called."""

from __future__ import annotations

import enum
import functools
import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from tests.worker.bench import work
from tests.worker.conftest import on_both

import penstock
from penstock import BatchError, Entry, UsageError

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Page:
    url: str
    depth: int = 0


@dataclass
class Site:
    name: str
    pages: list[Page] = field(default_factory=list)
    seen: datetime | None = None
    id: uuid.UUID | None = None
    price: Decimal | None = None
    colour: Colour = Colour.RED
    blob: bytes = b""
    counts: dict[int, float] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise ValueError("n must be above 0")


class Row(TypedDict):
    id: int
    name: NotRequired[str]


class Struct(msgspec.Struct, rename="camel"):
    page_url: str
    depth: Annotated[int, msgspec.Meta(ge=0)] = 0


class Tagged(msgspec.Struct, tag=True):
    n: int


class Other(msgspec.Struct, tag=True):
    text: str


class Pair(NamedTuple):
    left: int
    right: str


class Model(pydantic.BaseModel):
    url: str
    at: datetime | None = None


class Aliased(pydantic.BaseModel):
    page_url: str = pydantic.Field(alias="pageUrl")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime


class Nested(pydantic.BaseModel):
    models: list[Model] = []
    page: Page | None = None


class Checked(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("n must be even")
        return n


@pydantic.dataclasses.dataclass
class PydanticData:
    n: pydantic.PositiveInt


@dataclass
class WithModel:
    model: Model
    n: int = 0


class Generic1(pydantic.BaseModel, Generic[T]):
    value: T


NOW = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
SITE = Site("a", [Page("b", 2)], NOW, uuid.UUID(int=5), Decimal("1.50"), Colour.BLUE, b"\x00\xff", {1: 2.5}, {"x"})
GOOD: dict[str, tuple[Any, Any]] = {
    "int": (int, 5),
    "a large int": (int, 2**63 - 1),
    "float from int": (float, 5),
    "str": (str, "ä \U0001f600"),
    "bool": (bool, True),
    "None": (None, None),
    "a list": (list[int], [1, 2]),
    "a dict": (dict[str, Any], {"a": [None, {"b": 1}]}),
    "keys that are numbers": (dict[int, str], {1: "a"}),
    "a tuple": (tuple[int, str], (1, "a")),
    "a set": (set[int], {1, 2}),
    "a named tuple": (Pair, Pair(1, "x")),
    "optional, there": (Optional[Page], Page("a")),  # noqa: UP045
    "optional, none": (Page | None, None),
    "a union": (int | str, "x"),
    "a literal": (Literal["a", "b"], "b"),
    "an enum": (Colour, Colour.BLUE),
    "a datetime": (datetime, NOW),
    "a uuid": (uuid.UUID, uuid.UUID(int=7)),
    "a dataclass": (Page, Page("a", 3)),
    "a dataclass with much in it": (Site, SITE),
    "dataclasses in a list": (list[Page], [Page("a"), Page("b", 1)]),
    "a TypedDict": (Row, {"id": 1}),
    "a struct": (Struct, Struct("a", 1)),
    "one of two structs": (Tagged | Other, Other("x")),
    "a model": (Model, Model(url="a", at=NOW)),
    "models in a list": (list[Model], [Model(url="a"), Model(url="b")]),
    "models in a dict": (dict[str, Model], {"x": Model(url="a")}),
    "optional model, there": (Optional[Model], Model(url="a")),  # noqa: UP045
    "optional model, none": (Model | None, None),
    "one of two models": (Model | Checked, Checked(n=2)),
    "an alias": (Aliased, Aliased(pageUrl="x")),
    "a strict model": (Strict, Strict(at=NOW)),
    "a model of models": (Nested, Nested(models=[Model(url="a")], page=Page("b"))),
    "a generic model": (Generic1[int], Generic1[int](value=3)),
    "a dataclass of pydantic's": (PydanticData, PydanticData(n=3)),
    "a dataclass with a model": (WithModel, WithModel(Model(url="a", at=NOW))),
    "limits": (Annotated[int, msgspec.Meta(ge=0)], 0),
    "anything": (Any, {"a": [1]}),
    "object": (object, [1]),
    "a type variable": (T, 5),
}


def handler_of(q: Any, wanted: Any, seen: list[Any], tube: str = "jobs", **options: Any) -> Any:
    def job(data: Any) -> None:
        seen.append(data)

    job.__annotations__["data"] = wanted
    return q.handler(tube, **{"max_attempts": 3, "retry": 0, **options})(job)


@pytest.mark.parametrize(("wanted", "value"), GOOD.values(), ids=GOOD)
def test_a_value_that_is_put_reaches_the_handler_as_it_was(wanted: Any, value: Any) -> None:
    q = penstock.connect("memory:")
    seen: list[Any] = []
    handler = handler_of(q, wanted, seen)
    handler.put(value)
    handler.put_many([value, Entry(value, pri=1)])
    assert work(q).ok == 3
    assert seen == [value] * 3
    assert {type(one) for one in seen} == {float if wanted is float else type(value)}


def test_typed_data_go_through_every_engine(every_q: Any) -> None:
    seen: list[Any] = []
    values = {"site": (Site, SITE), "model": (list[Model], [Model(url="ä", at=NOW)]), "struct": (Struct, Struct("x"))}
    for tube, (wanted, value) in values.items():
        handler = handler_of(every_q, wanted, seen, tube)
        handler.put(value)
        handler.put_many([Entry(value, lane="a")])
    assert work(every_q, concurrency=1).ok == 6
    for _, value in values.values():
        assert seen.count(value) == 2


def test_plain_values_of_the_right_shape_may_be_put_too() -> None:
    q = penstock.connect("memory:")
    seen: list[Any] = []
    handler_of(q, Page, seen, "a").put({"url": "x"})
    handler_of(q, Model, seen, "b").put({"url": "y"})
    handler_of(q, list[Model], seen, "c").put([{"url": "z"}, Model(url="w")])
    handler_of(q, Struct, seen, "d").put({"pageUrl": "v"})
    handler_of(q, Aliased, seen, "e").put({"pageUrl": "u"})
    assert work(q, concurrency=1).ok == 5
    assert sorted(map(repr, seen)) == sorted(
        map(
            repr,
            [Page("x"), Model(url="y"), [Model(url="z"), Model(url="w")], Struct("v"), Aliased(pageUrl="u")],
        )
    )


@on_both
def test_the_data_are_stored_as_plain_json(q: Any) -> None:
    task = handler_of(q, Struct, []).put(Struct("x", 2))
    assert q.tube("jobs").peek(task.id).data == {"pageUrl": "x", "depth": 2}


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "text for int": (int, "5", "int"),
    "float for int": (int, 1.5, "int"),
    "None": (int, None, "null"),
    "a field of the wrong type": (Page, Page(5), "str"),  # type: ignore[arg-type]
    "a missing field": (Page, {"depth": 1}, "url"),
    "another class": (Page, Row(id=1), "url"),
    "an object": (Page, object(), "object"),
    "its own check": (Positive, {"n": 0}, "above 0"),
    "a missing key": (Row, {"name": "x"}, "id"),
    "a limit": (Struct, Struct("a", -1), ">= 0"),
    "a limit outside": (Annotated[int, msgspec.Meta(ge=0)], -1, ">= 0"),
    "a model's field": (Model, {"url": 5}, "url"),
    "a model's check": (Checked, {"n": 1}, "even"),
    "a model in a list": (list[Model], [{"url": "a"}, {}], "url"),
    "an object for a model": (Model, object(), "Model"),
    "NaN": (float, float("nan"), "float"),
    "lone surrogates": (str, "\ud800", "surrogates"),
    "a function": (dict[str, Any], {"f": print}, "dict"),
}


@pytest.mark.parametrize(("wanted", "value", "named"), REFUSED.values(), ids=REFUSED)
def test_what_the_handler_would_refuse_is_refused_by_put(wanted: Any, value: Any, named: str) -> None:  # case 259
    q = penstock.connect("memory:")
    handler = handler_of(q, wanted, [])
    with pytest.raises(UsageError, match=named):
        handler.put(value)
    assert q.tube("jobs").tasks() == []


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, object(), float("inf"), "a\0b", b"x"])
def test_a_handler_of_anything_takes_what_a_tube_takes(value: Any) -> None:
    q = penstock.connect("memory:")
    handler = q.handler("jobs")(lambda data: None)
    with pytest.raises(UsageError):
        handler.put(value)


def test_put_many_stores_the_good_ones_and_names_the_others(every_q: Any) -> None:
    handler = handler_of(every_q, Page, [])
    with pytest.raises(BatchError) as caught:
        handler.put_many([Page("a"), {"no": "url"}, Entry(Page("b"), pri=5), Entry(5)])
    results = caught.value.results
    assert [isinstance(result, UsageError) for result in results] == [False, True, False, True]
    answers = handler.put_many([5, Page("c")], errors="return")
    assert isinstance(answers[0], UsageError) and answers[1].data == {"url": "c", "depth": 0}
    assert sorted(task.data["url"] for task in every_q.tube("jobs").tasks()) == ["a", "b", "c"]


@pytest.mark.parametrize("items", ["abc", b"abc", {"a": 1}], ids=str)
def test_put_many_of_one_thing_is_refused(items: Any) -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match="list"):
        q.handler("jobs")(lambda data: None).put_many(items)


def test_put_many_takes_whatever_can_be_gone_through() -> None:
    q = penstock.connect("memory:")
    handler = handler_of(q, int, [])
    assert len(handler.put_many(n for n in range(5))) == 5
    assert handler.put_many([]) == []


def test_options_of_put_are_those_of_the_tube(every_q: Any) -> None:  # case 267
    handler = handler_of(every_q, Page, [], max_attempts=4, ttl=500)
    task = handler.put(Page("a"), pri=3, delay=60, lane="x", key="k", ttr=7)
    assert (task.pri, task.state, task.lane, task.key, task.ttr) == (3, "delayed", "x", "k", 7)
    assert (task.max_attempts, task.ttl) == (4, 500)
    with pytest.raises(TypeError):
        handler.put(Page("a"), prio=3)


# -- what is in the store already ------------------------------------------------------------------


def test_data_that_are_not_what_the_handler_takes_are_buried_with_the_reason(q: Any) -> None:
    seen: list[Any] = []
    handler = handler_of(q, Page, seen, "pages")
    models = handler_of(q, Model, seen, "models")
    handler.put(Page("good"))
    models.put(Model(url="good"))
    bad = [
        (q.tube("pages").put({"depth": 1}), "Page", "url"),
        (q.tube("pages").put("text"), "Page", "str"),
        (q.tube("pages").put(None), "Page", "null"),
        (q.tube("models").put({"url": []}), "Model", "url"),
        (q.tube("models").put(3), "Model", "object"),
    ]
    tally = work(q)
    assert (len(seen), tally.ok, tally.trouble) == (2, 2, 5)
    for task, name, named in bad:
        found = q.tube(task.tube).peek(task.id)
        assert (found.state, found.reason, found.attempt) == ("buried", "aborted", 1)
        assert found.error.startswith(f"the data are no {name}: ") and named in found.error


class Talkative(pydantic.BaseModel):
    n: int

    @pydantic.model_validator(mode="before")
    @classmethod
    def talk(cls, data: Any) -> Any:
        raise ValueError("a\0b \ud800 " + "x" * 1_000_000)


def test_a_check_with_an_odd_text_buries_too(q: Any) -> None:
    handler_of(q, Talkative, [])
    task = q.create_tube("jobs").put({"n": 1})
    work(q)
    found = q.tube("jobs").peek(task.id)
    assert found.reason == "aborted"
    assert found.error.startswith("the data are no Talkative: ") and len(found.error) < 10_000


class Broken(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        raise RuntimeError("broken")


def test_a_check_that_breaks_buries_too() -> None:
    q = penstock.connect("memory:")
    handler_of(q, Broken, [])
    task = q.create_tube("jobs").put({"n": 1})
    assert work(q).trouble == 1
    assert "broken" in q.tube("jobs").peek(task.id).error


def test_a_buried_payload_can_be_mended_and_dug_up(q: Any) -> None:
    seen: list[Any] = []
    handler_of(q, Page, seen)
    tube = q.create_tube("jobs")
    task = tube.put({"uri": "x"})
    work(q)
    assert tube.peek(task.id).state == "buried"
    tube.kick()
    with tube.take() as held:
        held.release(data={"url": "x"})
    assert work(q).ok == 1
    assert seen == [Page("x")]


# -- bytes -----------------------------------------------------------------------------------------


def test_bytes_are_for_tubes_of_bytes(every_q: Any) -> None:
    seen: list[Any] = []

    @every_q.handler("blobs")
    def job(data: bytes) -> None:
        seen.append(data)

    job.put(b"\x00\xff" * 10)
    job.put(bytearray(b"abc"))
    job.put_many([memoryview(b"xyz"), Entry(b"")])
    assert work(every_q, concurrency=1).ok == 4
    assert seen == [b"\x00\xff" * 10, b"abc", b"xyz", b""]
    assert every_q.tube("blobs").options["payload"] == "bytes"
    with pytest.raises(UsageError, match="bytes"):
        job.put("text")
    assert work(every_q).ok == 0  # a second worker finds the tube as it wants it


def test_a_handler_of_anything_gets_bytes_from_a_tube_of_bytes(q: Any) -> None:
    seen: list[Any] = []
    handler = q.handler("blobs", payload="bytes")(seen.append)
    handler.put(b"\x00")
    assert work(q).ok == 1
    assert seen == [b"\x00"]


@on_both
def test_json_in_a_tube_of_bytes_has_a_type_too(q: Any) -> None:
    seen: list[Any] = []
    handler_of(q, Page, seen, payload="bytes")
    tube = q.create_tube("jobs", payload="bytes")
    tube.put(json.dumps({"url": "x"}).encode())
    bad = tube.put(b"\xff no json")
    work(q)
    assert seen == [Page("x")]
    assert "Page" in tube.peek(bad.id).error


def test_a_handler_of_bytes_refuses_a_tube_of_json(q: Any) -> None:
    @q.handler("jobs")
    def job(data: bytes) -> None: ...

    q.create_tube("jobs")
    with pytest.raises(UsageError, match=r"payload='bytes'.*'json'"):
        work(q)


# -- reading annotations ---------------------------------------------------------------------------


def test_a_partial_and_a_decorated_function_keep_their_types() -> None:
    q = penstock.connect("memory:")
    seen: list[Any] = []

    def job(note: str, page: Page) -> None:
        seen.append((note, page))

    def wraps(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args)

        return wrapper

    class Called:
        def __call__(self, page: Page) -> None:
            seen.append(("called", page))

    def plain(page: Page) -> None:
        seen.append(("plain", page))

    functions = [functools.partial(job, "partial"), wraps(plain), Called(), Called().__call__]
    for n, function in enumerate(functions):
        q.handler(f"t{n}")(function).put(Page("x"))
    assert work(q).ok == 4
    assert {note for note, _ in seen} == {"partial", "plain", "called"}
    assert {page.url for _, page in seen} == {"x"}


def test_only_the_type_of_the_data_has_to_exist() -> None:
    q = penstock.connect("memory:")

    def job(page: Page, run: OnlyForTheChecker, limit: Another = None) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    handler = q.handler("jobs")(job)
    handler.put(Page("a"))
    assert work(q).ok == 1


class OddError(Exception):
    """An error that has `errors`, and of its own kind."""

    def errors(self) -> list[str]:
        return ["odd"]


@dataclass
class Particular:
    n: int

    def __post_init__(self) -> None:
        raise OddError("very odd")


def test_a_check_with_errors_of_its_own_kind_buries_too() -> None:
    q = penstock.connect("memory:")
    handler_of(q, Particular, [])
    task = q.create_tube("jobs").put({"n": 1})
    assert work(q).trouble == 1
    found = q.tube("jobs").peek(task.id)
    assert (found.reason, "very odd" in found.error) == ("aborted", True)


UNREADABLE: dict[str, tuple[Any, str]] = {
    "two dataclasses": (Page | Positive, "Page"),
    "a class of no kind": (penstock.Tally, "Tally"),
    "a partial": (functools.partial, "partial"),
}


@pytest.mark.parametrize(("wanted", "named"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_type_that_cannot_be_read_from_json_is_refused(wanted: Any, named: str) -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match=named):
        handler_of(q, wanted, [])
