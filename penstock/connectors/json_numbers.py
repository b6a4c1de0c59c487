"""Numbers that JSON has no form for, or that a column cannot hold.

NaN and the infinities are text, as Spark writes and reads them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NON_FINITE = ("NaN", "Infinity", "-Infinity")
_MARKS = tuple(f'{name}"'.encode() for name in ("NaN", "Infinity"))


def json_number(value: float) -> float | str:
    """Return a number as JSON can hold it.

    >>> json_number(1.5), json_number(float("-inf"))
    (1.5, '-Infinity')
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unquoted(body: bytes, schema: pa.Schema) -> bytes:
    """Return lines in which NaN and infinities of floating point columns are bare, as Arrow's reader takes them."""
    if not any(mark in body for mark in _MARKS) or not any(_holds_float(field.type) for field in schema):
        return body
    kind = pa.struct(list(schema))
    return b"\n".join(_line(line, kind) for line in body.split(b"\n"))


def refuse_overflow(given: pa.Array, cast: pa.Array) -> pa.Array:
    """Return floating point numbers that were read as doubles; raise ArrowInvalid if one is too large for its type."""
    for before, after in zip(_floats(given), _floats(cast), strict=True):
        if pc.any(pc.and_(pc.is_inf(after), pc.is_finite(before))).as_py():
            message = f"a number that is too large for a {after.type}"
            raise pa.ArrowInvalid(message)
    return cast


def _line(line: bytes, kind: pa.DataType) -> bytes:
    if not any(mark in line for mark in _MARKS):
        return line
    try:
        document = json.loads(line, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_unique)
        return _written(_bare(document, kind)).encode()
    except (ValueError, RecursionError):
        # The parser finds out what is wrong with it.
        return line


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        message = "a key is there twice"
        raise ValueError(message)
    return found


def _bare(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        return float(value) if pa.types.is_floating(kind) and value in NON_FINITE else value
    if isinstance(value, dict) and pa.types.is_struct(kind):
        kinds = {field.name: field.type for field in kind}
        return {name: _bare(part, kinds.get(name, pa.null())) for name, part in value.items()}
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {name: _bare(part, kind.item_type) for name, part in value.items()}
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_bare(part, kind.value_type) for part in value]
    return value


def _written(value: Any) -> str:
    """Return a value as JSON; decimals, which `json.dumps` does not know, keep their digits."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name, ensure_ascii=False)}: {_written(part)}" for name, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _holds_float(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_float(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _floats(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the floating point numbers of a column, at any depth."""
    kind = values.type
    if pa.types.is_floating(kind):
        yield values
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _floats(values.field(number))
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        yield from _floats(values.values)
