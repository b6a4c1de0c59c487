"""Sinks: the functions that create the end of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.files.sink import FileSink
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.sinks.callback import CallbackSink
from penstock.connectors.sinks.collect import CollectSink
from penstock.connectors.sinks.console import ConsoleSink
from penstock.contracts import Epoch, Guarantee
from penstock.durations import Span

if TYPE_CHECKING:
    from penstock.connectors.sinks.webhook import WebhookSink
    from penstock.connectors.tables.sink import TableSink
    from penstock.connectors.topics.sink import TopicSink


def files(
    path: str,
    *,
    format: Literal["parquet", "csv", "json"] = "parquet",
    partition_by: str | Sequence[str] = (),
    guarantee: Guarantee | None = None,
    delimiter: str = ",",
    quote: str = '"',
    escape: str | None = None,
    null: str = "",
) -> FileSink:
    """Write files to a folder or to s3://, gs://, az://BUCKET/PATH, exactly once: readers see committed files only.

    `delimiter` to `null` are for csv, which has a header and is in UTF-8; `read_files` with the same options reads it.
    """
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    options = CsvOptions(delimiter=delimiter, quote=quote, escape=escape, null=null)
    return FileSink(path, format, names, guarantee, options=options)


def topic(
    name: str,
    *,
    key: str | None = None,
    format: Literal["json", "csv", "raw", "avro", "protobuf"] = "json",
    connection: str = "log",
    guarantee: Guarantee | None = None,
) -> TopicSink:
    """Write each row as a record to a topic of Penstock's log or of Kafka; exactly once, for read_committed readers.

    `key` is SQL: records of one key keep their order, and with it the sink takes rows that are updated later.
    """
    from penstock.connectors.topics.sink import TopicSink

    return TopicSink(name, key, format, connection, guarantee)


def table(
    name: str,
    *,
    connection: str = "",
    mode: Literal["append", "upsert"] = "append",
    key: str | Sequence[str] | None = None,
    remove: str | None = None,
    guarantee: Guarantee | None = None,
) -> TableSink:
    """Write rows to a table of PostgreSQL or SQLite, exactly once; a missing table is created.

    `connection` is a name in the settings, `postgresql://user:password@host:5432/database` or `sqlite:///path`.
    "upsert" keeps the last row of each key, by default the stream's own, and so takes rows that are updated later;
    `remove` is SQL: a row for which it holds deletes its key.
    """
    from penstock.connectors.tables.sink import TableSink

    names = (key,) if isinstance(key, str) else tuple(key or ())
    return TableSink(name, connection, mode, names, remove, guarantee)


def webhook(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    rows: int = 500,
    timeout: Span = "10s",
    retries: int = 5,
) -> WebhookSink:
    """Post rows to a web address as JSON arrays of at most `rows`; at least once, with an `Idempotency-Key`.

    `url` may be a name in the settings. Requests without an answer, or with 5xx or 429, are retried; other answers than
    2xx stop the job.
    """
    from penstock.connectors.sinks.webhook import WebhookSink

    return WebhookSink(url, headers, rows, timeout, retries)


def console() -> ConsoleSink:
    """Print rows where the job runs; at least once."""
    return ConsoleSink()


def collect() -> CollectSink:
    """Keep rows in memory, in `.rows`: for tests and notebooks."""
    return CollectSink()


def callback(fn: Callable[[Epoch, Any], None]) -> CallbackSink:
    """Call a function in the driver with each epoch's rows as an Arrow table; at least once."""
    return CallbackSink(fn)
