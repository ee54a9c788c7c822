"""What tarantool/queue lets a client do with tasks: `queue.tube.NAME:put` and the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.engines.line import raised
from penstock.model import ops
from penstock.model.errors import LeaseLost, NotOwner, PayloadTooLarge, TaskNotFound, TubeFull
from penstock.model.state import LETTERS, State
from penstock.model.task import Gone, Placed, Record, TaskId
from penstock.server import tarantool_values as values
from penstock.server.auth import EVERYTHING
from penstock.server.refusal import Refusal, no_id, not_found, not_taken
from penstock.server.tarantool_caller import Args, Caller, Held, Reply, Route

DONE = LETTERS[State.DONE]


class Tasks:
    """Functions of tubes, called by one connection."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    # -- put ---------------------------------------------------------------------------------------

    def put(self, route: Route, args: Args, then: Reply) -> None:
        """put(data, {ttl, ttr, pri, delay, utube, timeout}): the task; nil if the tube is full for too long."""
        caller = self._caller
        config = caller.configs.known.get(route.tube) or caller.with_config(route, args, then)
        if config is None:
            return
        data = args[0] if args else values.data_of(args, config)
        text = values.encode(data, config)
        timeout = 0
        if len(args) > 1 and args[1] and any((config.features.pri, config.features.lanes, config.features.capacity)):
            options = values.options_of(args, 1)
            draft = values.draft(text, config, options)
            if config.capacity is not None and options.get("timeout") is not None:
                timeout = max(0, values.seconds(options["timeout"], "timeout"))
        else:
            draft = values.draft(text, config, values.NONE)
        op = ops.Put(route.tube, (draft,))
        if caller.peer.login is not EVERYTHING:
            caller.peer.check(op, True)
        shown = text if isinstance(text, bytes) else data
        caller.core.ask_one(op, partial(self._placed, route, then, op, timeout, shown))

    def _placed(self, route: Route, then: Reply, op: ops.Put, timeout: int, data: Any, answer: Any) -> None:
        placed = answer[0] if type(answer) is list else answer
        if type(placed) is Placed:
            then([[placed.record.id, LETTERS[placed.record.state], data]])  # type: ignore[index]
        elif not isinstance(placed, TubeFull):
            if not isinstance(placed, PayloadTooLarge):
                self._caller.configs.doubt(route.tube)
            self._caller.refuse(route, then, placed)
        elif timeout and not self._caller.peer.closed:
            self._caller.wait_for_room(op, timeout, partial(self._placed, route, then, op, 0, data))
        else:
            then([None])

    # -- take --------------------------------------------------------------------------------------

    def take(self, route: Route, args: Args, then: Reply) -> None:
        """take(seconds): a task, or nothing; without seconds it waits for ever."""
        self._caller.take(route, values.timeout_of(args), partial(self._taken, route, then))

    def _taken(self, route: Route, then: Reply, answer: Any) -> None:
        if type(answer) is Record:
            data = values.decode(answer.data)
            self._caller.remember(route.tube, answer, data)
            then([[answer.id, "t", data]])
        elif answer is None:
            then([])
        else:
            self._caller.refuse(route, then, answer)

    # -- the end of a lease ------------------------------------------------------------------------

    def ack(self, route: Route, args: Args, then: Reply) -> None:
        """ack(id): the task, done."""
        self._finish(route, values.id_of(args), then, self._ack)

    def release(self, route: Route, args: Args, then: Reply) -> None:
        """release(id, {delay}): the task, ready or delayed; kinds without delays release it at once."""
        config = self._caller.with_config(route, args, then)
        if config is None:
            return
        task_id = values.id_of(args)
        delay = None
        if config.features.delay:
            delay = values.options_of(args, 1).get("delay")
        wait = None if delay is None else values.delay_of(delay)
        self._finish(route, task_id, then, partial(self._release, wait))

    def touch(self, route: Route, args: Args, then: Reply) -> None:
        """touch(id, seconds): the task, with that much more time; nothing if that is none."""
        more = args[1] if len(args) > 1 else None
        by = 0 if more is None else values.seconds(more, "increment")
        if by <= 0:
            then([])
            return
        config = self._caller.with_config(route, args, then)
        if config is None:
            return
        if not config.features.ttr:
            raise Refusal(f"{config.kind} queue does not support touch")
        self._finish(route, values.id_of(args), then, partial(self._touch, by))

    def _finish(self, route: Route, task_id: TaskId, then: Reply, finish: Finish) -> None:
        """Do something with a task that this session holds, by the lease that is known of it."""
        caller = self._caller
        session = caller.peer.session
        held = caller.leases.get((route.tube, task_id))
        if held is None or session is None:
            self._find(route, task_id, then, finish)
            return
        op = finish(route.tube, task_id, held.token)
        if caller.peer.login is not EVERYTHING:
            caller.peer.check(op, True)
        caller.core.ask_one(op, partial(self._finished, route, task_id, then, held, finish))

    def _finished(
        self, route: Route, task_id: TaskId, then: Reply, held: Held, again: Finish | None, answer: Any
    ) -> None:
        caller = self._caller
        if type(answer) is list:
            answer = answer[0]
        if type(answer) is Gone:
            caller.leases.pop((route.tube, task_id), None)
            then([[task_id, DONE, held.data]])
        elif type(answer) is Record:
            if answer.state != State.TAKEN:
                caller.leases.pop((route.tube, task_id), None)
            then([shown(answer)])
        elif isinstance(answer, LeaseLost) and answer.now == "taken" and again is not None:
            # Another connection of the same session may have taken it again.
            caller.leases.pop((route.tube, task_id), None)
            self._find(route, task_id, then, again)
        else:
            caller.leases.pop((route.tube, task_id), None)
            caller.refuse(route, then, not_taken() if isinstance(answer, TaskNotFound) else answer)

    def _find(self, route: Route, task_id: TaskId, then: Reply, finish: Finish) -> None:
        """The lease is not known here: whoever holds the task, its token is; the session decides whose it is."""
        caller = self._caller

        def found(answer: Any) -> None:
            if isinstance(answer, TaskNotFound):
                raise not_taken() if isinstance(task_id, int) else no_id(task_id, 1)
            record: Record = raised(answer)
            if record.state != State.TAKEN or record.token is None:
                raise not_taken()
            held = Held(record.token, values.decode(record.data))
            caller.core.ask(
                finish(route.tube, task_id, record.token),
                partial(self._finished, route, task_id, then, held, None),
            )

        caller.peer.check(ops.Ack(route.tube, (), caller.session()), True)
        caller.attempt(ops.Peek(route.tube, task_id), route, then, found)

    def _ack(self, tube: str, task_id: TaskId, token: int) -> ops.Ack:
        finish: ops.Finish = tuple.__new__(ops.Finish, (tuple.__new__(ops.Lease, (task_id, token)), None, None, None))
        return ops.Ack(tube, (finish,), self._caller.peer.held())

    def _release(self, delay: int | None, tube: str, task_id: TaskId, token: int) -> ops.Release:
        return ops.Release(tube, ops.Lease(task_id, token), self._caller.peer.held(), delay)

    def _touch(self, by: int, tube: str, task_id: TaskId, token: int) -> ops.Touch:
        return ops.Touch(tube, ops.Lease(task_id, token), self._caller.peer.held(), by)

    # -- what anybody may do with a task -----------------------------------------------------------

    def bury(self, route: Route, args: Args, then: Reply) -> None:
        """bury(id): the task, buried, whoever holds it."""
        caller = self._caller
        task_id = values.id_of(args, 0)
        op = ops.Bury(route.tube, ops.Lease(task_id), caller.session())
        caller.peer.check(op, True)

        def buried(answer: Any) -> None:
            if not isinstance(answer, NotOwner):
                self._show(route, task_id, then, answer)
                return
            snatch = ops.Snatch(route.tube, task_id)
            caller.peer.check(snatch, True)
            # Taken from its holder and buried in one transaction: nobody can take it in between.
            caller.core.ask(snatch, lambda answer: None)
            caller.core.ask(op, partial(self._show, route, task_id, then))

        caller.attempt(op, route, then, buried)

    def peek(self, route: Route, args: Args, then: Reply) -> None:
        """peek(id): the task."""
        self._show_after(ops.Peek(route.tube, values.id_of(args, 0)), route, args, then)

    def delete(self, route: Route, args: Args, then: Reply) -> None:
        """delete(id): the task, done, whoever holds it."""
        self._show_after(ops.Delete(route.tube, values.id_of(args, 0)), route, args, then)

    def _show_after(self, op: ops.Peek | ops.Delete, route: Route, args: Args, then: Reply) -> None:
        self._caller.peer.check(op, True)
        self._caller.core.ask(op, partial(self._show, route, op.id, then))

    def _show(self, route: Route, task_id: TaskId, then: Reply, answer: Any) -> None:
        if type(answer) is Record:
            then([shown(answer)])
        elif isinstance(answer, TaskNotFound):
            then(not_found(task_id))
        else:
            self._caller.refuse(route, then, answer)

    def kick(self, route: Route, args: Args, then: Reply) -> None:
        """kick(n): how many buried tasks are ready again."""
        self._caller.ask(ops.Kick(route.tube, values.count_of(args)), route, then, lambda number: [number])

    def truncate(self, route: Route, args: Args, then: Reply) -> None:
        """truncate(): nothing."""
        self._caller.ask(ops.TruncateTube(route.tube), route, then, lambda _: [])

    def release_all(self, route: Route, args: Args, then: Reply) -> None:
        """release_all(): nothing."""
        self._caller.ask(ops.ReleaseAll(route.tube), route, then, lambda _: [])


Finish = Callable[[str, TaskId, int], ops.Op[Any]]
"""Makes the op that a lease shall end or grow by, of the tube, the id and the token."""


def shown(record: Record) -> list[Any]:
    """A task as clients know it."""
    return [record.id, LETTERS[record.state], values.decode(record.data)]  # type: ignore[index]
