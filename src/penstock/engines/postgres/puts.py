"""Putting: the ordinary cases of one and of many tasks in one statement, the others task by task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from penstock.engines.postgres.answers import INFO, ITEM, KIND, Answer, Row, Stale, Tube, record, refusal, stored_id
from penstock.engines.postgres.call import CONTEXT, Call, Context, delay_of, int_array, text_array, times, unless_none
from penstock.engines.verbs.putting import check_draft, check_id
from penstock.model import ops, rules
from penstock.model.duration import At
from penstock.model.errors import PenstockError
from penstock.model.task import Draft, Placed, Record
from penstock.model.tube import TubeConfig


def put(context: Context, op: ops.Put, tube: Tube) -> Call:
    if (shared := _shared(op.drafts)) is not None and is_plain(context, tube):
        return (
            _one(context, shared, tube)
            if len(op.drafts) == 1 and not context.joined
            else _bulk(context, op, tube, shared)
        )
    return _each(context, op, tube)


def is_plain(context: Context, tube: Tube) -> bool:
    """True for tubes in which a put meets nothing but room."""
    config = tube.config
    listened = tube.number in context.listened
    return (
        config.capacity is None
        and not config.history
        and not listened
        and config.id in ("auto", "time64")
        and config.adopted is None
    )


def _shared(drafts: tuple[Draft, ...]) -> Draft | None:
    """The options that all drafts have in common, if they differ in nothing but data, pri and lane."""
    if not drafts:
        return None
    first = drafts[0]
    if first.key is not None or first.put_id is not None or first.id is not None:
        return None
    if len(drafts) > 1:
        common = _common(first)
        if any(_common(draft) != common for draft in drafts):
            return None
    return first


_common = itemgetter(
    *(Draft._fields.index(name) for name in Draft._fields if name not in ("data", "pri", "lane", "on_conflict"))
)
_NOTHING = _common(Draft(""))


def _one(context: Context, draft: Draft, tube: Tube) -> Call:
    config = tube.config
    try:
        check(config, draft)
    except PenstockError as error:
        return _said([error])

    def read(rows: list[Row]) -> list[Placed | PenstockError]:
        ((at, seq),) = rows
        if at is None:
            raise Stale
        return [Placed(rules.put(config, draft, at, seq, seq).after, "new")]

    is_bytes = config.payload == "bytes"
    text, body = (None, draft.data) if is_bytes else (draft.data, None)
    if _says_little(config, draft):
        return Call(
            f"select * from {context.schema}.put0_{tube.number}(%s, %s, %s, %s::json, %s::bytea, %s)",
            (tube.version, context.now, context.relaxed, text, body, draft.pri),
            read,
            raw=True,
        )
    delay = draft.delay
    derived = draft.ttl == "derived"
    return Call(
        f"select * from {context.schema}.put1_{tube.number}(%s, %s, %s, %s::json, %s::bytea{', %s' * 10})",
        (
            *(tube.version, context.now, context.relaxed),
            *(text, body),
            *(draft.pri, None if derived else draft.ttl, derived, draft.ttr),
            *(None if isinstance(delay, At) else delay, delay.moment if isinstance(delay, At) else None),
            *(draft.lane, draft.max_attempts, draft.keep, draft.repeat),
        ),
        read,
        raw=True,
    )


def _says_little(config: TubeConfig, draft: Draft) -> bool:
    """True for a task that has data and perhaps a pri, in a tube without lanes and times."""
    untimed = config.ttl is None and config.ttr is None and not config.features.lanes and config.id == "auto"
    return untimed and _common(draft) == _NOTHING


def _said(results: list[Any]) -> Call:
    """Nothing to ask: every item is refused already."""
    return Call("select 1", (), lambda rows: results, raw=True)


def _bulk(context: Context, op: ops.Put, tube: Tube, shared: Draft) -> Call:
    config, drafts = tube.config, op.drafts
    errors = _refused(config, drafts)
    good = [draft for number, draft in enumerate(drafts) if number not in errors] if errors else drafts
    if not good:
        return _said(list(errors.values()))

    def read(rows: list[Row]) -> list[Placed | PenstockError]:
        ((at, seqs),) = rows
        if at is None:
            raise Stale
        placed: Iterator[Placed | PenstockError] = _placed(config, good, seqs, at)
        if not errors:
            return list(placed)
        return [errors[number] if number in errors else next(placed) for number in range(len(drafts))]

    derived, ttl = shared.ttl == "derived", None if shared.ttl == "derived" else shared.ttl
    delay = shared.delay
    pris = [draft.pri for draft in good]
    lanes = [draft.lane for draft in good]
    data: Any = [draft.data for draft in good]
    texts, bodies = (None, data) if config.payload == "bytes" else (text_array(data), None)
    return Call(
        f"select * from {context.schema}.bulk_{tube.number}"
        f"(%s, %s, %s, %s, %s::text[], %s::bytea[], %s::bigint[], %s::text[]{', %s' * 9})",
        (
            *(tube.version, context.now, context.relaxed, context.joined, texts, bodies),
            *(
                None if pris.count(None) == len(pris) else int_array(pris),
                unless_none(lanes),
                None,
                ttl,
                derived,
                shared.ttr,
            ),
            *(None if isinstance(delay, At) else delay, delay.moment if isinstance(delay, At) else None),
            *(shared.max_attempts, shared.keep, shared.repeat),
        ),
        read,
        raw=True,
    )


def _refused(config: TubeConfig, drafts: tuple[Draft, ...]) -> dict[int, PenstockError]:
    """Drafts that do not fit, by their number. They differ in data, pri and lane alone."""
    longest = max(len(draft.data) for draft in drafts)
    plain = config.features.pri and config.features.lanes
    if longest * 4 <= config.max_payload and (plain or all(d.pri is None and d.lane is None for d in drafts)):
        drafts = drafts[:1]  # what is right for one is right for all
    errors: dict[int, PenstockError] = {}
    for number, draft in enumerate(drafts):
        try:
            check(config, draft)
        except PenstockError as error:
            errors[number] = error
    return errors


def _placed(config: TubeConfig, drafts: Sequence[Draft], seqs: Sequence[int], at: int) -> Iterator[Placed]:
    """Fresh tasks as the database has stored them. They differ in number, data, pri and lane alone."""
    first = rules.put(config, drafts[0], at, 0, 0).after
    state, reason, rest = first.state, first.reason, first[_LANE + 1 :]
    default_pri, shared_lane = config.pri, config.lane_of(None)
    new = tuple.__new__
    for draft, seq in zip(drafts, seqs, strict=True):
        pri = default_pri if draft.pri is None else draft.pri
        yield Placed(new(Record, (seq, seq, state, reason, draft.data, pri, draft.lane or shared_lane, *rest)), "new")


_LANE = Record._fields.index("lane")


def _each(context: Context, op: ops.Put, tube: Tube) -> Call:
    results: list[Any] = [None] * len(op.drafts)
    items: list[dict[str, Any]] = []
    for number, draft in enumerate(op.drafts):
        try:
            check(tube.config, draft)
        except PenstockError as error:
            results[number] = error
        else:
            items.append(item_of(number, draft))
    bodies = [draft.data for draft in op.drafts] if tube.config.payload == "bytes" else None

    def read(answer: Answer) -> list[Placed | PenstockError]:
        for row in answer.rows:
            draft = op.drafts[row[ITEM]]
            if row[KIND] == "task":
                results[row[ITEM]] = Placed(record(row), row[INFO])
            else:
                results[row[ITEM]] = refusal(row, tube.config, draft.id, draft.key)
        return results

    return Call(
        f"select * from {context.schema}.puts_{tube.number}(%s, {CONTEXT}, %s, %s, %s::json, %s::bytea[])",
        (tube.version, *times(context), context.relaxed, context.joined, msgspec.json.encode(items).decode(), bodies),
        read,
    )


def check(config: TubeConfig, draft: Draft) -> None:
    """Refuse a draft that does not fit the tube."""
    check_draft(config, draft)
    check_id(config, draft)
    if draft.ttl == "derived" or (draft.ttl is None and config.ttl == "derived"):
        ttr = config.ttr if draft.ttr is None else draft.ttr
        rules.derived_ttl(config, ttr, config.max_attempts if draft.max_attempts is None else draft.max_attempts)


def item_of(number: int, draft: Draft) -> dict[str, Any]:
    """What was given of a task, for a function that stores it."""
    item: dict[str, Any] = {"item": number}
    if isinstance(draft.data, str):
        item["data"] = msgspec.Raw(draft.data.encode())
    for name in ("pri", "ttr", "lane", "key", "put_id", "max_attempts", "keep", "repeat"):
        value = getattr(draft, name)
        if value is not None:
            item[name] = value
    if draft.key is not None:
        item["on_conflict"] = draft.on_conflict
    if draft.ttl == "derived":
        item["derived"] = True
    elif draft.ttl is not None:
        item["ttl"] = draft.ttl
    if draft.id is not None:
        item["id"] = stored_id(draft.id)
    item.update(delay_of(draft.delay))
    return item
