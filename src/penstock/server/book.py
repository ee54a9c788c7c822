"""What a server remembers of remote engines, so that a request that comes twice is done once. [rule 5]

An engine numbers its requests. It says with each up to which number it has all answers; those of waits, which may take
for ever, it names one by one. What it has not got yet is kept for when it connects again and asks again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.engines.refund import Grant, refunds
from penstock.model.state import Event
from penstock.model.task import Record
from penstock.model.tube import TubeConfig
from penstock.wire import talk

if TYPE_CHECKING:
    from penstock.server.core import Core, Wait
    from penstock.server.link import Link

log = logging.getLogger("penstock.server")
SECONDS = 120.0
"""How long the answers of an engine are kept when its connection is lost."""
ANSWERS = 20_000
BYTES = 64 * 1024 * 1024
"""How many answers, and bytes of them, are kept for one engine."""
CLIENTS = 10_000
ASIDE = 4
"""Threads for what takes long."""


NAME = 100
"""How long the name that an engine gives itself may be."""


class Sent(NamedTuple):
    """An answer."""

    failed: bool
    payload: bytes | None
    """None: there was no room for it; what it granted is known still, and given back if it is asked for again."""
    grants: Sequence[Grant] = ()
    pure: bool = False
    """True if nothing but takes were asked for, so it can be done again once their grants are given back."""
    waited: bool = False

    @property
    def size(self) -> int:
        """How much there is to keep."""
        return len(self.payload or b"")


class Client:
    """A remote engine, over all its connections to this server."""

    def __init__(self) -> None:
        self.link: Link | None = None
        """The connection it has now."""
        self.pending: set[int] = set()
        self.dropped = 0
        """The last number whose answer was thrown away though it had not arrived."""
        self.forgetting: asyncio.TimerHandle | None = None
        self.waits: dict[int, Wait] = {}
        """Requests that wait, whichever connection they came over."""
        self.sessions: dict[str, None] = {}
        """Sessions that it has opened, joined or kept alive here, and not ended."""
        self._answers: dict[int, Sent] = {}
        self._waited: dict[int, Sent] = {}
        self._empty: dict[int, Sent] = {}
        """Answers of which only the grants are known still."""
        self._seen = 0
        self._size = 0

    def answer(self, number: int) -> Sent | None:
        """The answer that a number has got."""
        return self._answers.get(number) or self._waited.get(number) or self._empty.get(number)

    def redo(self, number: int) -> None:
        """Its answer is void: the request is a new one."""
        for kept in (self._answers, self._waited, self._empty):
            self._drop(kept, number)

    def remember(self, number: int, sent: Sent) -> None:
        """Keep an answer until it has arrived."""
        self.pending.discard(number)
        (self._waited if sent.waited else self._answers)[number] = sent
        self._size += sent.size
        while self._size > BYTES or len(self._answers) + len(self._waited) > ANSWERS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        many = len(self._answers) + len(self._waited) > ANSWERS
        for kept in (self._answers, self._waited):
            oldest = next(iter(kept), None)
            if oldest is not None:
                sent = kept.pop(oldest)
                self._size -= sent.size
                if sent.grants and not many and len(self._empty) < ANSWERS:
                    self._empty[oldest] = sent._replace(payload=None)
                else:
                    self.dropped = max(self.dropped, oldest)
                return

    def arrived(self, seen: int, waits: Iterable[int] = ()) -> None:
        """All answers up to a number have arrived, except those of waits, of which these have."""
        if seen > self._seen:
            if self._answers:
                near = range(self._seen + 1, seen + 1)
                gone = near if len(near) <= len(self._answers) else [n for n in self._answers if n <= seen]
                for number in gone:
                    self._drop(self._answers, number)
            self._seen = seen
            for number in [number for number, sent in self._empty.items() if number <= seen and not sent.waited]:
                del self._empty[number]
        for number in waits:
            self._drop(self._waited, number)
            self._empty.pop(number, None)

    def _drop(self, kept: dict[int, Sent], number: int) -> None:
        sent = kept.pop(number, None)
        if sent is not None:
            self._size -= sent.size


class Book:
    """All remote engines of a server."""

    def __init__(self, core: Core) -> None:
        self.incarnation = str(uuid.uuid4())
        """Differs from one start of a server to the next: only this one knows what it has answered."""
        self.aside = ThreadPoolExecutor(ASIDE, "penstock aside")
        self.core = core
        self._clients: dict[str, Client] = {}
        self._listeners: dict[str, set[Link]] = {}

    def greet(self, name: str, incarnation: str | None, link: Link) -> tuple[Client, bool]:
        """An engine has connected; answers whether it was known, and has not been elsewhere meanwhile."""
        client = self._clients.pop(name, None)
        old = None if client is None else client.link
        if client is not None and incarnation != self.incarnation:
            # Another server has settled what was open here: what comes of that now is for nobody.
            client.link = None
            client = None
        known = client is not None
        if old is not None and old is not link and not old.leaving:
            old.lost()  # its end has not been noticed here yet
            old.cut()
        if client is None:
            self._make_room()
            client = Client()
        self._clients[name] = client
        client.link = link
        if client.forgetting is not None:
            client.forgetting.cancel()
            client.forgetting = None
        return client, known

    def _make_room(self) -> None:
        """Forget the engine that was connected longest ago; one that is connected only if there is no other."""
        if len(self._clients) >= CLIENTS:
            away = (name for name, client in self._clients.items() if client.link is None)
            del self._clients[next(away, None) or next(iter(self._clients))]

    def lost(self, name: str, client: Client, link: Link) -> None:
        """A connection is closed; what its engine has not heard is kept for a while."""
        for tube in [tube for tube, links in self._listeners.items() if link in links]:
            self.unlisten(tube, link)
        if client.link is link:
            client.link = None
            client.forgetting = self.core.loop.call_later(SECONDS, self._forget, name, client)

    def close(self) -> None:
        """The server ends; threads end with what they are doing."""
        self.aside.shutdown(wait=False)
        for client in self._clients.values():
            if client.forgetting is not None:
                client.forgetting.cancel()

    def _forget(self, name: str, client: Client) -> None:
        if client.link is None and self._clients.get(name) is client:
            del self._clients[name]

    # -- changes that engines want to hear of --------------------------------------------------------

    def listen(self, tube: str, link: Link) -> None:
        """Tell a connection of all changes in a tube."""
        links = self._listeners.setdefault(tube, set())
        links.add(link)
        if len(links) == 1:
            self.core.engine.listen(tube, self._changed)

    def unlisten(self, tube: str, link: Link) -> None:
        """Tell it no more."""
        links = self._listeners.get(tube, set())
        links.discard(link)
        if tube in self._listeners and not links:
            del self._listeners[tube]
            self.core.engine.listen(tube, None)

    def is_heard(self, tube: str) -> bool:
        """Whether somebody listens there."""
        return tube in self._listeners

    def _changed(self, config: TubeConfig, record: Record, event: Event) -> None:
        """In the thread that made the change, before its answer is given: what is sent now arrives before that."""
        self.core.soon(self._spread, config, record, event)

    def _spread(self, config: TubeConfig, record: Record, event: Event) -> None:
        links = self._listeners.get(config.name)
        if links:
            payload = talk.encode_change(config, record, event)
            for link in links:
                link.push(payload)


def give_back(core: Core, granted: Iterable[Grant]) -> None:
    """Nobody hears of these."""
    for op in refunds(granted):
        core.ask(op, _log_refusal)


def _log_refusal(answer: Any) -> None:
    if isinstance(answer, BaseException):
        log.info("a task that was granted to nobody comes back with its session: %s", answer)
