"""How Spark reads a source: through Penstock's own scan, or a topic through the Kafka connector of Spark.

Both give the same rows, parsed by the same code. The connector plans and fetches; each task then does with its records
what a scan does: it parses and counts rows, stages bad ones and runs the native prefix. The task itself looks up the
watermarks of the epoch before, which only Penstock's planner could ship. Declared times come from the clock source, as
in pipelines without a native prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import KafkaConnectable, Offsets, Rejected, Source
from penstock.errors import CheckpointMismatch
from penstock.settings import Settings
from penstock.spark.session.jars import jars
from penstock.spark.tasks.offset_files import newest_epoch, offset_log_entry, reached_offsets, read_offsets
from penstock.spark.tasks.scan import Scan, ScanPartition, ScanReader
from penstock.spark.tasks.spark_types import map_in_arrow
from penstock.spark.tasks.task_context import current_epoch, current_partition
from penstock.storage.folders import Folder

RECORDS = ("offset", "value", "key", "partition", "timestamp", "headers")


class SourceReader(Protocol):
    """One way to read a source in micro-batches.

    `offers_times`: declared times come among its rows. `drops_backlog`: it can leave out the oldest rows.
    `commits`: its planner reports to the source how far epochs have come; otherwise the driver does.
    """

    offers_times: bool
    drops_backlog: bool
    commits: bool

    def frame(self, spark: SparkSession, scan: Scan) -> DataFrame:
        """Return the rows of the source."""

    def planned(self, query: Folder, messages: Folder) -> Offsets:
        """Return how far the source was planned to be read."""

    def reached(self, query: Folder, messages: Folder, name: str, epoch: int) -> tuple[Offsets, int | None]:
        """Return how far an epoch of the query of this name has read, and how many rows its limit holds back."""


def source_reader(source: Source, settings: Settings) -> SourceReader:
    """Return the reader of a source."""
    return KafkaConnectorReader(source) if uses_kafka_connector(source, settings) else ScanSourceReader()


def uses_kafka_connector(source: Source, settings: Settings) -> bool:
    """Return whether Spark's connector reads a source."""
    return settings.kafka_reader == "spark" and isinstance(source, KafkaConnectable)


class ScanSourceReader:
    """Penstock's own scan."""

    offers_times = drops_backlog = commits = True

    def frame(self, spark: SparkSession, scan: Scan) -> DataFrame:
        """Register the scan as a data source of Spark, and read it."""
        spark.dataSource.register(scan.data_source())
        return spark.readStream.format(scan.format).load()

    def planned(self, query: Folder, messages: Folder) -> Offsets:
        """Return what the planner wrote last."""
        return read_offsets(messages)

    def reached(self, query: Folder, messages: Folder, name: str, epoch: int) -> tuple[Offsets, int | None]:
        """Return what the planner wrote when it planned the epoch."""
        return reached_offsets(messages, name, epoch)


@dataclass(frozen=True)
class KafkaConnectorReader:
    """The Kafka connector of Spark."""

    source: Source
    offers_times = drops_backlog = commits = False

    def frame(self, spark: SparkSession, scan: Scan) -> DataFrame:
        """Read records by the connector, and parse them in its tasks."""
        most = scan.limits.epoch_rows
        limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
        frame = connector_records(spark, scan.source, **limit)
        records = frame.select(*(F.col(name) for name in RECORDS if name in frame.columns))
        parse = _parser(replace(scan, source=_FetchedTopic(scan.source)))
        return map_in_arrow(records, parse, scan.output.nullable().ddl)

    def planned(self, query: Folder, messages: Folder) -> Offsets:
        """Return what Spark wrote to its offset log."""
        lines = offset_log_entry(query, newest_epoch(query))
        found = [json.loads(line) for line in lines[2:] if line.startswith("{")]
        return next(
            (offsets[self.source.name] for offsets in found if isinstance(offsets.get(self.source.name), dict)), {}
        )

    def reached(self, query: Folder, messages: Folder, name: str, epoch: int) -> tuple[Offsets, int | None]:
        """Return what Spark wrote to its offset log; it does not say what is held back."""
        return self.planned(query, messages), None


def connector_records(spark: SparkSession, source: Source, **more: str) -> DataFrame:
    """Return the records of a topic as Spark's connector gives them."""
    for jar in jars("kafka"):
        spark.sql(f"ADD JAR '{jar}'")
    assert isinstance(source, KafkaConnectable)
    options = source.connector_options()
    return spark.readStream.format("kafka").options(**options, **more).load()


def check_reader(folder: Folder, source: Source, settings: Settings) -> None:
    """Refuse a checkpoint of the other reader: each writes offsets in its own form."""
    if not isinstance(source, KafkaConnectable):
        return
    mine = settings.kafka_reader
    found = (folder.read("reader") or b"").decode()
    if not found:
        folder.write("reader", mine.encode(), sync=False)
    elif found != mine:
        message = f"the checkpoint has offsets of kafka_reader = '{found}', not '{mine}'"
        raise CheckpointMismatch(message, node=source.name, hint="keep the setting, or choose another --checkpoint")


class _FetchedTopic(Source):
    """A topic whose records the connector has fetched: a split is an iterator over them."""

    def __init__(self, topic: Any) -> None:
        self.name, self.schema, self._topic = topic.name, topic.schema, topic

    def splits_by_partition(self, split: Iterator[pa.RecordBatch]) -> list[tuple[str, Iterator[pa.RecordBatch]]]:
        """A task of Spark's connector reads one partition."""
        first = next(split, None)
        return [] if first is None else [(str(first.column("partition")[0].as_py()), chain([first], split))]

    def read_split(self, split: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Rejected]:
        for records in split:
            yield from self._topic.rows(records)


def _parser(scan: Scan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parse(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        watermarks = scan.watermarks.before(current_epoch()) if scan.watermarks else ()
        yield from ScanReader(scan).read(ScanPartition(records, current_partition(), watermarks))

    return parse
