"""The claims of a stream: what it has leased, in an order that never changes, and up to where that is done.

Spark may ask for a batch again, after a crash or a restart, and must get the same rows. Tasks change, so every claim is
written down with all that a row needs, in the transaction that leases the task. Ledgers of a stream:

    stream:<id>     one number for each query that has attached itself: the last one alone may go on
    claims:<id>     one number for each task that was claimed
    outcomes:<id>   what became of a claim, where somebody said so
    void:<id>       claims whose lease was lost before any batch had them: no batch will
    acked:<id>      up to which claim leases were ended, and how
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.engines import Engine
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.duration import FOREVER
from penstock.model.errors import DuplicateKey, LeaseLost, NotOwner, NotTaken, PenstockError, TaskNotFound, UsageError
from penstock.model.ledger import Note
from penstock.model.session import Session
from penstock.model.task import Record

PAGE = 1000
"""Claims that one transaction ends, at most."""
FIRST = 100
"""Tasks that are asked for before it is known how large they are."""
PART_BYTES = 16 << 20
"""Data that one statement or page carries, about."""
MOST = 10_000
"""Tasks that one call takes."""
BATCH_BYTES = 256 << 20
"""Data of a batch, about: one that is larger ends early, and the next one goes on."""
NAMES = uuid.UUID("6c1f9d0e-5d0b-5a55-9c8e-0f6f3a0f5b61")
"""The session of a stream has the same uuid in every run, so a restarted query holds what the last one held."""
LOST = (LeaseLost, NotOwner, NotTaken, TaskNotFound)
log = logging.getLogger("penstock")


class Claim(NamedTuple):
    """A task as it was when the stream claimed it."""

    number: int
    record: Record

    def note(self) -> str:
        """What the ledger has of it."""
        values: list[Any] = list(self.record)
        at = Record._fields.index("data")
        if isinstance(self.record.data, bytes):
            values[at] = [base64.b64encode(self.record.data).decode()]
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def read(cls, note: Note) -> Claim:
        """The claim of a note."""
        record = Record(*json.loads(note.text))
        if isinstance(record.data, list):
            record = record._replace(data=base64.b64decode(record.data[0]))
        if isinstance(record.id, list):
            record = record._replace(id=tuple(record.id))
        return cls(note.number, record)

    @property
    def lease(self) -> ops.Lease:
        return ops.Lease(self.record.id, self.record.token)


def portion(number: int, size: int, most: int = PAGE) -> int:
    """How many more of such tasks are not too much at one time.

    >>> portion(100, 5000), portion(100, 100 << 20), portion(2, 1 << 30)
    (1000, 16, 1)
    """
    return max(1, min(most, PART_BYTES * number // max(1, size)))


def claims(engine: Engine, stream: str, after: int, upto: int) -> Iterator[list[Claim]]:
    """Claims of a range, page by page. For any process: nothing is changed."""
    limit = FIRST
    while after < upto:
        page = engine.execute(ops.ReadLedger(f"claims:{stream}", after, limit, upto))
        if not page:
            return
        yield [Claim.read(note) for note in page]
        after = page[-1].number
        limit = portion(len(page), sum(len(note.text) for note in page))


class ClaimLog:
    """The ledgers of one stream, for the one process that plans its batches."""

    def __init__(self, engine: Engine, stream: str, tube: str, ttl: int) -> None:
        self._engine = engine
        self.stream = stream
        self._tube = tube
        self.session = Session(str(uuid.uuid5(NAMES, stream)), f"spark stream {stream}", ttl, direct=False)
        self._config = engine.execute(ops.GetTube(tube))
        self._page = FIRST
        self._epoch = self._attach()
        engine.execute(ops.OpenSession(self.session))
        engine.keep(self.session)
        self.reload()

    def _attach(self) -> int:
        """From now on whoever was attached before is refused."""
        while True:
            last = self._engine.execute(ops.LastNotes(f"stream:{self.stream}"))
            if last and (tube := json.loads(last[0].text)["tube"]) != self._tube:
                raise UsageError(
                    f"stream {self.stream!r} reads the tube {tube!r}, not {self._tube!r}: give this another streamId"
                )
            epoch = last[0].number + 1 if last else 0
            try:
                note = json.dumps({"tube": self._tube, "at": self._engine.clock.now()})
                self._engine.execute(ops.WriteLedger(f"stream:{self.stream}", epoch, (note,)))
            except DuplicateKey:
                continue
            self._engine.execute(ops.TrimLedger(f"stream:{self.stream}", epoch - 1))
            return epoch

    def reload(self) -> None:
        """Look anew at what the ledgers say."""
        self.acked = self._last(self._engine, "acked")
        self.last = max(self.acked, self._last(self._engine, "claims"))

    def _last(self, by: Engine | Transactor, kind: str) -> int:
        notes = by.execute(ops.LastNotes(f"{kind}:{self.stream}"))
        return notes[0].number if notes else 0

    def _check(self, tx: Transactor) -> None:
        """Refuse to go on when another query has attached itself."""
        if self._last(tx, "stream") != self._epoch:
            self._engine.lose(self.session)
            raise UsageError(
                f"another query reads the stream {self.stream!r} now, and this one ends: "
                "a stream has one query at a time; give each a streamId of its own"
            )

    def check_offset(self, start: int) -> None:
        """Refuse an offset that was never given here, or whose claims were forgotten."""
        if start > self.last:
            raise UsageError(
                f"the checkpoint is at claim {start}, but stream {self.stream!r} has claimed {self.last}: it belongs "
                "to another store or streamId; start with an empty checkpointLocation"
            )
        if start < self.last:
            first = self._engine.execute(ops.ReadLedger(f"claims:{self.stream}", start, 1))
            if not first or first[0].number != start + 1:
                raise UsageError(
                    f"the checkpoint is at claim {start} of stream {self.stream!r}, and the claims after it were "
                    "forgotten: it is older than claimRetention; start with an empty checkpointLocation"
                )

    # -- taking ------------------------------------------------------------------------------------

    def take(self, number: int, wanted: Callable[[Record], bool] = lambda record: True) -> tuple[int, list[ops.Lease]]:
        """Lease up to this many tasks and write them down as claims; fewer if their data are large.

        Answers how many were claimed, and what is leased but was not wanted.
        """
        # The session is what ends: a batch takes as long as it takes, and its driver lives or not.
        ttr = FOREVER if self._config.features.ttr else None
        others: list[ops.Lease] = []
        last, left, size, part = self.last, number, 0, FIRST
        with self._engine.transaction() as tx:
            self._check(tx)
            while left > 0 and size < BATCH_BYTES:
                asked = min(left, part)
                records = tx.execute(ops.Take(self._tube, asked, self.session, ttr)) or []
                left -= len(records)
                size += sum(len(record.data) for record in records)
                mine: list[Record] = []
                for record in records:
                    if wanted(record):
                        mine.append(record)
                    else:
                        others.append(ops.Lease(record.id, record.token))
                self._write(tx, last, mine)
                last += len(mine)
                if len(records) < asked:
                    break
                part = portion(number - left, size, MOST)
        claimed, self.last = last - self.last, last
        return claimed, others

    def _write(self, tx: Transactor, last: int, records: list[Record]) -> None:
        notes: list[str] = []
        size = 0
        for number, record in enumerate(records, last + 1):
            notes.append(Claim(number, record).note())
            size += len(notes[-1])
            if size >= PART_BYTES or number == last + len(records):
                tx.execute(ops.WriteLedger(f"claims:{self.stream}", number + 1 - len(notes), tuple(notes)))
                notes, size = [], 0

    def give_back(self, leases: Sequence[ops.Lease]) -> None:
        """Release what was leased and not claimed, as though it had not been taken."""
        for lease in leases:
            try:
                self._engine.execute(ops.Release(self._tube, lease, self.session, refund=True))
            except LOST:
                continue

    def void_lost(self, after: int) -> None:
        """Claims that no batch has yet and whose lease is over: somebody else handles these tasks."""
        for page in claims(self._engine, self.stream, max(after, self.acked), self.last):
            found = self._engine.execute_many([ops.Peek(self._tube, claim.record.id) for claim in page])
            for claim, record in zip(page, found, strict=True):
                if isinstance(record, Exception) and not isinstance(record, TaskNotFound):
                    raise record
                if not isinstance(record, Record) or record.token != claim.record.token:
                    self._void(claim.number)

    def _void(self, number: int) -> None:
        try:
            self._engine.execute(ops.WriteLedger(f"void:{self.stream}", number, ("",)))
        except DuplicateKey:
            return

    def voided(self, after: int, upto: int) -> list[int]:
        """Numbers of a range that no batch has."""
        found: list[int] = []
        while page := self._engine.execute(ops.ReadLedger(f"void:{self.stream}", after, PAGE, upto)):
            found += [note.number for note in page]
            after = page[-1].number
        return found

    # -- ending ------------------------------------------------------------------------------------

    def ack(self, upto: int) -> None:
        """End the leases of claims up to a number by their outcomes; what has none is done."""
        while self.acked < upto:
            with self._engine.transaction() as tx:
                self._check(tx)
                page = tx.execute(ops.ReadLedger(f"claims:{self.stream}", self.acked, self._page, upto))
                last = page[-1].number if page else upto
                tally = self._end(tx, [Claim.read(note) for note in page], last)
                note = json.dumps({"at": self._engine.clock.now(), **tally})
                tx.execute(ops.WriteLedger(f"acked:{self.stream}", last, (note,)))
            self.acked = last
            self._page = portion(len(page), sum(len(note.text) for note in page))
            if tally["lost"]:
                log.warning(
                    "stream %s: %d of %d leases were over before the batch was; others may have handled these tasks",
                    *(self.stream, tally["lost"], len(page)),
                )

    def _end(self, tx: Transactor, page: list[Claim], upto: int) -> Counter[str]:
        said = self._texts(tx, "outcomes", upto)
        void = self._texts(tx, "void", upto)
        page = [claim for claim in page if claim.number not in void]
        tally: Counter[str] = Counter(lost=0)
        done: list[ops.Finish] = []
        for claim in page:
            outcome = json.loads(said.get(claim.number, '{"outcome": "done"}'))
            kind = outcome.pop("outcome")
            if kind == "done":
                done.append(ops.Finish(claim.lease, outcome.get("result")))
            else:
                tally[kind if self._end_one(tx, claim, kind, outcome) else "lost"] += 1
        for answer in tx.execute(ops.Ack(self._tube, tuple(done), self.session)) if done else ():
            if isinstance(answer, PenstockError) and not isinstance(answer, LOST):
                raise answer
            tally["lost" if isinstance(answer, PenstockError) else "done"] += 1
        return tally

    def _texts(self, tx: Transactor, kind: str, upto: int) -> dict[int, str]:
        return dict(tx.execute(ops.ReadLedger(f"{kind}:{self.stream}", self.acked, PAGE, upto)))

    def _end_one(self, tx: Transactor, claim: Claim, kind: str, outcome: dict[str, Any]) -> bool:
        error, delay = outcome.get("error"), outcome.get("delay")
        features, retry = self._config.features, self._config.retry
        if kind == "bury":
            op: ops.Op[Any] = ops.Bury(self._tube, claim.lease, self.session, error)
        elif not features.delay:
            op = ops.Release(self._tube, claim.lease, self.session)
        else:
            # Without a delay and a retry policy a failed task would be buried, and a retry is what was asked for.
            delay = 0 if delay is None and retry is None else delay
            op = ops.Fail(self._tube, claim.lease, self.session, error, delay)
        try:
            tx.execute(op)
        except LOST:
            return False
        return True

    # -- forgetting --------------------------------------------------------------------------------

    def trim(self, age: int) -> None:
        """Forget claims that were acked so long ago: no checkpoint that is in use asks for them."""
        before = self._engine.clock.now() - age
        page = self._engine.execute(ops.ReadLedger(f"acked:{self.stream}", limit=PAGE, upto=self.acked - 1))
        old = [note.number for note in page if json.loads(note.text)["at"] < before]
        if old:
            for kind in ("claims", "outcomes", "void", "acked"):
                self._engine.execute(ops.TrimLedger(f"{kind}:{self.stream}", old[-1]))
