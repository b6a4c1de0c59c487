"""Sources: the functions that create a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from penstock.argument_checks import shown, text
from penstock.connectors.files.changed_files import OnChange
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.stdin import StdinSource
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.generators.datagen import DataGen
from penstock.connectors.generators.items import ItemSource
from penstock.contracts import OnError, Source
from penstock.durations import Time
from penstock.errors import BadValue, one_of
from penstock.flows import as_names
from penstock.plan.operators.stateless import Read
from penstock.schema import Schema, Shape
from penstock.settings import Settings
from penstock.stream import Stream, View


def read_files(
    path: str,
    *,
    schema: Shape | None = None,
    format: Literal["csv", "json", "parquet", "text"] | None = None,
    on_error: OnError = "reject",
    on_change: OnChange = "warn",
    header: bool | Literal["auto"] = "auto",
    delimiter: str = ",",
    quote: str | None = '"',
    escape: str | None = None,
    null: str = "",
    encoding: str = "utf-8",
) -> Stream:
    """Read a file, a folder or a glob, and files that are added later.

    csv and json need a schema; Parquet's is read from the first file. Each file is read once: write new files, and move
    them in whole; one that changes after it was found is reported and counted, or fails the job. Rows that do not fit
    the schema, in any column, are rejected and counted, or fail the job. `header` to `null` are for csv; by default the
    first line is a header if it has the name of a column.
    """
    text(path, "read_files path", '"trades/*.csv"')
    given = Schema(schema) if schema is not None else None
    options = CsvOptions(header, delimiter, quote, escape, null, encoding)
    more: dict[str, Any] = {"options": options, "on_change": on_change}
    return read(FileSource(path, given, format, on_error, base=Settings.load().files, **more))


def read_topic(
    name: str,
    *,
    schema: Shape | None = None,
    format: Literal["json", "csv", "raw", "avro", "protobuf"] = "json",
    start: Time = "earliest",
    include: str | Sequence[str] = (),
    on_loss: Literal["fail", "continue"] = "fail",
    on_error: OnError = "reject",
    connection: str = "log",
) -> Stream:
    """Read a topic of Penstock's log or of Kafka, from its beginning, its end or a time on.

    json and csv need a schema; raw gives the payload in the column `value`. `include` adds columns of the record
    itself: "key", "headers", "partition", "offset", "timestamp", each named with a leading `_`. Offsets that were
    removed before they were read stop the job, or are counted as rejected with `on_loss="continue"`. `connection` is
    "log", a name in the settings or an address.
    """
    from penstock.connectors.topics.source import TopicSource

    given = Schema(schema) if schema is not None else None
    names = (include,) if isinstance(include, str) else tuple(include)
    options: dict[str, Any] = {"start": start, "include": names, "on_loss": on_loss, "on_error": on_error}
    return read(TopicSource(name, given, format, connection=connection, **options))


def read_view(
    topic: str,
    *,
    connection: str = "log",
    schema: Shape | None = None,
    key: str | Sequence[str] = (),
    on_loss: Literal["fail", "resync"] = "fail",
) -> View:
    """Read a view that another job writes to a topic, with `view.to(topic(...))`: it follows that view.

    Its columns and its key are found in the log; a topic that no such job has written needs `schema` and `key`, and
    records whose key is a JSON object of the key columns. A tombstone deletes its key. Records that were deleted before
    they were read stop the job; with `on_loss="resync"` the view forgets what it had of their partition before them,
    and has again what the topic still has.
    """
    from penstock.connectors.topics.views import GAP, OFFSET, PARTITION, REMOVED, ViewTopicSource, description

    one_of(on_loss, ("fail", "resync"), "on_loss", f"read_view '{topic}'")
    rows, unique = (Schema(schema), as_names(key)) if schema is not None else description(topic, connection)
    stream = read(ViewTopicSource(topic, rows, unique, connection, resync=on_loss == "resync"))
    values = tuple(name for name in rows.names if name not in unique)
    if on_loss == "fail":
        return stream.view(unique, values, remove=REMOVED)
    known = stream.filter(f"NOT {GAP}").view(unique, (*values, PARTITION, OFFSET), remove=REMOVED)
    gaps = stream.filter(GAP).view(PARTITION, OFFSET).select(PARTITION, lost_before=OFFSET)
    left = known.join(gaps, on=PARTITION, how="anti", condition=f"{OFFSET} < lost_before")
    return left.select(*rows.names)


def read_stdin(
    *,
    schema: Shape | None = None,
    format: Literal["text", "csv", "json"] = "text",
    header: bool | Literal["auto"] = "auto",
    delimiter: str = ",",
    quote: str | None = '"',
    escape: str | None = None,
    null: str = "",
) -> Stream:
    """Read lines of standard input until it ends; the options of csv are those of `read_files`."""
    options = CsvOptions(header, delimiter, quote, escape, null)
    return read(StdinSource(Schema(schema) if schema is not None else None, format, options))


def from_items(rows: Iterable[Any], schema: Shape) -> Stream:
    """Read rows from a list or another iterable.

    >>> from_items([{"a": 1}], "a bigint").schema
    Schema('a bigint')
    """
    return read(ItemSource(rows, Schema(schema)))


def datagen(
    what: Shape,
    *,
    rows: int | None = None,
    rate: int | None = None,
    keys: int = 1000,
    seed: int = 0,
) -> Stream:
    """Generate rows: "trades", "clicks", "orders" or any schema, the same for the same seed.

    `rows` ends the stream, `rate` limits it to rows per second; without it rows come as fast as they are read.
    """
    return read(DataGen(what, rows=rows, rate=rate, keys=keys, seed=seed))


def read(source: Source) -> Stream:
    """Read any source: subclass `Source` for one of your own."""
    if not isinstance(source, Source):
        message = f"{shown(source)} is not a source"
        raise BadValue(message, node="read", hint="pass an object of a class that extends penstock.Source")
    return Stream(Read(source=source))
