"""State of windows that buckets of keys hold, as rows: what is open, with its partial results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.native.cut_sessions import AT
from penstock.native.panes import PANE, unpacked
from penstock.spark.checkpoints.layout import Operator

OPEN = "open"
_SHOWN = "name string, data string"
_ARROW = pa.schema([("name", pa.string()), ("data", pa.string())])


def windows_in(raw: DataFrame, operator: Operator) -> DataFrame:
    """Return the panes of all buckets: the key as a user names it, and the rest as JSON."""
    keys, held = operator.keys, operator.held or []

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for state in batch.column(0).to_pylist():
                rows = [row for table in unpacked(state) for row in _panes(table, keys, held)]
                names = [",".join(str(row[key]) for key in keys) for row in rows]
                yield pa.RecordBatch.from_pydict(
                    {"name": names, "data": [json.dumps(row, default=str) for row in rows]}, schema=_ARROW
                )

    return raw.select(F.col("value.groupState.state").alias("state")).mapInArrow(unpack, _SHOWN)


def _panes(table: pa.Table, keys: list[str], held: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what is open of each key; the tables that only count for themselves are left out."""
    place = next((name for name in (PANE, AT) if name in table.column_names), None)
    if place is None:
        return
    partials = [name for name in table.column_names if name not in (*keys, place)]
    for row in table.to_pylist():
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[place]) if place == AT else row[place]
        shown = dict(zip(held, (row[name] for name in partials), strict=True))
        yield {**{key: row[key] for key in keys}, OPEN: at, **shown}
