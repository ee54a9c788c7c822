"""What columns of a DataFrame mean, and which are refused, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

import penstock
from penstock import PenstockError
from penstock.model import ops
from penstock.spark.rows import rows, shape
from penstock.spark.writing import stage

TYPES = {"string": StringType(), "int32": IntegerType(), "int64": LongType(), "double": DoubleType()}


@pytest.fixture
def queue():
    with penstock.connect("memory:") as queue:
        queue.create_tube("jobs", "fifottl", max_payload=100)
        yield queue


def made(queue, **columns: pa.Array) -> pa.RecordBatch:
    schema = StructType([StructField(name, TYPES[str(column.type)]) for name, column in columns.items()])
    config = queue._engine.execute(ops.GetTube("jobs"))
    return rows(pa.RecordBatch.from_pydict(columns), shape(schema, config))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"data": ['{"a":']}, "data must be JSON text, and '{\"a\":' is not"),
        ({"data": ['"\\u0000"']}, "must not contain NUL"),
        ({"data": ["1", "[" * 65 + "]" * 65]}, "nested at most 64 deep"),
        ({"data": pa.array([None], pa.string())}, "data is null in 1 of 1 rows"),
        ({"data": ["1"], "pri": ["x"]}, "column 'pri' is an option of put and must be one of"),
        ({"data": ["1"], "colour": ["red"]}, "column 'colour' is neither 'data' nor an option of put"),
        ({"data": ["1"], "lane": ["a"]}, "lane"),
        ({"pri": [1]}, "there is no column for the data"),
        ({"data": ["1"], "ttl": [-1.0]}, "ttl must not be negative, got -1.0"),
        ({"data": ["1"], "ttl": [float("nan")]}, "ttl must be a number of seconds, not NaN"),
        ({"data": [f'"{"x" * 200}"']}, "has 202 bytes, the tube takes at most 100"),
    ],
)
def test_what_is_refused_is_named(queue, columns: dict[str, Any], text):
    with pytest.raises(PenstockError) as caught:
        made(queue, **{name: pa.array(values) for name, values in columns.items()})
    assert text in str(caught.value)


def test_very_many_seconds_are_for_ever(queue):
    long = made(queue, data=pa.array(["1", "2"]), ttl=pa.array([2**53 + 1, 2**63 - 1]))
    stage(queue._engine, "jobs", "job", "a", [long], 1)
    queue._engine.execute(ops.Promote("jobs", "job", (("a", 2),)))
    assert [task.expires_at for task in queue.tube("jobs").tasks()] == [None, None]
