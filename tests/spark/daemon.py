"""The daemon that Spark forks its Python workers from, with the modules imported that most of them use.

`pyspark.daemon` imports none of them, so each of a hundred workers would import pandas, PyArrow and Penstock itself.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

MODULES = (
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "psycopg",
    "apsw",
    "pyspark.cloudpickle",
    "pyspark.sql.conversion",
    "pyspark.sql.datasource",
    "pyspark.sql.pandas.types",
    "pyspark.worker",
    "penstock.spark",
    "penstock.spark.claims",
    "penstock.spark.crew",
    "penstock.spark.events",
    "penstock.spark.format",
    "penstock.spark.reading",
    "penstock.spark.sink",
    "penstock.spark.writing",
    "penstock.engines.sqlite.store",
    "penstock.engines.postgres.store",
    "penstock.engines.remote.store",
)

if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    manager()
