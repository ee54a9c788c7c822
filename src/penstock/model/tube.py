"""Tubes: features, the kinds that name combinations of them, and a tube's options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from penstock.model import duration, retry
from penstock.model.duration import FOREVER
from penstock.model.errors import UsageError, shown
from penstock.model.lane import LaneLimits
from penstock.model.retry import Retry

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
MAX_PAYLOAD = 1 << 20
MAX_TEXT = 255
PRI_RANGE = range(-(1 << 63), 1 << 63)
MAX_COUNT = (1 << 63) - 1


class Features(NamedTuple):
    """What a tube can do beyond put, take and ack."""

    pri: bool = False
    ttl: bool = False
    ttr: bool = False
    delay: bool = False
    capacity: bool = False
    lanes: bool = False


TIMED = Features(pri=True, ttl=True, ttr=True, delay=True)


class Kind:
    """A named set of features with defaults. Subclass it and override the hooks to add rules of your own.

    Hooks run in the calling process, before the operation or after it was committed.

    >>> class Polite(Kind):
    ...     features = TIMED._replace(lanes=True)
    ...     defaults = {"lane_rate": 2.0}
    """

    name: str = ""
    features: Features = Features()
    defaults: Mapping[str, Any] = {}
    ttr_is_ttl: bool = False
    """A task without ttr must be finished within its ttl."""
    shared_lane: bool = False
    """Tasks put without a lane share one lane, instead of having none."""

    def check_put(self, entry: Any) -> None:
        """Raise UsageError to refuse what is about to be put."""

    def retry_delay(self, task: Any, failure: int) -> float | None:
        """Seconds before the next attempt; None leaves it to the tube's retry policy.

        What is no time to wait is a UsageError of fail(), which then changes nothing.
        """
        return None

    def on_finish(self, task: Any) -> None:
        """Called after this process gave up a task that it held, or buried one, and that left it DONE or BURIED.

        Always after the commit; inside q.transaction() that is when the transaction ends well. A task acked with
        transaction= a connection of the caller's own is not told: nobody knows when that commits. What this
        raises is logged and changes nothing.
        """


HOOKS = ("check_put", "retry_delay", "on_finish")


def _kind(name: str, features: Features, *, ttr_is_ttl: bool = False, utube: bool = False) -> Kind:
    kind = Kind()
    kind.name, kind.features, kind.ttr_is_ttl, kind.shared_lane = name, features, ttr_is_ttl, utube
    kind.defaults = {"lane_concurrency": 1, "lane_pick": "order"} if utube else {}
    return kind


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _kind("fifo", Features()),
        _kind("fifottl", TIMED, ttr_is_ttl=True),
        _kind("limfifottl", TIMED._replace(capacity=True), ttr_is_ttl=True),
        _kind("utube", Features(lanes=True), utube=True),
        _kind("utubettl", TIMED._replace(lanes=True), ttr_is_ttl=True, utube=True),
        _kind("standard", TIMED._replace(capacity=True, lanes=True)),
    )
}


@dataclass(frozen=True)
class TubeConfig:
    """Everything that is fixed or set about one tube. Durations are microseconds."""

    name: str
    kind: str
    features: Features
    ttr_is_ttl: bool = False
    shared_lane: bool = False
    hooks: bool = False
    temporary: bool = False
    paused: bool = False
    ttl: int | Literal["derived"] | None = None
    ttr: int | None = None
    pri: int = 0
    capacity: int | None = None
    max_attempts: int | None = None
    retry: Retry = None
    keep: int = 0
    keep_failed: int | None = None
    concurrency: int | None = None
    lane_concurrency: int | None = None
    lane_rate: float | None = None
    lane_burst: int = 1
    lane_order: Literal["skip", "strict"] = "skip"
    lane_pick: Literal["order", "turns"] = "turns"
    payload: Literal["json", "bytes"] = "json"
    max_payload: int = MAX_PAYLOAD
    history: bool = False
    history_data: bool = False
    id: Literal["auto", "time64", "uuid", "required", "function"] = "auto"
    adopted: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def limits(self) -> LaneLimits:
        """What holds for a lane without settings of its own."""
        return LaneLimits(self.lane_concurrency, self.lane_rate, self.lane_burst)

    def limits_differ(self, other: TubeConfig) -> bool:
        """True if lanes are served otherwise than with the other options."""
        mine = (self.limits, self.lane_order, self.lane_pick)
        return mine != (other.limits, other.lane_order, other.lane_pick)

    def lane_of(self, lane: str | None) -> str | None:
        """The lane a task really goes to."""
        if not self.features.lanes:
            return None
        return lane or ("" if self.shared_lane else None)

    def shown(self) -> dict[str, Any]:
        """The options as a caller writes them: durations in seconds."""
        values = {name: getattr(self, name) for name in OPTIONS}
        for name in DURATIONS:
            if isinstance(values[name], int):
                values[name] = duration.seconds(values[name])
        return {**values, "temporary": self.temporary, "paused": self.paused}

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["features"] = list(self.features)
        plain["retry"] = retry.to_json(self.retry)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TubeConfig:
        values = dict(plain)
        values["features"] = Features(*values["features"])
        values["retry"] = retry.from_json(values["retry"])
        return cls(**values)

    def altered(self, options: Mapping[str, Any]) -> TubeConfig:
        """The same tube with other options; kind, temporary, payload and id stay."""
        for name in options:
            if name in FIXED:
                raise UsageError(f"{name} is fixed when the tube is created; make a new tube instead")
        return checked(replace(self, **parse_options(options, self.features)))

    def differences(self, kind: str, temporary: bool, options: Mapping[str, Any]) -> list[str]:
        """What a second create_tube asked for and this tube is not."""
        if kind != self.kind:
            return [f"kind: it has {self.kind!r}, asked for {kind!r}"]
        asked = {**parse_options(options, self.features), "temporary": temporary}
        return [
            f"{name}: it has {_written(name, getattr(self, name))}, asked for {_written(name, value)}"
            for name, value in asked.items()
            if getattr(self, name) != value
        ]


def _written(name: str, value: Any) -> str:
    """An option as a caller writes it."""
    if name in ("keep", "keep_failed") and value in (0, FOREVER):
        value = value == FOREVER
    elif name in DURATIONS and isinstance(value, int):
        value = duration.seconds(value)
    return repr(list(value) if isinstance(value, tuple) else value)


DURATIONS = ("ttl", "ttr", "keep", "keep_failed")
FIXED = ("kind", "temporary", "payload", "id")


class Adoption(NamedTuple):
    """What adopt() was given: which table, which of its columns mean what, and the tube to make of it."""

    name: str
    table: str
    fields: Mapping[str, str] | None
    features: Mapping[str, Any] | None
    options: Mapping[str, Any]


def new_tube(name: str, kind: Kind, temporary: bool, options: Mapping[str, Any]) -> TubeConfig:
    """Check a tube's name and options and make its configuration."""
    check_name(name)
    given = parse_options({**kind.defaults, **options}, kind.features)
    hooks = any(getattr(type(kind), hook) is not getattr(Kind, hook) for hook in HOOKS)
    config = TubeConfig(
        name, kind.name, kind.features, kind.ttr_is_ttl, kind.shared_lane, hooks, bool(temporary), **given
    )
    return checked(config)


def checked(config: TubeConfig) -> TubeConfig:
    """Rules between options."""
    if config.ttl == "derived" and (config.ttr is None or config.max_attempts is None):
        raise UsageError("ttl='derived' needs ttr and max_attempts on the tube: it is computed from them")
    if config.adopted is not None and config.lane_pick != "order":
        raise UsageError("an adopted table is served in the order of its primary key: lane_pick must be 'order'")
    return config


def check_name(name: object) -> str:
    """Tube names are 1 to 64 of A-Z a-z 0-9 _ . -"""
    if not isinstance(name, str) or not NAME.match(name):
        raise UsageError(f"a tube's name is 1 to 64 characters of A-Z a-z 0-9 _ . -, got {name!r}")
    return name


def check_text(value: object, what: str) -> str | None:
    """Keys and lanes: any text up to 255 bytes without NUL; numbers become text, "" is None."""
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 3 * MAX_TEXT:
        value = str(value)
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, got {shown(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{what} must be text without lone surrogates, got {shown(value)}") from None
    if size > MAX_TEXT or "\0" in value:
        raise UsageError(f"{what} must have at most {MAX_TEXT} bytes and no NUL, got {size} bytes: {shown(value)}")
    return value


def _pri(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in PRI_RANGE:
        raise UsageError(f"{name} must be a signed 64-bit integer, got {shown(value)}")
    return value


def check_count(value: object, name: str, least: int = 1, none: str = "") -> int:
    """A whole number that every store can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise UsageError(f"{name} must be a whole number from {least} to 2**63-1{none}, got {shown(value)}")
    return value


def _count(value: object, name: str) -> int | None:
    return None if value is None else check_count(value, name, none=", or None")


def _capacity(value: object, name: str) -> int | None:
    return None if value == 0 and not isinstance(value, bool) else _count(value, name)


def _rate(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= 1e6:
        raise UsageError(f"{name} must be tasks a second between 0.000001 and 1000000, or None, got {shown(value)}")
    return float(value)


def _burst(value: object, name: str) -> int:
    burst = _count(value, name)
    if burst is None or burst > 1_000_000:
        raise UsageError(f"{name} must be a whole number from 1 to 1000000, got {shown(value)}")
    return burst


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {value!r}")
    return value


def _ttl(value: Any, name: str) -> int | Literal["derived"] | None:
    return "derived" if value == "derived" else duration.length(value, name)


def parse_keep(value: Any, name: str) -> int:
    """False keeps nothing, True for ever, a number that many seconds."""
    if isinstance(value, bool):
        return FOREVER if value else 0
    result = duration.length(value, name)
    if result is None:
        raise UsageError(f"{name} must be True, False or seconds, got {value!r}")
    return result


def _choice(*allowed: str) -> Callable[[Any, str], Any]:
    def parse(value: Any, name: str) -> Any:
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}, got {shown(value)}")
        return value

    return parse


def _bytes(value: object, name: str) -> int:
    size = _count(value, name)
    if size is None or size > 1 << 30:
        raise UsageError(f"{name} must be a number of bytes from 1 to 1 GiB, got {value!r}")
    return size


OPTIONS: dict[str, Callable[[Any, str], Any]] = {
    "ttl": _ttl,
    "ttr": duration.length,
    "pri": _pri,
    "capacity": _capacity,
    "max_attempts": _count,
    "retry": lambda value, name: retry.parse(value),
    "keep": parse_keep,
    "keep_failed": lambda value, name: None if value is None else parse_keep(value, name),
    "concurrency": _count,
    "lane_concurrency": _count,
    "lane_rate": _rate,
    "lane_burst": _burst,
    "lane_order": _choice("skip", "strict"),
    "lane_pick": _choice("order", "turns"),
    "payload": _choice("json", "bytes"),
    "max_payload": _bytes,
    "history": _flag,
    "history_data": _flag,
    "id": _choice("auto", "time64", "uuid", "required", "function"),
}
_NEEDS = {"ttl": "ttl", "ttr": "ttr", "pri": "pri", "capacity": "capacity", "retry": "delay"}
LANE_OPTIONS: dict[str, Callable[[Any, str], Any]] = {
    "concurrency": _count,
    "rate": _rate,
    "burst": lambda value, name: None if value is None else _burst(value, name),
    "paused": _flag,
}


def lacks(option: str, feature: str, what: str) -> UsageError:
    """The error of an option whose feature something does not have."""
    having = ", ".join(kind.name for kind in KINDS.values() if getattr(kind.features, feature))
    return UsageError(
        f"option {option!r} needs the feature {feature!r}, which {what} lacks; kinds that have it: {having}"
    )


def parse_options(options: Mapping[str, Any], features: Features) -> dict[str, Any]:
    """Check options by name, value and feature."""
    parsed = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise UsageError(f"unknown tube option {name!r}; there are {', '.join(OPTIONS)}")
        need = "lanes" if name.startswith("lane_") else _NEEDS.get(name)
        if need and value is not None and not getattr(features, need):
            raise lacks(name, need, "this kind of tube")
        parsed[name] = OPTIONS[name](value, name)
    return parsed


def parse_lane_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check what lane.configure() was given."""
    for name in options:
        if name not in LANE_OPTIONS:
            raise UsageError(f"unknown lane option {name!r}; there are {', '.join(LANE_OPTIONS)}")
    return {name: LANE_OPTIONS[name](value, name) for name, value in options.items()}
