"""Reads rejected rows from the topic or folder that `rejected_to` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.connectors.files.source import FileSource
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import REJECTED, Rejected, Sink, Source
from penstock.errors import BadSchema, MissingInput
from penstock.rejected.rows import RejectedRow
from penstock.settings import Settings

# Anything else in it is detected row by row.
_ROWS = REJECTED.nullable()


def resolve_location(where: str | None, sink: Sink | None) -> Source:
    """Return a source of rejected rows: a path has a slash or exists, anything else is a topic."""
    spec = (sink.spec() if sink is not None else None) or {}
    if where is None and spec.get("kind") not in ("topic", "files"):
        said = "no rejected_to" if sink is None else f"rejected_to='{sink.name}', which cannot be read again"
        message = f"the pipeline has {said}"
        raise MissingInput(message, hint="specify where the rows are: --from TOPIC or --from FOLDER")
    if where is None and spec["kind"] == "files":
        return _folder(spec["path"])
    if where is None or (spec.get("kind") == "topic" and spec["name"] == where):
        # Not from its spec, which leaves passwords out.
        return TopicSource(spec["name"], _ROWS, spec["format"], connection=getattr(sink, "_connection", "log"))
    if "/" in where or where.startswith(".") or spec.get("path") == where:
        return _folder(where)
    return TopicSource(where, _ROWS, "json")


def read_rejected(source: Source, job: str, settings: Settings) -> list[RejectedRow]:
    """Return all current rejected rows."""
    source.set_base_path(settings.files)
    source.configure(job, settings)
    source.check()
    return [_row(values, source) for batch in _batches(source) for values in batch.to_pylist()]


def _folder(path: str) -> FileSource:
    return FileSource(path, _ROWS)


def _batches(source: Source) -> Iterator[pa.RecordBatch]:
    start = source.initial()
    for split in source.splits(start, source.latest(start, None), 1):
        for item in source.read_split(split):
            if isinstance(item, Rejected):
                message = f"{source.name} contains something other than rejected rows: {item.reason} at {item.position}"
                raise BadSchema(message, hint="give --from what rejected_to wrote")
            yield item


def _row(values: dict[str, Any], source: Source) -> RejectedRow:
    if values["node"] is None or values["epoch"] is None:
        message = f"{source.name} contains something other than rejected rows: {values}"
        raise BadSchema(message, hint="give --from what rejected_to wrote")
    return RejectedRow(**values)
