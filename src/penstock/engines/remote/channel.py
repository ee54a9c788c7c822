"""Numbered requests to a server, over one connection after the other.

Every request is kept until it is answered. When the connection breaks another one is made, with growing pauses, and
what is unanswered is sent again under its number: a server that knows the number gives its first answer. One that does
not, because it has been started anew, gets again only what may be done twice.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from penstock.engines.remote.link import CONNECT_SECONDS, Link, open_link
from penstock.engines.remote.place import Place
from penstock.engines.remote.request import Call, Request
from penstock.engines.store import log
from penstock.model.errors import EngineUnavailable, PayloadTooLarge, PenstockError
from penstock.wire import codec, talk

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two tries to connect."""
PULSE = 2.5
"""Seconds between two looks at whether the server lives."""

NOTHING = codec.pack([])
"""The payload of a request that does nothing."""
FIRST_LONGEST = 16 * 1024 * 1024


def too_long(size: int, longest: int) -> PayloadTooLarge:
    """The refusal of a call that a server would not read."""
    return PayloadTooLarge(
        f"this call has {size} bytes, and the server takes {longest} at a time: pass fewer tasks, or less data, at once"
    )


class Channel:
    """A server, as something that can be asked."""

    def __init__(
        self,
        place: Place,
        told: Callable[[Any], None],
        settle: Callable[[Link, list[Request]], None],
        patience: Callable[[], float],
    ) -> None:
        """settle is called with a new connection, and with requests whose outcome the server cannot know."""
        self._place = place
        self._told = told
        self._settle = settle
        self._patience = patience
        self._client = str(uuid.uuid4())
        self._lock = threading.Lock()
        self._number = 0
        self._apart = -1
        self._open: dict[int, Request] = {}
        self._waiting: dict[int, Request] = {}
        self._arrived: list[int] = []
        self._direct: dict[int, tuple[Link, SimpleQueue[Any]]] = {}
        self._link: Link | None = None
        self._links: set[Link] = set()
        self._incarnation: str | None = None
        self._era = 0
        """Rises when a server does not know what was asked before: it knows all that was sent to it since."""
        self._broken_at = 0.0
        self._why = ""
        self._stop = threading.Event()
        self.longest = FIRST_LONGEST
        """How many bytes a payload may have."""

    # -- asking ------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """False while a server is looked for."""
        return self._link is not None

    def ask(self, request: Request) -> None:
        """Send a request as soon as there is a connection. Never waits."""
        if len(request.payload) > self.longest:
            raise too_long(len(request.payload), self.longest)
        with self._lock:
            if self._stop.is_set():
                raise EngineUnavailable(f"{self._place.name} is closed; connect again")
            self._number += 1
            request.number = self._number
            request.asked_at = time.monotonic()
            link = request.pinned or self._link
            if link is None or link in self._links:
                (self._waiting if request.waits else self._open)[request.number] = request
                if link is not None:
                    self._send(link, request)
                return
        request.failed(EngineUnavailable(f"the connection to {self._place.name} was lost; nothing was done"))

    def _send(self, link: Link, request: Request) -> None:
        """Called with the lock, so numbers go out in their order."""
        request.link, request.era = link, self._era
        # All up to here has arrived; what comes now says so for free.
        seen = next(iter(self._open), self._number + 1) - 1
        try:
            link.send(request.number, seen, request.kind, request.payload)
        except BaseException:
            link.close()  # a signal came between: nobody knows how much has gone out
            raise

    def arrived(self) -> list[int]:
        """Waits whose answers have come since this was last asked."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return arrived

    def call(self, kind: str, payload: bytes, pinned: Link | None = None, repeatable: bool = False) -> bytes:
        """Ask, and wait for the answer."""
        call = Call(kind, payload, pinned, repeatable)
        self.ask(call)
        return call.result()

    def forget(self, request: Request) -> bool:
        """Take back a request that was never sent; False if it was."""
        with self._lock:
            if request.link is not None:
                return False
        self.drop(request)
        return True

    def drop(self, request: Request) -> None:
        """Forget a request, answered or not; it is not sent again."""
        with self._lock:
            self._open.pop(request.number, None)
            self._waiting.pop(request.number, None)

    def abandon(self, request: Request) -> None:
        """Nobody waits for the answer any more; if there is one its grants go back."""
        request.abandoned = True
        self.forget(request)

    def exchange(self, link: Link, kind: str, payload: bytes) -> bytes:
        """Ask over a connection that is not in use yet."""
        said: SimpleQueue[Any] = SimpleQueue()
        with self._lock:
            self._apart -= 1
            number = self._apart
            self._direct[number] = (link, said)
        link.send(number, 0, kind, payload)
        try:
            failed, answer = said.get(timeout=CONNECT_SECONDS)
        except Empty:
            link.close()
            raise EngineUnavailable(f"{self._place.name} does not answer") from None
        finally:
            with self._lock:
                self._direct.pop(number, None)
        if failed:
            raise codec.decode_error(answer)
        return bytes(answer)

    # -- what links bring --------------------------------------------------------------------------

    def heard(self, link: Link, number: int, failed: bool, payload: bytes) -> None:
        """An answer or a push has come."""
        if number > 0:
            with self._lock:
                request = self._open.pop(number, None)
                if request is None:
                    request = self._waiting.pop(number, None)
                    if request is not None:
                        self._arrived.append(number)
            if request is not None:
                request.answered(failed, payload)
            if link.leaving:
                self._leave(link)
        elif number < 0:
            _, said = self._direct.get(number, (link, None))
            if said is not None:
                said.put((failed, payload))
        else:
            push = talk.decode_push(payload)
            if isinstance(push, talk.Bye):
                self._go_over(link, push.last)
            else:
                self._told(push)

    def _go_over(self, link: Link, last: int | None) -> None:
        """The server goes: ask the next one, and let this one answer what it has."""
        with self._lock:
            if link.leaving:
                return
            link.leaving = True
            if link not in self._links:
                return  # whoever has just made it sees that
            if last is not None:  # what came behind that it has not read
                for request in (*self._open.values(), *self._waiting.values()):
                    if request.link is link and request.number > last:
                        request.link = None
            if self._link is not link:
                return
            self._link = None
            self._broken_at, self._why = time.monotonic(), "the server goes"
        self._connect_soon()
        self._leave(link)

    def _leave(self, link: Link) -> None:
        """Close a connection that nothing is expected from any more."""
        with self._lock:
            requests = (*self._open.values(), *self._waiting.values())
            if any(link in (request.link, request.pinned) for request in requests) or link is self._link:
                return
        if not self._stop.is_set():
            link.close()

    def lost(self, link: Link, why: str) -> None:
        """A connection is broken."""
        with self._lock:
            was_used = link in self._links
            self._links.discard(link)
            for _, said in [entry for entry in self._direct.values() if entry[0] is link]:
                said.put((True, codec.encode_error(EngineUnavailable(f"the connection was lost: {why}"))))
            if not was_used or self._stop.is_set():
                return
            current = self._link is link
            if current:
                self._link = None
                self._broken_at, self._why = time.monotonic(), why
            orphans = not current and any(
                request.link is link for request in (*self._open.values(), *self._waiting.values())
            )
        if current:
            log.info("the connection to %s was lost (%s); it is made again", self._place.name, why)
            self._connect_soon()
        elif orphans:
            threading.Thread(target=self._adopt, args=(link, why), name="penstock orphans", daemon=True).start()

    # -- connecting --------------------------------------------------------------------------------

    def open(self) -> talk.Welcome:
        """Connect for the first time; whoever cannot be reached is not waited for."""
        link, welcome = self._connect()
        with self._lock:
            self._use(link, welcome)
        threading.Thread(target=self._watch, name=f"penstock watch on {self._place.name}", daemon=True).start()
        return welcome

    def _connect(self) -> tuple[Link, talk.Welcome]:
        link = open_link(self._place, self)
        try:
            hello = talk.Hello(codec.VERSION, self._client, self._incarnation)
            return link, talk.decode_welcome(self.exchange(link, "hello", codec.pack(hello)))
        except BaseException:
            link.close()
            raise

    def _use(self, link: Link, welcome: talk.Welcome) -> None:
        self._incarnation = welcome.incarnation
        self._links.add(link)
        self._link = link

    def _watch(self) -> None:
        """Leave a server that hangs though its machine keeps the connection, and tell who has waited enough."""
        while not self._stop.wait(PULSE):
            try:
                link = self._link
                if link is None:
                    self._expire(EngineUnavailable(f"{self._place.name} is not there: {self._why}"))
                elif self._is_dead(link):
                    log.warning("%s has given no sign of life for %g s", self._place.name, link.patience)
                    link.close()
            except Exception:
                log.exception("nobody could look after the connection to %s", self._place.name)

    def _is_dead(self, link: Link) -> bool:
        """Whether a connection that owes an answer has been silent after it was asked for a sign of life."""
        with self._lock:
            owes = any(request.link is link for request in self._open.values())
            self._apart -= 1
            number = self._apart
        now = time.monotonic()
        if not owes or link.moved_at >= (link.called_at or now):
            link.called_at = None
        if owes and link.called_at is None and now - link.moved_at >= PULSE:
            link.called_at = now
            link.send(number, 0, "alive", NOTHING)
        return link.called_at is not None and now - link.called_at >= link.patience

    def _connect_soon(self) -> None:
        threading.Thread(target=self._connect_again, name=f"penstock way to {self._place.name}", daemon=True).start()

    def _connect_again(self) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            try:
                link, welcome = self._connect()
                self._resume(link, welcome)
                return
            except PenstockError as error:
                found = error
            except Exception as error:
                log.exception("%s cannot be reached", self._place.name)
                found = EngineUnavailable(f"{type(error).__name__}: {error}")
            try:
                self._expire(found)
            except Exception:
                log.exception("who waits for %s could not be told", self._place.name)
            self._stop.wait(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE, pause * 2)

    def _resume(self, link: Link, welcome: talk.Welcome) -> None:
        try:
            with self._lock:
                if not welcome.remembered:
                    # From here on the server before does not know what is so: whoever goes back there begins anew.
                    self._era += 1
                    self._incarnation = welcome.incarnation
                doubtful = self._doubtful()
            self._settle(link, doubtful)
        except BaseException:
            link.close()
            raise
        with self._lock:
            if self._stop.is_set() or link.leaving:
                link.close()
                raise EngineUnavailable("the server goes")
            self._use(link, welcome)
            undone = self._send_again(link, set(doubtful))
        if self._why != "the server goes":
            log.info("connected to %s again", self._place.name)
        for request in undone:
            _fail(request, self._unknown(self._why))

    def _doubtful(self) -> list[Request]:
        """What was sent to a server that is gone, and maybe done there."""
        return [
            request
            for request in (*self._open.values(), *self._waiting.values())
            if request.link is not None and request.link not in self._links and request.era != self._era
        ]

    def _send_again(self, link: Link, doubtful: set[Request]) -> list[Request]:
        """Send what is unanswered, in order; answers what must not be done twice. Called with the lock."""
        undone = []
        for number in sorted((*self._open, *self._waiting)):
            request = self._open.get(number) or self._waiting[number]
            if request.link is not None and request.link in self._links:
                continue  # its own server still answers it
            if request in doubtful:
                payload = None if request.abandoned else request.again(self._why)
                if payload is None:
                    if not request.abandoned:
                        undone.append(request)
                    self._open.pop(number, None)
                    self._waiting.pop(number, None)
                    continue
                request.payload = payload
            elif request.link is not None and request.era != self._era:
                continue  # its server has broken off only now: _adopt() sees to it
            elif request.abandoned:
                # A number that is known gets its first answer, whatever comes with it; otherwise nothing is done.
                request.kind, request.payload = "alive", NOTHING
            self._send(link, request)
        return undone

    def _adopt(self, lost: Link, why: str) -> None:
        """A server that was about to go has broken off: what it has not answered is asked elsewhere."""
        while not self._stop.wait(FIRST_PAUSE):
            link = self._link
            if link is None:
                continue  # whoever connects sees to them
            with self._lock:
                doubtful = self._doubtful()
            try:
                self._settle(link, doubtful)
            except PenstockError:
                continue
            with self._lock:
                undone = self._send_again(link, set(doubtful)) if self._link is link else []
            for request in undone:
                _fail(request, self._unknown(why))
            return

    def _expire(self, error: PenstockError) -> None:
        """Tell those who have waited long enough that nobody answers."""
        now, patience = time.monotonic(), self._patience()
        refused = not isinstance(error, EngineUnavailable)
        late = []
        with self._lock:
            for requests in (self._open, self._waiting):
                for number, request in list(requests.items()):
                    if request.abandoned:
                        continue
                    since = max(request.asked_at, self._broken_at)
                    enough = patience if request.patience is None else min(patience, request.patience)
                    if request.link not in self._links and (refused or now - since >= enough):
                        late.append(request)
                        if request.takes and request.link is not None:
                            request.abandoned = True  # what it was granted is found when there is a server again
                        else:
                            del requests[number]
        for request in late:
            _fail(request, self._unknown(str(error)) if request.link is not None else _copy(error))

    def _unknown(self, why: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"the connection to {self._place.name} broke during the call ({why}); it may have been done", "unknown"
        )

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Say no more."""
        with self._lock:
            if self._stop.is_set():
                return
            self._stop.set()
            links, self._links, self._link = self._links, set(), None
            left = [it for it in (*self._open.values(), *self._waiting.values()) if not it.abandoned]
            self._open.clear()
            self._waiting.clear()
        for link in links:
            link.close()
        for request in left:
            outcome = "unknown" if request.link is not None else "not_done"
            _fail(request, EngineUnavailable(f"{self._place.name} was closed while this call waited", outcome))

    def hold(self, seconds: float) -> bool:
        """Before a fork: let no thread be in the middle of something."""
        return self._lock.acquire(timeout=seconds)

    def let_go(self) -> None:
        """After it, on both sides."""
        self._lock.release()

    def disown(self) -> None:
        """In a child: forget the connections, which are the parent's."""
        self._stop.set()
        links, self._links, self._link = self._links, set(), None
        for link in links:
            link.disown()


def _fail(request: Request, error: PenstockError) -> None:
    """Tell a caller; what goes wrong with one is not the others' trouble."""
    try:
        request.failed(error)
    except Exception:
        log.exception("a call that failed could not be told so")


def _copy(error: PenstockError) -> PenstockError:
    """The same error for one more caller."""
    if isinstance(error, EngineUnavailable):
        return EngineUnavailable(str(error), "not_done")
    return codec.decode_error(codec.encode_error(error))
