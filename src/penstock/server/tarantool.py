"""The remote API of tarantool/queue and of Tarantool's tutorial, for one connection: names to functions.

Arguments come as they were unpacked: MP_STR as str (what is no UTF-8 with surrogateescape), MP_BIN as bytes, a map
as dict, an array as list or tuple, extensions as any object. Return values are what msgspec packs: str, bytes
(MP_BIN), int, float, dict, list, None, and msgspec.Raw for pieces that are packed already.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.server.core import Core
from penstock.server.peer import Peer
from penstock.server.refusal import Refusal, not_defined
from penstock.server.sessions import Sessions
from penstock.server.tarantool_caller import Args, Caller, Reply, Route
from penstock.server.tarantool_tasks import Tasks
from penstock.server.tarantool_tubes import Tubes
from penstock.server.tutorial import TUBE, Tutorial

MAX_ROUTES = 1000
"""Names that a connection remembers."""
TUBES = "queue.tube."
OLD = "box."
"""Some clients still call `box.queue`."""
CALL = re.compile(r"(?:return\s+)?([\w.:-]+)\s*\(\s*(\.\.\.)?\s*\)\s*;?")
"""A text to evaluate that only calls a function."""
CREATE = "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)"
EXISTS = "local name = ... ; return queue.tube[name] ~= nil"


class Facade:
    """Calls of one connection."""

    def __init__(self, core: Core, sessions: Sessions, peer: Peer) -> None:
        self.caller = caller = Caller(core, sessions, peer)
        self.routes: dict[str, Route] = {}
        """Functions that were called before, by their names."""
        tasks, self._tubes = Tasks(caller), Tubes(caller)
        self._tutorial = tutorial = Tutorial(caller, self._tubes.statistics)
        self._methods: dict[str, Any] = {
            "put": tasks.put,
            "take": tasks.take,
            "ack": tasks.ack,
            "release": tasks.release,
            "touch": tasks.touch,
            "bury": tasks.bury,
            "kick": tasks.kick,
            "peek": tasks.peek,
            "delete": tasks.delete,
            "truncate": tasks.truncate,
            "release_all": tasks.release_all,
            "drop": self._tubes.drop,
        }
        self._functions: dict[str, Any] = {
            "queue.create_tube": self._tubes.create,
            "queue.tube": self._tubes.tube,
            "queue.statistics": self._tubes.statistics,
            "queue.stats": self._stats,
            "queue.state": self._tubes.state,
            "queue.identify": self._tubes.identify,
            "queue.cfg": self._tubes.configure,
            "queue.put": tutorial.put,
            "queue.take": tutorial.take,
            "queue.ack": tutorial.ack,
            "queue.release": tutorial.release,
        }

    def call(self, name: str, args: Args, then: Reply) -> None:
        """CALL and CALL_16: a function by its name."""
        route = self.routes.get(name)
        if route is None:
            try:
                route = self._route(name)
            except Refusal as error:
                then(error)
                return
        self.caller.run(route, args, then)

    def evaluate(self, text: str, args: Args, then: Reply) -> None:
        """EVAL: no Lua runs here; texts that clients send are known, and so is a text that calls one function."""
        words = " ".join(text.split())
        if words == CREATE:
            self.call("queue.create_tube", args, then)
        elif words == EXISTS:
            self.call("queue.tube", args or [""], then)
        elif called := CALL.fullmatch(words):
            self.call(called[1], args if called[2] else [], then)
        else:
            then(
                Refusal(
                    "this server runs no Lua: of texts to evaluate it knows `return f(...)` and `return f()` with a "
                    f"function of the queue's, `{CREATE}` and `{EXISTS}`"
                )
            )

    def _route(self, name: str) -> Route:
        """Find the function; whether its tube exists is seen when it is called."""
        given = name.encode(errors="replace").decode()
        function = given.removeprefix(OLD)
        run, tube = self._functions.get(function), TUBE
        if function.startswith(TUBES) or function == "queue":
            tube, colon, method = function.removeprefix(TUBES).rpartition(":")
            if not colon:
                raise Refusal(f"attempt to call a table value: '{given}' is no function, {TUBES}NAME:put is one")
            run = self._methods.get(method)
        if run is None:
            raise not_defined(given)
        if len(self.routes) >= MAX_ROUTES:
            self.routes.clear()
        route = self.routes[name] = Route(given, tube, run)
        return route

    def _stats(self, route: Route, args: Args, then: Reply) -> None:
        """The tutorial's where its tube exists and none is named, else another name of statistics."""
        if args and args[0] is not None:
            self._tubes.statistics(route, args, then)
        else:
            self._tutorial.stats(route, args, then)
