"""Bounded reads of topics: so many of the oldest or the newest records, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.connectors.topics.client_errors import translated
from penstock.connectors.topics.cluster import Cluster, fetch_topic_metadata, missing_topic
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.fetch import fetch
from penstock.connectors.topics.offsets import OutOfRange, Range, share_rows
from penstock.connectors.topics.partition_reader import FetchRange
from penstock.connectors.topics.payloads import RECORDS
from penstock.connectors.topics.record_batches import Damaged
from penstock.connectors.topics.source import topic_name
from penstock.errors import NoBroker, UnknownTopic

MOST_BYTES = 128 * 1024**2
_GROUP = "penstock-console"
_COLUMNS = ("offset", "value", "key", "partition", "timestamp", "headers")


@dataclass
class Records:
    """What was read of a topic; `truncated` if there is more than was asked for, or more than fits."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    truncated: bool = False

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(batch.nbytes for batch in self.batches)


def read_records(connection: Connection, topic: str, *, newest: bool, limit: int) -> Records:
    """Read the oldest or the newest records of a topic, a share of each partition."""
    whole = _ranges(connection, topic_name(topic))
    total = sum(one.last - one.first for one in whole)
    found = Records(truncated=total > limit)
    for part in _newest(whole, limit) if newest else _oldest(whole, limit):
        for batch in read_range(connection, topic, part):
            found.batches.append(batch)
            if found.bytes > MOST_BYTES:
                found.truncated = True
                return found
    return found


def read_range(connection: Connection, topic: str, part: Range) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range that can be read; those that were deleted or are damaged are left out."""
    at = part.first
    while at < part.last:
        try:
            for batch in fetch(connection, _GROUP, FetchRange(topic, part.partition, at, part.last), _COLUMNS):
                yield batch.cast(RECORDS) if batch.schema != RECORDS else batch
                at = batch.column("offset")[-1].as_py() + 1
            return
        except OutOfRange:
            return
        except Damaged as damaged:
            at = max(at + 1, damaged.next)
        except KafkaException as error:
            raise translated(error, topic, connection, NoBroker) from error


def _ranges(connection: Connection, topic: str) -> list[Range]:
    if not connection.listens():
        message = f"nobody listens at {connection.servers}"
        raise NoBroker(message, hint=connection.remedy, transient=True)
    cluster = Cluster(connection, NoBroker)
    metadata = fetch_topic_metadata(cluster, topic)
    if metadata is None:
        raise missing_topic(topic, cluster, UnknownTopic)
    found = (Range(part, metadata.starts[part], end) for part, end in sorted(metadata.ends.items()))
    return [one for one in found if one.first < one.last]


def _oldest(whole: Sequence[Range], limit: int) -> list[Range]:
    ends = share_rows(whole, limit)
    return [one._replace(last=ends[one.partition]) for one in whole]


def _newest(whole: Sequence[Range], limit: int) -> list[Range]:
    total = sum(one.last - one.first for one in whole)
    skipped = share_rows(whole, total - limit) if total > limit else {}
    return [one._replace(first=skipped.get(one.partition, one.first)) for one in whole]
