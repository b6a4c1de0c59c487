"""Python generators as Spark functions over Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf


def array_function(fn: Callable[[Iterator[Any]], Iterator[pa.Array]], returned: str, *, inputs: int = 1) -> Any:
    """Make a generator of arrays a Spark function; Spark tells the kinds apart by annotations alone."""
    taken = pa.Array if inputs == 1 else tuple[(pa.Array,) * inputs]  # type: ignore[misc]
    fn.__annotations__ = {"rows": Iterator[taken], "return": Iterator[pa.Array]}  # type: ignore[valid-type]
    return arrow_udf(fn, returned)  # type: ignore[call-overload]
