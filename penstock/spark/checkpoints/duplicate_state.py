"""State of `deduplicate` as rows: the keys and times of the rows that were kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.keyed.duplicates import KEPT_AT, loaded
from penstock.process import time_of
from penstock.spark.checkpoints.bucket_state import bucket_rows
from penstock.spark.checkpoints.layout import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_in_buckets(raw: DataFrame) -> bool:
    """Say whether buckets of keys hold it; in older checkpoints it is the state of Spark's own operator."""
    return "groupState" in raw.select("value.*").columns


def kept_rows_in(raw: DataFrame, operator: Operator) -> DataFrame:
    """Return the kept rows of all buckets."""
    return bucket_rows(raw, operator.keys, lambda state: duplicate_rows(state, operator.keys))


def duplicate_rows(state: bytes, keys: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the keys and times that a bucket keeps."""
    for row in loaded(state).to_pylist():
        *values, at = row.values()
        yield {**dict(zip(keys, values, strict=True)), KEPT_AT: time_of(at)}
