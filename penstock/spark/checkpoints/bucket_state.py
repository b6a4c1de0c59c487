"""State that buckets of keys hold, as rows: the key as a user names it, and the rest as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = "name string, data string"
_ARROW = pa.schema([("name", pa.string()), ("data", pa.string())])


def bucket_rows(raw: DataFrame, keys: list[str], rows_of: Callable[[bytes], Iterable[dict[str, Any]]]) -> DataFrame:
    """Unpack every bucket by a function of its state."""
    from pyspark.sql import functions as F  # state is also read without Spark

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for state in batch.column(0).to_pylist():
                rows = list(rows_of(state))
                names, data = [name_of(row, keys) for row in rows], [as_json(row) for row in rows]
                yield pa.RecordBatch.from_pydict({"name": names, "data": data}, schema=_ARROW)

    return raw.select(F.col("value.groupState.state").alias("state")).mapInArrow(unpack, _SHOWN)


def name_of(row: dict[str, Any], keys: list[str]) -> str:
    """Return a row's key as a user names it."""
    return ",".join(str(row[key]) for key in keys)


def as_json(row: dict[str, Any]) -> str:
    """Return a row as JSON; what JSON has no form for is text."""
    return json.dumps(row, default=_plain)


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
