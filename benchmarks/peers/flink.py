"""Flink SQL, with checkpoints.

Flink gives the files of a folder to its readers in no order, which makes rows late; so each file is a table
of its own, and the watermark of their union is that of the slowest. The wheel has no Parquet format: it reads
csv or json and writes json.
"""

from __future__ import annotations

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.protocol import Config, Folders, files, main

ISO = "yyyy-MM-dd''T''HH:mm:ss.SSSSSS''Z''"
# Flink cannot skip a header: its line does not parse, and all but the symbol are null.
FORMATS = {
    "csv": "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'",
    "json": "'format' = 'json'",
}
INPUT = f"""
    CREATE TEMPORARY TABLE trades_{{number}} (
        symbol STRING, price DOUBLE, size BIGINT, ts STRING,
        event_time AS COALESCE(TO_TIMESTAMP(ts, '{ISO}'), TIMESTAMP '1970-01-01 00:00:00.000'),
        WATERMARK FOR event_time AS event_time - INTERVAL '5' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{{path}}', {{format}})"""
OUTPUT = """
    CREATE TEMPORARY TABLE prices (
        symbol STRING, window_start TIMESTAMP(3), vwap DOUBLE, volume BIGINT, trades BIGINT
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'json')"""
QUERY = """
    INSERT INTO prices
    SELECT symbol, window_start, SUM(price * size) / SUM(size), SUM(size), COUNT(*)
    FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(event_time), INTERVAL '60' SECOND))
    WHERE size > 0
    GROUP BY symbol, window_start, window_end"""


def job(config: Config, folders: Folders) -> None:
    """Run the query to the end of its files, which closes all windows."""
    flink = _environment(config, folders)
    names = []
    for number, path in enumerate(files(config)):
        flink.execute_sql(INPUT.format(number=number, path=path, format=FORMATS[config.format]))
        names.append(f"SELECT * FROM trades_{number}")
    flink.execute_sql(f"CREATE TEMPORARY VIEW trades AS {' UNION ALL '.join(names)}")
    flink.execute_sql(OUTPUT.format(path=folders.output))
    flink.execute_sql(QUERY).wait()


def _environment(config: Config, folders: Folders) -> TableEnvironment:
    settings = Configuration()
    for key, value in {
        "parallelism.default": str(config.cores),
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folders.checkpoint}",
        "state.backend.type": "hashmap",
    }.items():
        settings.set_string(key, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )


if __name__ == "__main__":
    main(job, "json", "part-*")
