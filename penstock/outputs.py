"""Where streams end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.callback import CallbackSink
from penstock.connectors.collect import CollectSink
from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import FileSink
from penstock.contracts import Epoch, Guarantee

if TYPE_CHECKING:
    from penstock.connectors.topic_sink import TopicSink


def files(
    path: str,
    *,
    format: Literal["parquet", "csv", "json"] = "parquet",
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write files to a folder, exactly once: readers that list it see whole epochs only."""
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return FileSink(path, format, names)


def topic(
    name: str,
    *,
    key: str | None = None,
    format: Literal["json", "csv", "raw", "avro", "protobuf"] = "json",
    connection: str = "log",
    guarantee: Guarantee | None = None,
) -> TopicSink:
    """Write each row as a record to a topic of Penstock's log or of Kafka; at least once.

    `key` is SQL: records of one key keep their order, and with it the sink takes rows that are updated later.
    """
    from penstock.connectors.topic_sink import TopicSink

    return TopicSink(name, key, format, connection, guarantee)


def console() -> ConsoleSink:
    """Print rows where the job runs; at least once."""
    return ConsoleSink()


def collect() -> CollectSink:
    """Keep rows in memory, in `.rows`: for tests and notebooks."""
    return CollectSink()


def callback(fn: Callable[[Epoch, Any], None]) -> CallbackSink:
    """Call a function in the driver with each epoch's rows as an Arrow table; at least once."""
    return CallbackSink(fn)
