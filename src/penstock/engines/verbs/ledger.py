"""Ledgers."""

from __future__ import annotations

from penstock.engines.transaction import Transaction
from penstock.model import ops
from penstock.model.ledger import MOST, Note, taken


def write_ledger(tx: Transaction, op: ops.WriteLedger, now: int) -> None:
    if not op.notes:
        return
    found = tx.written(op.ledger, op.first, op.first + len(op.notes) - 1)
    if found is not None:
        raise taken(op.ledger, found)
    tx.write_notes(op.ledger, op.first, op.notes)


def read_ledger(tx: Transaction, op: ops.ReadLedger, now: int) -> list[Note]:
    return tx.notes(op.ledger, op.after, MOST if op.upto is None else op.upto, op.limit)


def last_notes(tx: Transaction, op: ops.LastNotes, now: int) -> list[Note]:
    return tx.last_notes(op.ledger, op.limit)


def trim_ledger(tx: Transaction, op: ops.TrimLedger, now: int) -> int:
    return tx.trim_notes(op.ledger, op.upto)


def list_ledgers(tx: Transaction, op: ops.ListLedgers, now: int) -> list[str]:
    return tx.ledgers(op.prefix, op.after, op.limit)
