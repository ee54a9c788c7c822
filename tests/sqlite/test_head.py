"""Row 0 of a tube's table."""

from __future__ import annotations

from penstock.engines.sqlite.head import Head


def test_a_packed_head_comes_back_equal():
    head = Head(Head.fresh())
    head.seq, head.turn, head.token, head.token_end = 1, 2, 3 << 40, 4 << 40
    head.next_due, head.lane_rows, head.mixed_pri = 5, 6, 1
    head.counters[:] = range(len(head.counters))
    again = Head(head.pack())
    assert {name: getattr(again, name) for name in Head.__slots__} == {n: getattr(head, n) for n in Head.__slots__}


def test_nothing_due_stays_nothing_due():
    assert Head(Head(Head.fresh()).pack()).next_due is None
