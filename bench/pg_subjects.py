"""Who is measured on PostgreSQL: Penstock, plain statements, and the queues of others, all on one server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from bench import pg_node, pg_ours, pg_phase, pg_plain, pg_procrastinate, pg_queuer, phases
from bench.cell import Figures, Opener, Subject
from bench.pg_order import Order
from bench.pg_phase import Clock, Line, Phases
from bench.pg_server import Place, place
from bench.scale import Scale

BATCH = 100
"""What the workers of others get at a time where they can."""
Summary = Callable[[Phases], Figures]
Work = Callable[[Place, Line, Clock], Phases]
WHERE: dict[str, Callable[[Place], AbstractContextManager[Line]]] = {
    pg_ours.NAME: pg_ours.line,
    pg_plain.NAME: pg_plain.line,
}
WEAK = partial(pg_plain.line, take=pg_plain.WEAK_TAKE)
PYTHON = {pg_queuer.NAME: pg_queuer.measure, pg_procrastinate.NAME: pg_procrastinate.measure}
NODE = {peer.NAME: peer for peer in (pg_node.GRAPHILE, pg_node.PGBOSS)}
PEERS = (*PYTHON, *NODE)


def steps(name: str, folder: Path, limit: float, work: Work, summary: Summary, settled: bool = False) -> Subject:
    """Penstock or plain statements, called step by step."""

    def run() -> Figures:
        with place(folder) as where, WHERE.get(name, WEAK)(where) as line:
            pg_phase.warm_up(line)
            if settled:
                where.settle()
            return summary(work(where, line, Clock(where.wal, limit)))

    return Subject(name, run)


def peer(name: str, folder: Path, order: Order, summary: Summary, label: str = "", settled: bool = False) -> Subject:
    """A queue of others, if it is there."""
    known = name + (f" {label}" if label else "")
    if why := missing(name):
        return Subject(known, missing=why)
    measure = PYTHON[name] if name in PYTHON else NODE[name].measure

    def run() -> Figures:
        with place(folder) as where:
            if settled:
                where.settle()
            return summary(measure(where, order))

    return Subject(known, run)


def missing(name: str) -> str:
    if name in NODE:
        return NODE[name].missing()
    return "" if find_spec(name) else "not present: pip install -r requirements/bench.txt"


def single(summary: Summary, work: Callable[[int], Work], wanted: tuple[str, ...] = (), takes: bool = False) -> Opener:
    """Calls of one caller for one task each; `wanted` are the phases of the peers, none if they have no part."""

    def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
        order = Order(wanted, scale.single, scale.limit / 2)
        names = (*WHERE, pg_plain.WEAK) if takes else WHERE
        mine = [steps(name, folder, scale.limit, work(scale.single), summary) for name in names]
        return mine + [peer(name, folder, order, summary) for name in PEERS if wanted]

    return subjects


def rates(**names: str) -> Summary:
    """The rates of some phases; a figure's name is given without its /s."""
    return lambda found: {f"{figure.replace('_', '+')}/s": found[phase].rate for figure, phase in names.items()}


def cycle(found: Phases) -> Figures:
    return phases.figures(found["put"].rate, found["work"].rate)


def puts(count: int) -> Work:
    return lambda where, line, clock: pg_phase.put(line, clock, count)


def halves(count: int) -> Work:
    def work(where: Place, line: Line, clock: Clock) -> Phases:
        pg_phase.fill(where, line, count)
        return pg_phase.take_and_ack(line, clock, count)

    return work


def works(count: int) -> Work:
    def work(where: Place, line: Line, clock: Clock) -> Phases:
        pg_phase.fill(where, line, count)
        return pg_phase.work(line, clock, count)

    return work


def cycles(count: int) -> Work:
    """All are put before the first is taken."""

    def work(where: Place, line: Line, clock: Clock) -> Phases:
        found = pg_phase.put(line, clock, count)
        where.analyze()
        return found | pg_phase.work(line, clock, count)

    return work


def batches(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """Ours and plain statements by 200, the others as many at a time as their workers are asked to get."""
    count, limit = scale.batched, scale.limit
    order = Order(("bulk", "work"), count, limit / 2, batch=BATCH)

    def work(where: Place, line: Line, clock: Clock) -> Phases:
        return pg_phase.batches(line, clock, count, pg_phase.SIZE)

    def summary(found: Phases) -> Figures:
        return phases.figures(found["bulk" if "bulk" in found else "put"].rate, found["work"].rate)

    mine = [steps(name, folder, limit, work, summary) for name in WHERE]
    batched = [name for name in PEERS if name != pg_procrastinate.NAME]
    return mine + [peer(name, folder, order, summary, f"by {BATCH}") for name in batched]


def bulk(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    count, limit, size = 5 * scale.batched, scale.limit, 5_000
    order = Order(("bulk",), count, limit / 2)

    def work(where: Place, line: Line, clock: Clock) -> Phases:
        return pg_phase.bulk(line, clock, count, size)

    summary = rates(put="bulk")
    mine = [steps(name, folder, limit, work, summary) for name in WHERE]
    return mine + [peer(name, folder, order, summary) for name in PEERS]


def wal(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """Bytes that single calls write; whose take and ack cannot be told apart has the sum alone."""
    count, limit = scale.single // 2, scale.limit

    def work(where: Place, line: Line, clock: Clock) -> Phases:
        return pg_phase.put(line, clock, count) | pg_phase.take_and_ack(line, clock, count)

    def summary(found: Phases) -> Figures:
        whole = sum(phase.wal for phase in found.values())
        return {**{f"{name} B": found[name].wal for name in ("put", "take", "ack") if name in found}, "all B": whole}

    found = [steps(name, folder, limit, work, summary, settled=True) for name in WHERE]
    for name in PEERS:
        wanted = ("put", "work") if name == pg_node.GRAPHILE.NAME else ("put", "take", "ack")
        found.append(peer(name, folder, Order(wanted, count, limit / 2), summary, settled=True))
    return found
