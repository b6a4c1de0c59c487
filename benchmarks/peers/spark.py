"""PySpark by hand: Structured Streaming with the settings that Penstock uses, or with Spark's own."""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.protocol import TOPIC, Config, Folders, main
from penstock.spark.session.jars import jars

SCHEMA = "symbol string, price double, size bigint, ts timestamp"
# What a bench needs and no system gains by: a quiet console, UTC, all epochs' times.
QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
# What penstock/spark/session/spark_session.py sets; a test compares.
TUNED = {
    **QUIET,
    "spark.ui.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.caseSensitive": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.pollingDelay": "20",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}


def session(config: Config) -> SparkSession:
    """Return this process's session: the first call starts it."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    defaults = config.system == "spark-defaults"
    builder = SparkSession.builder.appName(config.system)
    builder = builder.master("local[*]" if defaults else f"local[{config.cores},4]")
    settings = QUIET if defaults else tuned(config.cores)
    if config.log:
        settings = settings | {"spark.jars": ",".join(map(str, jars("kafka")))}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def tuned(cores: int) -> dict[str, str]:
    """Return Penstock's settings for so many cores."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {
        **TUNED,
        "spark.driver.memory": f"{min(max(memory // 4, 1024), 8192)}m",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        "spark.sql.unionOutputPartitioning": "false",
        "spark.sql.optimizer.excludedRules": "",
    }


def read(spark: SparkSession, config: Config) -> DataFrame:
    """Read one file per epoch, or as many records of a topic; what closes the windows comes last."""
    if config.log:
        return read_topic(spark, config)
    reader = spark.readStream.format(config.format).schema(SCHEMA).option("maxFilesPerTrigger", 1)
    if config.format == "csv":
        reader = reader.option("header", True)
    folder, last = config.input.rsplit("/", 1)
    closing = config.closing.rsplit("/", 1)[1]
    return reader.load(f"{folder}/{{{last},{closing}}}" if config.case == "windowed" else config.input)


def read_topic(spark: SparkSession, config: Config) -> DataFrame:
    """Read the topic by Spark's connector; its partitions are as many as there are cores."""
    options = {"kafka.bootstrap.servers": config.log, "subscribe": TOPIC, "startingOffsets": "earliest"}
    reader = spark.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", config.epoch_rows)
    return (
        reader.load().selectExpr(f"from_{config.format}(CAST(value AS STRING), '{SCHEMA}') AS trade").select("trade.*")
    )


def windowed(trades: DataFrame) -> DataFrame:
    """VWAP per symbol and minute."""
    groups = trades.filter("size > 0").withWatermark("ts", "5 seconds").groupBy("symbol", F.window("ts", "60 seconds"))
    return groups.agg(
        F.expr("sum(price * size) / sum(size) AS vwap"),
        F.sum("size").alias("volume"),
        F.count("*").alias("trades"),
    ).selectExpr("symbol", "window.start AS window_start", "window.end AS window_end", "vwap", "volume", "trades")


def stateless(trades: DataFrame) -> DataFrame:
    """A filter and a projection."""
    return trades.filter("size > 0").selectExpr("symbol", "price * size AS notional", "ts")


def python(trades: DataFrame) -> DataFrame:
    """A Python function on each row."""

    @F.udf("symbol string, notional double, ts timestamp")
    def notional(row):  # type: ignore[no-untyped-def]
        return {"symbol": row["symbol"], "notional": row["price"] * row["size"], "ts": row["ts"]}

    return trades.select(notional(F.struct("*")).alias("made")).select("made.*")


CASES = {"windowed": windowed, "stateless": stateless, "python": python}


def job(config: Config, folders: Folders) -> list[float]:
    """Run the query until all files are read; return milliseconds per epoch that read rows."""
    made = CASES[config.case](read(session(config), config))
    stream = made.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    query = stream.option("checkpointLocation", folders.checkpoint).start(folders.output)
    query.awaitTermination()
    return [float(epoch.batchDuration) for epoch in query.recentProgress if epoch.numInputRows]


if __name__ == "__main__":
    main(job)
