"""Every operation, as a value.

An op says what is asked, never how. It carries whole microseconds and encoded data, so it means the same on
every engine and on the wire. `R` is what executing it answers. Batches are first class: Put, Take and Ack
carry many, one is a batch of one; their answers have a record or an error for each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar, dataclass_transform

from penstock.model.duration import Delay
from penstock.model.errors import PenstockError
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.ledger import Note
from penstock.model.session import Session
from penstock.model.staging import Promoted, StagedJob
from penstock.model.state import Reason, State
from penstock.model.stats import Statistics
from penstock.model.task import Data, Draft, Gone, HistoryRow, OnConflict, Placed, Record, TaskId
from penstock.model.tube import Adoption, TubeConfig

R = TypeVar("R", covariant=True)
C = TypeVar("C", bound=type)


MAX_BATCH = 100_000
"""Tasks that one op may put, take or acknowledge."""


class Op(Generic[R]):
    """A request to an engine whose answer is an R."""

    __slots__ = ()
    weak = False
    """True where the contract lets a commit be one level less durable: take, touch, keepalive."""


@dataclass_transform(frozen_default=True, kw_only_default=False)
def op(cls: C) -> C:
    """Frozen to the type checker; at run time a plain slotted class, because ops are made on the hot path."""
    return dataclass(slots=True)(cls)  # type: ignore[return-value]


class Lease(NamedTuple):
    """Which task, and the token of the lease; None means the lease the session now holds."""

    id: TaskId
    token: int | None = None


# -- tubes ---------------------------------------------------------------------------------------------


@op
class CreateTube(Op[TubeConfig]):
    """Make a tube, or find the one of that name."""

    config: TubeConfig
    if_not_exists: bool = False
    given: Mapping[str, Any] | None = None
    """The options as the caller gave them, to compare with an existing tube."""


@op
class GetTube(Op[TubeConfig]):
    """The configuration of a tube."""

    tube: str


@op
class ListTubes(Op[list[TubeConfig]]):
    """All tubes, by name."""


@op
class AlterTube(Op[TubeConfig]):
    """Change options of a tube."""

    tube: str
    options: Mapping[str, Any]


@op
class PauseTube(Op[TubeConfig]):
    """Stop or resume grants."""

    tube: str
    paused: bool


@op
class TruncateTube(Op[int]):
    """Remove all tasks; answers how many."""

    tube: str


@op
class DropTube(Op[None]):
    """Remove the tube and its tasks."""

    tube: str
    force: bool = False


@op
class AdoptTable(Op[TubeConfig]):
    """Make a table of the user's a tube."""

    asked: Adoption


# -- tasks ---------------------------------------------------------------------------------------------


@op
class Put(Op[list[Placed | PenstockError]]):
    """Store tasks, in order; good ones are stored even when others are refused."""

    tube: str
    drafts: tuple[Draft, ...]


@op
class Load(Op[list[PenstockError]]):
    """Store very many tasks that differ in data, pri and lane alone; answers the refusals, not the tasks."""

    tube: str
    data: Sequence[Data]
    pris: Sequence[int | None] | None
    lanes: Sequence[str | None] | None
    shared: Draft

    def drafts(self) -> list[Draft]:
        """The same as drafts."""
        pris, lanes = self.pris or repeat(self.shared.pri), self.lanes or repeat(self.shared.lane)
        return [
            self.shared._replace(data=data, pri=pri, lane=lane)
            for data, pri, lane in zip(self.data, pris, lanes, strict=False)
        ]


@op
class Take(Op[list[Record] | None]):
    """Grant up to n tasks to a session. None: `drain` was set and nothing is left to wait for."""

    weak = True
    tube: str
    n: int
    session: Session
    ttr: int | None = None
    lane: str | None = None
    drain: bool = False


class Finish(NamedTuple):
    """One task to acknowledge."""

    lease: Lease
    result: str | None = None
    keep: int | None = None
    update: Mapping[str, Any] | None = None


@op
class Ack(Op[list[Record | Gone | PenstockError]]):
    """The work of these tasks is done."""

    tube: str
    items: tuple[Finish, ...]
    session: Session


@op
class Release(Op[Record]):
    """Give a task back."""

    tube: str
    lease: Lease
    session: Session
    delay: Delay | None = None
    pri: int | None = None
    ttl: int | None = None
    data: Data | None = None
    refund: bool = False
    update: Mapping[str, Any] | None = None


@op
class Bury(Op[Record]):
    """Set a task aside."""

    tube: str
    lease: Lease
    session: Session
    error: str | None = None
    update: Mapping[str, Any] | None = None


@op
class Fail(Op[Record]):
    """The attempt failed."""

    tube: str
    lease: Lease
    session: Session
    error: str | None = None
    delay: Delay | None = None
    abort: Reason | None = None


@op
class Touch(Op[Record]):
    """Give the holder more time."""

    weak = True
    tube: str
    lease: Lease
    session: Session
    by: int


@op
class Peek(Op[Record]):
    """Look at a task."""

    tube: str
    id: TaskId


@op
class Watch(Op[Record]):
    """Look at a task and keep its end readable for a while, should it end before `until`."""

    tube: str
    id: TaskId
    until: int


@op
class Kick(Op[int]):
    """Revive the first n buried tasks."""

    tube: str
    n: int | None = 1
    delay: Delay | None = None
    ttl: int | None = None
    update: Mapping[str, Any] | None = None


@op
class Dig(Op[Record]):
    """Revive one buried task."""

    tube: str
    id: TaskId
    delay: Delay | None = None
    ttl: int | None = None
    update: Mapping[str, Any] | None = None


@op
class Delete(Op[Record]):
    """Remove a task in any state."""

    tube: str
    id: TaskId


@op
class ReleaseAll(Op[int]):
    """Give back every taken task of the tube."""

    tube: str


@op
class Snatch(Op[Record]):
    """Take a task away from its holder."""

    tube: str
    id: TaskId
    delay: Delay | None = None


@op
class Switch(Op[Record]):
    """Move a task nobody holds to a state."""

    tube: str
    id: TaskId
    state: State
    delay: Delay | None = None


@op
class Restart(Op[Record]):
    """Start a waiting or ended task from the beginning."""

    tube: str
    id: TaskId
    delay: Delay | None = None


@op
class Cancel(Op[Record | None]):
    """End a task nobody needs; a running one is asked to stop. None: no live task has the key."""

    tube: str
    id: TaskId | None = None
    key: str | None = None


@op
class AddRetries(Op[int]):
    """Give exhausted, lost and expired tasks n attempts more."""

    tube: str
    n: int


@op
class ListTasks(Op[list[Record]]):
    """Tasks in the order of their seq, a page at a time."""

    tube: str
    state: State | None = None
    limit: int = 100
    after: TaskId | None = None


@op
class GetExtent(Op[tuple[int, int] | None]):
    """The lowest and the highest seq of a tube's tasks; None if it has none."""

    tube: str


# -- lanes and counters --------------------------------------------------------------------------------


@op
class ConfigureLane(Op[LaneLimits]):
    """Set limits of one lane; None goes back to the tube's."""

    tube: str
    lane: str
    options: Mapping[str, Any]


@op
class ListLanes(Op[list[LaneInfo]]):
    """Lanes that hold tasks or have settings, by name."""

    tube: str
    limit: int = 100
    after: str | None = None


@op
class GetStatistics(Op[dict[str, Statistics]]):
    """Counters of one tube or of all."""

    tube: str | None = None


@op
class ReadHistory(Op[list[HistoryRow]]):
    """Events after a position, oldest first."""

    tube: str | None = None
    after: int = 0
    limit: int = 1000
    upto: int | None = None


@op
class ForgetHistory(Op[int]):
    """Remove events up to and including a position; answers how many."""

    upto: int


@op
class MarkHistory(Op[list[int]]):
    """The seq of every `every`-th event after a position, and of the last one: where pages of history end.

    Only what ReadHistory shows counts, so no event can appear later within a page. every=0 is the last one alone.
    """

    after: int = 0
    every: int = 10_000
    limit: int = 1000
    tube: str | None = None
    upto: int | None = None


# -- ledgers -------------------------------------------------------------------------------------------


@op
class WriteLedger(Op[None]):
    """Append notes to a ledger; DuplicateKey, and nothing is written, if one of the numbers ever was."""

    ledger: str
    first: int
    """The number of the first note, at least 0; the others follow."""
    notes: tuple[str, ...]


@op
class ReadLedger(Op[list[Note]]):
    """Notes after a number, oldest first."""

    ledger: str
    after: int = -1
    limit: int = 1000
    upto: int | None = None


@op
class LastNotes(Op[list[Note]]):
    """The last notes of a ledger, newest first."""

    ledger: str
    limit: int = 1


@op
class TrimLedger(Op[int]):
    """Forget notes up to and including a number; answers how many. Their numbers stay written."""

    ledger: str
    upto: int


@op
class ListLedgers(Op[list[str]]):
    """Names of ledgers that hold notes, in order."""

    prefix: str = ""
    limit: int = 1000
    after: str = ""


# -- staging -------------------------------------------------------------------------------------------


@op
class Stage(Op[int]):
    """Store rows that are no tasks yet; answers how many. What a part has staged before stays in front of them.

    They are neither undone with the transaction nor seen by anybody before they are promoted.
    """

    tube: str
    job: str
    part: str
    rows: bytes
    """An Arrow IPC stream with columns like the fields of a Draft: data or body, and options (engines/staged.py)."""


@op
class Promote(Op[Promoted]):
    """Make tasks of staged parts, in this order; all or, with the error that says why, none."""

    tube: str
    job: str
    parts: tuple[tuple[str, int], ...]
    """Each with the number of its rows: staged rows may get lost in a crash, and then nothing is put."""
    on_conflict: OnConflict = "ignore"


@op
class Discard(Op[int]):
    """Forget what a job has staged; answers how many parts."""

    job: str


@op
class ListStaged(Op[list[StagedJob]]):
    """Jobs that have staged rows."""


# -- sessions and time ---------------------------------------------------------------------------------


@op
class OpenSession(Op[None]):
    """Make a session known."""

    session: Session


@op
class Identify(Op[Session]):
    """Join the session of that uuid and leave one's own."""

    uuid: str
    leave: Session


@op
class KeepAlive(Op[list[int]]):
    """Extend a session; answers the tokens of its tasks that were asked to cancel."""

    weak = True
    session: Session
    until: int | None = None


@op
class EndSession(Op[int]):
    """Give back what the session holds and forget it."""

    session: Session


class Held(NamedTuple):
    """A task that a session holds."""

    tube: str
    id: TaskId
    token: int


@op
class ListLeases(Op[list[Held]]):
    """What a session holds, so that its holder can find what it was granted in an answer that got lost."""

    session: Session
    here: int | None = None
    """Nothing is answered if more than so many are in the session: what they were granted is theirs."""


@op
class Tick(Op[int | None]):
    """Do what is due; answers the moment of the next thing, or None."""


@op
class GetState(Op[str]):
    """INIT, STARTUP, RUNNING, ENDING or WAITING."""


@op
class GetMoment(Op[int]):
    """What time it is, by the clock that all moments of the store are of."""


ALL: tuple[type[Op[Any]], ...] = (
    CreateTube,
    GetTube,
    ListTubes,
    AlterTube,
    PauseTube,
    TruncateTube,
    DropTube,
    AdoptTable,
    Put,
    Load,
    Take,
    Ack,
    Release,
    Bury,
    Fail,
    Touch,
    Peek,
    Watch,
    Kick,
    Dig,
    Delete,
    ReleaseAll,
    Snatch,
    Switch,
    Restart,
    Cancel,
    AddRetries,
    ListTasks,
    GetExtent,
    ConfigureLane,
    ListLanes,
    GetStatistics,
    ReadHistory,
    ForgetHistory,
    MarkHistory,
    WriteLedger,
    ReadLedger,
    LastNotes,
    TrimLedger,
    ListLedgers,
    Stage,
    Promote,
    Discard,
    ListStaged,
    OpenSession,
    Identify,
    KeepAlive,
    EndSession,
    ListLeases,
    Tick,
    GetState,
    GetMoment,
)
