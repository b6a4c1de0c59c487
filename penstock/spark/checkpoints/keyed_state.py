"""State of process functions as rows: the keys of every bucket, each with what it remembers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.keyed.store import Store
from penstock.process import time_of
from penstock.spark.checkpoints.accumulators import pickled
from penstock.spark.checkpoints.layout import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMERS = "timers"
_KEPT = "key string, name string, data binary"
_ARROW = pa.schema([("key", pa.string()), ("name", pa.string()), ("data", pa.binary())])


def keys_in(raw: DataFrame) -> DataFrame:
    """Return the keys of all buckets: as they are told apart, as a user names them, and what is kept of them."""
    from pyspark.sql import functions as F  # state is also read without Spark

    return raw.select(F.col("value.groupState.state").alias("state")).mapInArrow(_unpacked, _KEPT)


def columns_of(operator: Operator) -> list[str]:
    """Return the columns of what is shown."""
    return [*operator.keys, *(operator.attributes or ()), TIMERS]


def key_row(kept: dict[str, Any], operator: Operator) -> dict[str, Any]:
    """Return a key and what it remembers; what is made of the job's own classes stays closed."""
    found = pickled(kept["data"])
    if len(found) != 4:
        keys = json.loads(kept["key"])
        return dict.fromkeys(columns_of(operator)) | dict(zip(operator.keys, keys, strict=True)) | {TIMERS: found[0]}
    keys, held, _, timers = found
    rings = {name: f"{time_of(at).isoformat()} ({clock})" for name, (at, clock) in timers.items()}
    shown = {name: held.get(name) for name in operator.attributes or ()}
    return {**dict(zip(operator.keys, keys, strict=True)), **shown, TIMERS: rings}


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for state in batch.column(0).to_pylist():
            kept = Store(state).batch
            names = [",".join(map(str, json.loads(key))) for key in kept.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([kept.column(0), pa.array(names), kept.column(1)], schema=_ARROW)
