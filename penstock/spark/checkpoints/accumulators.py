"""Accumulators of Python aggregators as Spark's state holds them."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

from pyspark.sql import SparkSession

_SAFE = {
    "builtins": {"set", "frozenset", "complex", "bytearray"},
    "datetime": {"datetime", "date", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "collections": {"OrderedDict", "Counter", "deque"},
}


def collected(spark: SparkSession, data: bytes, kind: str) -> list[Any]:
    """Return the partial accumulators of a window, oldest first; only the job's own code could merge them."""
    jvm: Any = spark._jvm
    types = jvm.org.apache.spark.sql.types
    element = types.DataType.fromDDL(f"struct<at:bigint,acc:{kind}>")
    row = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow(1)
    row.pointTo(data, len(data))
    convert = jvm.org.apache.spark.sql.catalyst.CatalystTypeConverters.createToScalaConverter(
        types.ArrayType(element, True)
    )
    found = convert.apply(row.getArray(0))
    partials = [json.loads(found.apply(number).json()) for number in range(found.size())]
    return [one.get("acc") for one in sorted(partials, key=lambda one: one.get("at", 0))]


def pickled(data: bytes) -> list[Any]:
    """Return the accumulators of a key; what is made of the job's own classes stays closed."""
    try:
        found: list[Any] = _Careful(io.BytesIO(data)).load()
    except pickle.UnpicklingError as error:
        return [f"({error})"]
    return found


class _Careful(pickle.Unpickler):
    """Reads plain values only: a checkpoint may come from anywhere, and pickles can run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that only holds data."""
        if name in _SAFE.get(module, ()):
            return super().find_class(module, name)
        message = f"a {module}.{name}"
        raise pickle.UnpicklingError(message)
