"""What tarantool/queue lets a client do with tubes and sessions: `queue.create_tube` and the others."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import msgspec

from penstock.engines.line import raised
from penstock.model import ops
from penstock.model.duration import FOREVER
from penstock.model.errors import NotWritable, SessionExpired, TubeBusy, TubeExists, TubeNotFound, UsageError, shown
from penstock.model.session import Session
from penstock.model.stats import Statistics
from penstock.model.tube import KINDS, OPTIONS, Kind, TubeConfig, new_tube
from penstock.server import tarantool_values as values
from penstock.server.refusal import Refusal
from penstock.server.tarantool_caller import Args, Caller, Reply, Route

TASKS = ("taken", "buried", "ready", "done", "delayed", "total")
CALLS = ("ack", "bury", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr", "delay")
FEATURED = ("ttl", "ttr", "pri", "capacity")
"""Options of create_tube that kinds without the feature overlook."""
MEANINGLESS = ("if_not_exists", "temporary", "on_task_change", "engine", "storage_mode")
"""Options that are no options of the tube here: said otherwise, or of no use."""
STR_16 = b"\xb0"
"""What a packed string of 16 bytes begins with."""


class Tubes:
    """Functions of the queue itself, called by one connection."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    # -- tubes -------------------------------------------------------------------------------------

    def create(self, route: Route, args: Args, then: Reply) -> None:
        """create_tube(name, type, options): nothing. One that is there already stays as it is if that is asked for."""
        caller = self._caller
        name, kind = args[0] if args else None, args[1] if len(args) > 1 else None
        options = values.options_of(args, 2)
        config = _tube(name, kind, options)
        op = ops.CreateTube(config, bool(options.get("if_not_exists")))
        caller.peer.check(op, True)

        def found(answer: Any) -> None:
            if isinstance(answer, TubeNotFound):
                caller.core.ask(op, made)
                return
            there: TubeConfig = raised(answer)
            if not op.if_not_exists:
                raise Refusal(f"Space '{config.name}' already exists")
            if there.kind != config.kind:
                raise UsageError(f"tube {config.name!r} is of type {there.kind}, asked for {config.kind}")
            then([])

        def made(answer: Any) -> None:
            if isinstance(answer, TubeExists):
                then(Refusal(f"Space '{config.name}' already exists"))
            elif isinstance(answer, BaseException):
                caller.refuse(route, then, answer)
            else:
                then([])

        caller.attempt(ops.GetTube(config.name), route, then, found)

    def drop(self, route: Route, args: Args, then: Reply) -> None:
        """drop(): true."""
        caller = self._caller
        op = ops.DropTube(route.tube)
        caller.peer.check(op, True)

        def dropped(answer: Any) -> None:
            if isinstance(answer, TubeBusy):
                waiting = caller.core.engine.store.waiting(route.tube)
                what = "There are consumers connected the tube" if waiting else "There are taken tasks in the tube"
                raise Refusal(f"{what}: {answer}")
            raised(answer)
            then([True])

        caller.attempt(op, route, then, dropped)

    def tube(self, route: Route, args: Args, then: Reply) -> None:
        """tube(): all names; tube(name): whether there is one."""
        name = args[0] if args else None
        if name is not None and not isinstance(name, str):
            raise Refusal("argument #1 should be string or nil")
        self.find(route, name, then)

    def find(self, route: Route, name: str | None, then: Reply) -> None:
        """All names, or whether there is a tube of that name."""
        if name is None:
            op = ops.ListTubes()
            self._caller.ask(op, route, then, lambda found: [[config.name for config in found]])
            return
        get = ops.GetTube(name)
        self._caller.peer.check(get, True)
        self._caller.core.ask(get, partial(self._found, route, then))

    def _found(self, route: Route, then: Reply, answer: Any) -> None:
        if isinstance(answer, TubeNotFound):
            then([False])
        elif isinstance(answer, BaseException):
            self._caller.refuse(route, then, answer)
        else:
            then([True])

    def statistics(self, route: Route, args: Args, then: Reply) -> None:
        """statistics(name): counters of a tube; statistics(): of all."""
        name = args[0] if args else None
        if name is not None and not isinstance(name, str):
            raise Refusal(f"attempt to index a nil value: a tube's name is text, got {shown(name)}")
        op = ops.GetStatistics(name)
        self._caller.peer.check(op, True)

        def counted(answer: Any) -> None:
            if isinstance(answer, TubeNotFound):
                raise Refusal(f"attempt to index a nil value: {answer}")
            all_tubes = {tube: _counters(found) for tube, found in raised(answer).items()}
            then([all_tubes if name is None else all_tubes[name]])

        self._caller.attempt(op, route, then, counted)

    # -- sessions and the server -------------------------------------------------------------------

    def state(self, route: Route, args: Args, then: Reply) -> None:
        """state(): RUNNING, or what the store is about."""
        self._caller.ask(ops.GetState(), route, then, lambda state: [state])

    def identify(self, route: Route, args: Args, then: Reply) -> None:
        """identify(uuid): be in that session from now on; identify(): which one this is. 16 bytes, as a string."""
        caller = self._caller
        if not args or args[0] is None:
            session = caller.session()

            def kept(answer: Any) -> None:
                if not isinstance(answer, NotWritable):
                    raised(answer)
                then([_packed(session)])

            # Whoever is told it may resume it at another server at once: the store has to have it by then.
            caller.attempt(ops.KeepAlive(session), route, then, kept)
            return
        wanted = values.uuid_of(args[0])
        caller.hold()
        task = caller.core.loop.create_task(caller.sessions.join(caller.peer, wanted))
        task.add_done_callback(partial(self._joined, route, then, wanted))

    def _joined(self, route: Route, then: Reply, wanted: str, task: Any) -> None:
        try:
            then([_packed(task.result())])
        except SessionExpired:
            then(Refusal(f"The UUID {wanted} is unknown."))
        except Exception as error:
            self._caller.refuse(route, then, error)
        self._caller.go_on()

    def configure(self, route: Route, args: Args, then: Reply) -> None:
        """cfg({ttr, in_replicaset}): nothing. ttr: how long sessions of this server outlive their last connection."""
        options = values.options_of(args, 0)
        for name, value in options.items():
            if name not in ("ttr", "in_replicaset"):
                raise Refusal(f"Unknown option {name}")
            is_flag = isinstance(value, bool)
            if name == "in_replicaset" and not is_flag:
                raise Refusal(f"Invalid value of in_replicaset: {value}")
            if name == "ttr" and (is_flag or not isinstance(value, int | float) or not value >= 0):
                raise Refusal(f"Invalid value of ttr: {value}")
        if "ttr" in options:
            # It is about all clients of the server, as altering every tube would be.
            self._caller.peer.check(ops.ForgetHistory(0), True)
            linger = min(values.seconds(options["ttr"], "ttr"), FOREVER)
            self._caller.core.limits.check_session(linger)
            self._caller.sessions.linger = linger
        then([])


def _tube(name: Any, kind: Any, options: dict[Any, Any]) -> TubeConfig:
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise Refusal(f"Unknown tube type {'nil' if kind is None else kind}")
    return new_tube(name, known, bool(options.get("temporary")), _tube_options(known, options))


def _tube_options(kind: Kind, options: dict[Any, Any]) -> dict[str, Any]:
    """Options for the tube, those of tarantool/queue and those of Penstock alike."""
    chosen: dict[str, Any] = {}
    for name, value in options.items():
        if name in MEANINGLESS or value is None:
            continue
        if name not in OPTIONS:
            raise UsageError(
                f"unknown option {shown(name)} of create_tube; there are {', '.join([*MEANINGLESS, *OPTIONS])}"
            )
        if name not in FEATURED or getattr(kind.features, name):
            chosen[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return chosen


def _counters(found: Statistics) -> dict[str, dict[str, int]]:
    return {
        "tasks": {name: found.tasks[name] for name in TASKS},
        "calls": {name: found.calls[name] for name in CALLS},
    }


def _packed(session: Session) -> msgspec.Raw:
    """A session's uuid as a string, which is no text."""
    return msgspec.Raw(STR_16 + uuid.UUID(session.uuid).bytes)
