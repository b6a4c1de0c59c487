"""Rejected rows from where `rejected_to` wrote them: a topic, or a folder of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.connectors.files import FileSource
from penstock.connectors.topics import TopicSource
from penstock.contracts import REJECTED, Rejected, Sink, Source
from penstock.errors import BadSchema, MissingInput
from penstock.rejected.rows import RejectedRow
from penstock.settings import Settings

# What else there may be is noticed row by row.
_ROWS = REJECTED.nullable()


def place_of(where: str | None, sink: Sink | None) -> Source:
    """Return the place as a source: a path has a slash or is there, anything else names a topic."""
    spec = (sink.spec() if sink is not None else None) or {}
    if where is None and spec.get("kind") not in ("topic", "files"):
        said = "no rejected_to" if sink is None else f"rejected_to='{sink.name}', which cannot be read again"
        message = f"the pipeline has {said}"
        raise MissingInput(message, hint="say where the rows are: --from TOPIC or --from FOLDER")
    if where is None and spec["kind"] == "files":
        return _folder(spec["path"])
    if where is None or (spec.get("kind") == "topic" and spec["name"] == where):
        # Not from its spec, which leaves passwords out.
        return TopicSource(spec["name"], _ROWS, spec["format"], connection=getattr(sink, "_connection", "log"))
    if "/" in where or where.startswith(".") or spec.get("path") == where:
        return _folder(where)
    return TopicSource(where, _ROWS, "json")


def read_rejected(place: Source, job: str, settings: Settings) -> list[RejectedRow]:
    """Return all rejected rows that are there now."""
    place.under(settings.files)
    place.within(job, settings)
    place.check()
    return [_row(values, place) for batch in _batches(place) for values in batch.to_pylist()]


def _folder(path: str) -> FileSource:
    return FileSource(path, _ROWS)


def _batches(place: Source) -> Iterator[pa.RecordBatch]:
    start = place.initial()
    for split in place.splits(start, place.latest(start, None), 1):
        for item in place.read_split(split):
            if isinstance(item, Rejected):
                message = f"{place.name} holds something else than rejected rows: {item.reason} at {item.position}"
                raise BadSchema(message, hint="give --from what rejected_to wrote")
            yield item


def _row(values: dict[str, Any], place: Source) -> RejectedRow:
    if values["node"] is None or values["epoch"] is None:
        message = f"{place.name} holds something else than rejected rows: {values}"
        raise BadSchema(message, hint="give --from what rejected_to wrote")
    return RejectedRow(**values)
