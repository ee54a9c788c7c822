"""Works on a lake with the Spark of another process, and stands still where it is told to: URL LAKE WHAT STAGE.

Starting Spark takes ten seconds, so this program joins a JVM that runs already: PYSPARK_GATEWAY_PORT and _SECRET say
where it is.
"""

from __future__ import annotations

import sys

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import penstock.spark
from penstock.pipeline.compact import compact
from penstock.pipeline.lake import Lake
from penstock.pipeline.replay import replay
from penstock.pipeline.step import step


def joined() -> SparkSession:
    gateway = launch_gateway()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
    # A session of its own: what it registers is gone with this process, and others must not come upon it.
    sessions = gateway.jvm.org.apache.spark.sql.classic.SparkSession
    return penstock.spark.register(SparkSession(context, sessions.getDefaultSession().get().newSession()))


def main() -> None:
    url, place, what, where = sys.argv[1:]
    spark, lake = joined(), Lake(place)

    def at(stage: str) -> None:
        if stage == where:
            print(stage, flush=True)
            sys.stdin.read()

    if what == "step":
        step(spark, url, lake, at=at)
    elif what == "compact":
        compact(spark, lake, at=at)
    else:
        replay(spark, url, lake, what, "again", chunk=10, tell=lambda done, of: at(str(done)))
    print("done", flush=True)


if __name__ == "__main__":
    main()
