"""Numbers that JSON has no form for, or that a column cannot hold.

NaN and the infinities are text, as Spark writes and reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

NON_FINITE = ("NaN", "Infinity", "-Infinity")


def json_number(value: float) -> float | str:
    """Return a number as JSON can hold it.

    >>> json_number(1.5), json_number(float("-inf"))
    (1.5, '-Infinity')
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def refuse_overflow(given: pa.Array, cast: pa.Array) -> pa.Array:
    """Return floating point numbers that were read as doubles; raise ArrowInvalid if one is too large for its type."""
    for before, after in zip(_floats(given), _floats(cast), strict=True):
        if pc.any(pc.and_(pc.is_inf(after), pc.is_finite(before))).as_py():
            message = f"a number that is too large for a {after.type}"
            raise pa.ArrowInvalid(message)
    return cast


def _floats(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the floating point numbers of a column, at any depth."""
    kind = values.type
    if pa.types.is_floating(kind):
        yield values
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _floats(values.field(number))
    elif pa.types.is_map(kind):
        # Its keys were texts, and checked as those.
        yield from _floats(values.items)
    elif pa.types.is_list(kind):
        yield from _floats(values.values)
