"""Rows of Arrow as the text that COPY reads."""

from __future__ import annotations

import pyarrow as pa

from penstock.engines.postgres.staging import lines


def test_a_part_of_a_portion_may_have_nothing_but_nulls():
    rows = pa.RecordBatch.from_pydict({"data": ["1", "2"], "lane": pa.array([None, None], pa.string())})
    assert bytes(lines(rows)) == b"1\t\\N\n2\t\\N\n"


def test_what_stands_outside_a_part_is_not_written():
    rows = pa.RecordBatch.from_pydict({"data": ['"\\n"', "2", "3"], "lane": [None, "a\tb", "c\\d"]})
    assert bytes(lines(rows.slice(1, 1))) == b"2\ta\\tb\n"
    assert bytes(lines(rows.slice(0, 1))) == b'"\\\\n"\t\\N\n'
