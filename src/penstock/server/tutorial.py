"""The queue of Tarantool's tutorial: `queue.put`, `take`, `ack`, `release` and `stats`, without a tube's name.

Its tasks are in a tube of their own, which the first call makes that may. Ids are nanoseconds, tasks are maps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.engines.line import raised
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import LeaseLost, NotOwner, NotTaken, TaskNotFound, TubeNotFound
from penstock.model.state import State
from penstock.model.task import Placed, Record, TaskId
from penstock.model.tube import KINDS, new_tube
from penstock.server import tarantool_values as values
from penstock.server.refusal import Refusal
from penstock.server.tarantool_caller import Args, Caller, Reply, Route

TUBE = "queue"
CONFIG = new_tube(TUBE, KINDS["fifottl"], False, {"id": "time64"})
STATUS = {State.READY: "R", State.TAKEN: "T", State.DELAYED: "W", State.BURIED: "B", State.DONE: "D"}


class Tutorial:
    """Its functions, called by one connection."""

    def __init__(self, caller: Caller, otherwise: Callable[[Route, Args, Reply], None]) -> None:
        """otherwise: what stats() means where nobody uses the tutorial's queue."""
        self._caller = caller
        self._otherwise = otherwise

    def put(self, route: Route, args: Args, then: Reply) -> None:
        """put(data, {delay}): the task."""
        data = args[0] if args else None
        config = self._caller.configs.known.get(TUBE)
        if config is None:
            self._make(route, args, then)
            return
        delay = values.options_of(args, 1).get("delay")
        options = values.NONE if delay is None else {"delay": delay}
        draft = values.draft(values.encode(data, config), config, options)
        self._caller.ask(ops.Put(TUBE, (draft,)), route, then, self._placed)

    @staticmethod
    def _placed(answer: list[Any]) -> list[Any]:
        placed: Placed = raised(answer[0])
        return [shown(placed.record)]

    def take(self, route: Route, args: Args, then: Reply) -> None:
        """take(seconds): a task, or nothing; without seconds it does not wait."""
        timeout = values.timeout_of(args) if args and args[0] is not None else 0
        if self._caller.configs.known.get(TUBE) is None:
            self._make(route, args, then)
            return
        self._caller.take(route, timeout, partial(self._taken, route, then))

    def _taken(self, route: Route, then: Reply, answer: Any) -> None:
        if type(answer) is Record:
            then([shown(answer)])
        elif answer is None:
            then([])
        else:
            self._caller.refuse(route, then, answer)

    def _make(self, route: Route, args: Args, then: Reply) -> None:
        """The tube is there already, or is made; then the call is made again."""
        caller = self._caller
        kind: ops.Op[Any] = ops.Put(TUBE, ()) if route.function.endswith("put") else ops.Take(TUBE, 1, caller.session())
        caller.peer.check(kind, True)

        asked = caller.configs.changes

        def found(answer: Any) -> None:
            if isinstance(answer, TubeNotFound):
                create = ops.CreateTube(CONFIG, if_not_exists=True)
                caller.peer.check(create, True)
                caller.attempt(create, route, then, found)
                return
            caller.configs.add(raised(answer), asked)
            route.run(route, args, then)

        caller.attempt(ops.GetTube(TUBE), route, then, found)

    def ack(self, route: Route, args: Args, then: Reply) -> None:
        """ack(id): the task as it was."""
        self._held(route, args, then, None)

    def release(self, route: Route, args: Args, then: Reply) -> None:
        """release(id, {delay}): the task."""
        self._held(route, args, then, values.options_of(args, 1))

    def _held(self, route: Route, args: Args, then: Reply, release: dict[Any, Any] | None) -> None:
        caller = self._caller
        task_id = _id(args)
        session = caller.session()

        def found(answer: Any) -> None:
            if isinstance(answer, TaskNotFound | TubeNotFound):
                raise Refusal(f"Task {{{task_id}}} was not found")
            record: Record = raised(answer)
            if record.state != State.TAKEN:
                raise Refusal(f"Task {task_id} not taken by anybody")
            lease = ops.Lease(task_id)
            if release is None:
                ack = ops.Ack(TUBE, (ops.Finish(lease),), session)
                caller.core.ask(ack, partial(self._finished, route, then, record))
            else:
                delay = release.get("delay")
                back = ops.Release(TUBE, lease, session, None if delay is None else values.delay_of(delay))
                caller.core.ask(back, partial(self._finished, route, then, record))

        caller.peer.check(ops.Ack(TUBE, (), session), True)
        caller.attempt(ops.Peek(TUBE, task_id), route, then, found)

    def _finished(self, route: Route, then: Reply, before: Record, answer: Any) -> None:
        ended = answer[0] if type(answer) is list else answer
        if isinstance(ended, NotOwner):
            mine = self._caller.peer.address
            then(Refusal(f"Task {before.id} taken by {ended.owner}. Not you ({mine})"))
        elif isinstance(ended, NotTaken | LeaseLost | TaskNotFound):
            then(Refusal(f"Task {before.id} not taken by anybody"))
        elif isinstance(ended, BaseException):
            self._caller.refuse(route, then, ended)
        else:
            then([shown(before if type(answer) is list else ended)])

    def stats(self, route: Route, args: Args, then: Reply) -> None:
        """stats(): how many tasks there are, and in which state; of the tubes if there is no tutorial's queue."""
        caller = self._caller
        op = ops.GetStatistics(TUBE)
        caller.peer.check(op, True)

        def counted(answer: Any) -> None:
            if isinstance(answer, TubeNotFound):
                self._otherwise(route, args, then)
                return
            tasks = raised(answer)[TUBE].tasks
            counts = {"total": tasks["total"], "ready": tasks["ready"]}
            then([{**counts, "waiting": tasks["delayed"], "taken": tasks["taken"]}])

        caller.attempt(op, route, then, counted)


def _id(args: Args) -> TaskId:
    """A number, or text that is one."""
    value = args[0] if args else None
    if value is None:
        raise Refusal("Task id required")
    return int(value) if isinstance(value, str) and value.isdecimal() else values.id_of(args)


def shown(record: Record) -> dict[str, Any]:
    """A task as the tutorial's clients know it."""
    waits = record.state == State.DELAYED and record.ready_at is not None
    return {
        "id": record.id,
        "status": STATUS[record.state],  # type: ignore[index]
        "runat": (record.ready_at or 0) / SECOND if waits else 0,
        "data": values.decode(record.data),
    }
