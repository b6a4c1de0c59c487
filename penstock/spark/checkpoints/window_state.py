"""State of windows that buckets of keys hold, as rows: what is open, with its partial results."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.native.cut_sessions import AT
from penstock.native.panes import PANE, unpacked
from penstock.spark.checkpoints.bucket_state import bucket_rows
from penstock.spark.checkpoints.layout import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPEN = "open"


def windows_in(raw: DataFrame, operator: Operator) -> DataFrame:
    """Return the panes of all buckets."""
    return bucket_rows(raw, operator.keys, lambda state: window_rows(state, operator))


def window_rows(state: bytes, operator: Operator) -> Iterator[dict[str, Any]]:
    """Yield the panes of a bucket."""
    for table in unpacked(state):
        yield from _panes(table, operator.keys, operator.held or [])


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
