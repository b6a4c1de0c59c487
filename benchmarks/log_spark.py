"""Spark reads trades in JSON through its own Kafka connector: `python -m benchmarks.log_spark ARGUMENTS`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.peers.spark import SCHEMA
from penstock.settings import Settings
from penstock.spark.session.jars import jars
from penstock.spark.session.spark_session import end_jvm, session

PARSED = f"from_json(CAST(value AS STRING), '{SCHEMA}') AS trade"


def read(bootstrap: str, topic: str, warmups: int, runs: int) -> dict[str, Any]:
    """Parse and add up a whole topic, several times; the sums show that nothing was lost or read twice."""
    spark = session(Settings(spark={"spark.jars": ",".join(map(str, jars("kafka")))}))
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    seconds = []
    for _ in range(warmups + runs):
        started = time.perf_counter()
        # A new plan each time: a second collect of the same one reads what the first has shuffled, not the topic.
        sums = source.load().selectExpr(PARSED).selectExpr("count(trade.ts)", "sum(trade.size)")
        found = sums.collect()[0]
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds[warmups:]), "sums": [int(value or 0) for value in found]}


if __name__ == "__main__":
    try:
        print("\n" + json.dumps(read(**json.loads(sys.argv[1]))), flush=True)
    finally:
        end_jvm()
