"""Classes of Spark as a JVM has them once they are loaded and checked; to begin with those halves the work of a start.

Made once and kept in build/. A JVM that finds other jars than those it was made from does without it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

PROGRAM = """
import tempfile
from pyspark.sql import SparkSession

def same(batches):
    yield from batches

spark = SparkSession.builder.getOrCreate()
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    rows = spark.range(100).selectExpr("id", "id % 3 AS third", "cast(id AS string) AS data")
    rows.mapInArrow(same, rows.schema).groupBy("third").count().collect()
    rows.write.json(folder + "/rows")
    stream = spark.readStream.schema(rows.schema).json(folder + "/rows").writeStream
    query = stream.foreachBatch(lambda frame, number: frame.count()).option("checkpointLocation", folder + "/c")
    query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
PATIENCE = 600.0


def options(flags: str, environment: dict[str, str], build: Path) -> str:
    """Options with which a JVM begins with the archive; `flags` are those that it is made with."""
    home = Path(pyspark.__file__).parent
    java = subprocess.run(["java", "-version"], capture_output=True, check=True, env=environment, timeout=PATIENCE)
    made_of = [pyspark.__version__.encode(), os.fsencode(home), java.stderr, flags.encode(), PROGRAM.encode()]
    archive = build / f"spark-{hashlib.sha256(b' '.join(made_of)).hexdigest()[:16]}.jsa"
    if not archive.exists():
        build.mkdir(exist_ok=True)
        _make(archive, home / "bin" / "spark-submit", flags, environment)
    # What it has to say about an archive would be between what programs print.
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable"


def _make(archive: Path, submit: Path, flags: str, environment: dict[str, str]) -> None:
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        program, made = Path(folder) / "program.py", Path(folder) / "classes"
        program.write_text(PROGRAM)
        options = f"{flags} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        words = [str(submit), *(f"--conf={name}={value}" for name, value in settings.items())]
        words += ["--driver-java-options", options, str(program)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=folder, timeout=PATIENCE)
        assert done.returncode == 0 and made.exists(), done.stderr[-2000:]
        made.rename(archive)
