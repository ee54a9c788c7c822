"""Calls about ledgers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engines.postgres.call import Call, Context
from penstock.model import ops
from penstock.model.ledger import MOST, Note, taken


def write_ledger(context: Context, op: ops.WriteLedger) -> Call:
    def read(rows: list[Any]) -> None:
        if rows[0][0] is not None:
            raise taken(op.ledger, rows[0][0])

    sql = f"select {context.schema}.write_ledger(%s, %s, %s::text[])"
    return Call(sql, (op.ledger, op.first, list(op.notes)), read, raw=True)


def read_ledger(context: Context, op: ops.ReadLedger) -> Call:
    upto = MOST if op.upto is None else op.upto
    sql = f"select * from {context.schema}.read_ledger(%s, %s, %s, %s)"
    return Call(sql, (op.ledger, op.after, upto, op.limit), _notes, raw=True)


def last_notes(context: Context, op: ops.LastNotes) -> Call:
    return Call(f"select * from {context.schema}.last_notes(%s, %s)", (op.ledger, op.limit), _notes, raw=True)


def trim_ledger(context: Context, op: ops.TrimLedger) -> Call:
    sql = f"select {context.schema}.trim_ledger(%s, %s)"
    return Call(sql, (op.ledger, op.upto), lambda rows: rows[0][0], raw=True)


def list_ledgers(context: Context, op: ops.ListLedgers) -> Call:
    sql = f"select * from {context.schema}.list_ledgers(%s, %s, %s)"
    return Call(sql, (op.prefix, op.after, op.limit), lambda rows: [row[0] for row in rows], raw=True)


def mark_history(context: Context, op: ops.MarkHistory) -> Call:
    upto = MOST if op.upto is None else op.upto
    if op.every:
        sql = f"select * from {context.schema}.mark_history(%s, %s, %s, %s, %s)"
        values: tuple[Any, ...] = (op.tube, op.after, upto, op.every, op.limit)
    else:
        sql = f"select * from {context.schema}.last_event(%s, %s, %s)"
        values = (op.tube, op.after, upto)
    return Call(sql, values, lambda rows: [row[0] for row in rows], raw=True)


def _notes(rows: list[Any]) -> list[Note]:
    return [Note(*row) for row in rows]


CALLS: dict[type[ops.Op[Any]], Callable[[Context, Any], Call]] = {
    ops.MarkHistory: mark_history,
    ops.WriteLedger: write_ledger,
    ops.ReadLedger: read_ledger,
    ops.LastNotes: last_notes,
    ops.TrimLedger: trim_ledger,
    ops.ListLedgers: list_ledgers,
}
