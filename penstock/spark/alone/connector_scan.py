"""Topics read by Spark's own Kafka connector instead of ours: the same rows, parsed by the same code.

The connector plans and fetches; each task then does with its records what a scan of ours does: rows are parsed and
counted, bad ones staged, the native prefix run. What only our planner could ship, the task finds itself: the watermarks
of the epoch before. Declared times come from the clock, as in pipelines without a native prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import CheckpointMismatch
from penstock.folders import Folder
from penstock.settings import Settings
from penstock.spark.epochs.notes import newest_epoch, planned_epoch
from penstock.spark.epochs.scan import Piece, Scan, ScanReader, current_epoch, current_partition
from penstock.spark.jars import jars

RECORDS = ("offset", "value", "key", "partition", "timestamp", "headers")


def by_connector(source: Source, settings: Settings) -> bool:
    """Say whether Spark's connector reads a source."""
    return settings.kafka_reader == "spark" and hasattr(source, "connector_options")


def connector_frame(spark: SparkSession, scan: Scan) -> DataFrame:
    """Return the rows of a topic that Spark's connector reads."""
    most = scan.limits.epoch_rows
    limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
    frame = connector_records(spark, scan.source, **limit)
    records = frame.select(*(F.col(name) for name in RECORDS if name in frame.columns))
    return records.mapInArrow(_reader(replace(scan, source=_Fetched(scan.source))), scan.output.nullable().ddl)


def connector_records(spark: SparkSession, source: Source, **more: str) -> DataFrame:
    """Return the records of a topic as Spark's connector gives them."""
    for jar in jars("kafka"):
        spark.sql(f"ADD JAR '{jar}'")
    options: dict[str, str] = source.connector_options()  # type: ignore[attr-defined]
    return spark.readStream.format("kafka").options(**options, **more).load()


def keep_reader(folder: Folder, source: Source, settings: Settings) -> None:
    """Refuse to go on with the other reader: each writes offsets in its own form."""
    if not hasattr(source, "connector_options"):
        return
    mine = settings.kafka_reader
    found = (folder.read("reader") or b"").decode()
    if not found:
        folder.write("reader", mine.encode(), sync=False)
    elif found != mine:
        message = f"the checkpoint has offsets of kafka_reader = '{found}', not '{mine}'"
        raise CheckpointMismatch(message, node=source.name, hint="keep the setting, or choose another --checkpoint")


def connector_offsets(query: Folder, topic: str) -> Offsets:
    """Return how far Spark's connector has planned to read a topic."""
    lines = planned_epoch(query, newest_epoch(query))
    found = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    return next((offsets[topic] for offsets in found if isinstance(offsets.get(topic), dict)), {})


class _Fetched(Source):
    """A topic whose records were fetched already: a piece is an iterator over them."""

    def __init__(self, topic: Any) -> None:
        self.name, self.schema, self._topic = topic.name, topic.schema, topic

    def parts(self, split: Iterator[pa.RecordBatch]) -> list[tuple[str, Iterator[pa.RecordBatch]]]:
        """A task of Spark's connector reads one partition."""
        first = next(split, None)
        return [] if first is None else [(str(first.column("partition")[0].as_py()), chain([first], split))]

    def read_split(self, split: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Rejected]:
        for records in split:
            yield from self._topic.rows(records)


def _reader(scan: Scan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        marks = scan.marks.before(current_epoch()) if scan.marks else ()
        yield from ScanReader(scan).read(Piece(records, current_partition(), marks))

    return read
