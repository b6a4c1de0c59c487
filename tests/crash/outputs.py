"""What a run wrote, as its readers see it."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

Row = dict[str, Any]
# What is compared: all but what says where a row stood and in which epoch.
COLUMNS = {
    "windowed": ("symbol", "window_start", "window_end", "volume", "trades", "notional"),
    "aggregated": ("symbol", "window_start", "window_end", "volume"),
    "stateless": ("id", "symbol", "ts", "note", "notional"),
    "keyed": ("id", "symbol", "ts", "note", "notional"),
    "process": ("id", "symbol", "note", "number", "total"),
    "counted": ("symbol", "window_number", "volume", "trades"),
    "asof": ("id", "symbol", "ts", "note", "last"),
    "late": ("id", "symbol", "price", "size", "ts"),
    "rejected": ("raw",),
}


def of_files(folder: Path) -> list[Row]:
    """Read what a listing of the folder shows."""
    if not list(folder.glob("*.parquet")):
        return []
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        rows: list[Row] = db.sql(f"FROM read_parquet('{folder}/*.parquet')").to_arrow_table().to_pylist()
        return rows


def of_topic(bootstrap: str, topic: str) -> list[Row]:
    """Read every record that is committed."""
    config = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, "log_level": 0}
    config |= {"isolation.level": "read_committed", "enable.partition.eof": True, "metadata.recovery.strategy": "none"}
    config |= {"fetch.wait.max.ms": 10}
    with closing(Consumer(config)) as consumer:
        known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in known])
        rows, ends = [], 0
        while ends < len(known):
            record = consumer.poll(30)
            assert record is not None, f"{topic} is not read to its end"
            error = record.error()
            if error is None:
                rows.append(_decoded(json.loads(record.value())))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                raise KafkaException(error)
        return rows


def _decoded(row: Row) -> Row:
    """Bytes stand in JSON as base64."""
    return row | {"raw": b64decode(row["raw"])} if "raw" in row else row


def of_table(database: str, table: str) -> list[Row]:
    """Read a table, if it is there."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(database, row_factory=dict_row) as connection:
        if connection.execute("SELECT to_regclass(%s) AS found", [f'"{table}"']).fetchone() == {"found": None}:
            return []
        return connection.execute(f'SELECT * FROM "{table}"').fetchall()


def of_sqlite(path: Path, table: str) -> list[Row]:
    """Read a table of a database in a file, if it is there."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")] if table in names else []


def table(rows: list[Row], columns: tuple[str, ...]) -> pa.Table:
    """Return what is compared."""
    return pa.table({name: pa.array([_plain(row[name]) for row in rows], _type(name)) for name in columns})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return bytes(value).decode() if isinstance(value, (bytes, memoryview)) else value


def _type(name: str) -> pa.DataType:
    """Text for times, which come as such from a topic; an empty column needs a type too."""
    if name in ("volume", "trades", "id", "size", "number", "total", "window_number", "last"):
        return pa.int64()
    return pa.float64() if name in ("price", "notional") else pa.string()
