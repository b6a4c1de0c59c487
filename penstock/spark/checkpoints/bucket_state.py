"""State that buckets of keys hold, as rows: the key as a user names it, and the rest as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_SHOWN = "name string, data string"
_ARROW = pa.schema([("name", pa.string()), ("data", pa.string())])


def bucket_rows(raw: DataFrame, keys: list[str], rows_of: Callable[[bytes], Iterable[dict[str, Any]]]) -> DataFrame:
    """Unpack every bucket by a function of its state."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for state in batch.column(0).to_pylist():
                rows = list(rows_of(state))
                names = [",".join(str(row[key]) for key in keys) for row in rows]
                data = [json.dumps(row, default=_plain) for row in rows]
                yield pa.RecordBatch.from_pydict({"name": names, "data": data}, schema=_ARROW)

    return raw.select(F.col("value.groupState.state").alias("state")).mapInArrow(unpack, _SHOWN)


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
