"""How JSON encodes what it has no type for: NaN, infinities and bytes; and the limits of its numbers.

NaN and the infinities are text, and bytes are base64, as Spark, Kafka Connect and Penstock's own sinks write them.
"""

from __future__ import annotations

import math
from binascii import a2b_base64
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


def wide_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the decimal that a number is read as: Arrow's reader does not check digits, the cast to `kind` does."""
    return pa.decimal256(76, kind.scale)


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


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base64: standard alphabet, padded, nothing else; raise ValueError otherwise.

    >>> from_base64("aGk=")
    b'hi'
    """
    return a2b_base64(text, strict_mode=True)


def is_base64(text: str) -> bool:
    """Return whether `from_base64` takes a text."""
    try:
        from_base64(text)
    except ValueError:
        return False
    return True


def decoded(texts: pa.Array) -> pa.Array:
    """Return texts in base64 as bytes; raise ArrowInvalid if one is none."""
    try:
        return pa.array([None if text is None else from_base64(text) for text in texts.to_pylist()], pa.binary())
    except ValueError as error:
        message = f"not base64: {error}"
        raise pa.ArrowInvalid(message) from error
