"""The state machine, as tables.

`TRANSITIONS` lists every change a task can go through and the event that announces it. `VERBS` says what
each verb answers in each state. The diagram in the docs, the CHECKs of the SQL schemas and the transition
tests of every engine are made from these two tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a task is in its life.

    >>> State.DELAYED.letter
    '~'
    """

    READY = "ready"
    TAKEN = "taken"
    DELAYED = "delayed"
    BURIED = "buried"
    DONE = "done"

    @property
    def letter(self) -> str:
        """The one-letter name that tarantool/queue clients know."""
        return LETTERS[self]


LETTERS = {State.READY: "r", State.TAKEN: "t", State.DELAYED: "~", State.BURIED: "!", State.DONE: "-"}
LIVE = (State.READY, State.TAKEN, State.DELAYED, State.BURIED)


class Reason(StrEnum):
    """Why a task is BURIED or DONE."""

    ASKED = "asked"
    NO_ATTEMPTS = "no_attempts"
    LOST = "lost"
    ABORTED = "aborted"
    UNKNOWN_HANDLER = "unknown_handler"
    SUCCESS = "success"
    DELETED = "deleted"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


BURIED_REASONS = (Reason.ASKED, Reason.NO_ATTEMPTS, Reason.LOST, Reason.ABORTED, Reason.UNKNOWN_HANDLER)
DONE_REASONS = (Reason.SUCCESS, Reason.DELETED, Reason.CANCELLED, Reason.EXPIRED)


class Event(StrEnum):
    """What a change is called in callbacks, in statistics and in the history."""

    PUT = "put"
    REPLACE = "replace"
    TAKE = "take"
    ACK = "ack"
    TOUCH = "touch"
    BURY = "bury"
    FAIL = "fail"
    DELETE = "delete"
    RELEASE = "release"
    KICK = "kick"
    CANCEL = "cancel"
    TTR = "ttr"
    TTL = "ttl"
    DELAY = "delay"


class Transition(NamedTuple):
    """One edge of the state machine. `source` None means the task did not exist before."""

    event: Event
    source: State | None
    target: State
    reason: Reason | None = None


def _edges() -> list[Transition]:
    ready, taken, delayed, buried, done = State
    edges = [
        Transition(Event.PUT, None, ready),
        Transition(Event.PUT, None, delayed),
        Transition(Event.TAKE, ready, taken),
        Transition(Event.ACK, taken, done, Reason.SUCCESS),
        Transition(Event.ACK, taken, delayed),
        Transition(Event.TOUCH, taken, taken),
        Transition(Event.TOUCH, ready, ready),
        Transition(Event.RELEASE, taken, ready),
        Transition(Event.RELEASE, taken, delayed),
        Transition(Event.RELEASE, taken, buried, Reason.LOST),
        Transition(Event.RELEASE, ready, delayed),
        Transition(Event.FAIL, taken, ready),
        Transition(Event.FAIL, taken, delayed),
        *(Transition(Event.FAIL, taken, buried, r) for r in BURIED_REASONS if r not in (Reason.ASKED, Reason.LOST)),
        Transition(Event.TTR, taken, ready),
        Transition(Event.TTR, taken, buried, Reason.LOST),
        Transition(Event.DELAY, delayed, ready),
        Transition(Event.BURY, done, buried, Reason.ASKED),
    ]
    edges += [Transition(Event.REPLACE, s, t) for s in (ready, delayed, buried) for t in (ready, delayed)]
    edges += [Transition(Event.BURY, s, buried, Reason.ASKED) for s in (ready, taken, delayed)]
    edges += [Transition(Event.KICK, s, t) for s in (delayed, buried, done) for t in (ready, delayed)]
    edges += [Transition(Event.DELETE, s, done, Reason.DELETED) for s in State]
    # A lease that ends may be followed by these in the same transaction: the middle state is never stored.
    edges += [Transition(Event.CANCEL, s, done, Reason.CANCELLED) for s in (ready, delayed, buried)]
    edges += [Transition(Event.TTL, s, done, Reason.EXPIRED) for s in (ready, delayed, buried)]
    return edges


TRANSITIONS: frozenset[Transition] = frozenset(_edges())

# What a verb given the task's id answers. A state: the task goes there. The name of an error: that error, and
# nothing changes. "taken" is held by the caller, "other" by another session; `switch` is switch(id, "buried").
_TABLE = """
            ready       taken       other       delayed     buried      done
ack         NotTaken    done        NotOwner    NotTaken    NotTaken    NotTaken
release     NotTaken    ready       NotOwner    NotTaken    NotTaken    NotTaken
bury        buried      buried      NotOwner    buried      buried      WrongState
fail        NotTaken    buried      NotOwner    NotTaken    NotTaken    NotTaken
touch       ready       taken       NotOwner    delayed     buried      done
peek        ready       taken       taken       delayed     buried      done
dig         WrongState  WrongState  WrongState  WrongState  ready       WrongState
delete      gone        gone        gone        gone        gone        gone
snatch      NotTaken    ready       ready       NotTaken    NotTaken    NotTaken
switch      buried      WrongState  WrongState  buried      buried      buried
restart     WrongState  WrongState  WrongState  ready       ready       ready
cancel      done        taken       taken       done        done        WrongState
"""


def _verbs() -> dict[str, dict[str, str]]:
    columns, *rows = (line.split() for line in _TABLE.strip().splitlines())
    return {verb: dict(zip(columns, answers, strict=True)) for verb, *answers in rows}


VERBS: dict[str, dict[str, str]] = _verbs()
