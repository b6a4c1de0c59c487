"""Decoder of Spark's UnsafeRow format, which state files have.

A row is a bitmap of nulls in words of 8 bytes, then 8 bytes per field: the value itself, or its position (offset and
size in 32 bits each, from the start of the row). Arrays store fixed values with their own width; a map is two arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.plan.sql_expressions.types import Type, array, decimal, mapping
from penstock.plan.sql_expressions.types import struct as struct_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED = {
    "boolean": "<?",
    "tinyint": "<b",
    "smallint": "<h",
    "int": "<i",
    "date": "<i",
    "bigint": "<q",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
    "interval day to second": "<q",
    "float": "<f",
    "double": "<d",
}
_JSON = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "null": "void"}
_MAX_INLINE_DECIMAL = 18


def type_from_json(found: Any) -> Type:
    """Return a type as Spark writes it in JSON.

    >>> str(type_from_json({"type": "array", "elementType": "long", "containsNull": True}))
    'array<bigint>'
    """
    if isinstance(found, str):
        if found.startswith("decimal"):
            precision, scale = found[8:-1].split(",")
            return decimal(int(precision), int(scale))
        return Type(_JSON.get(found, found))
    if found["type"] == "struct":
        return struct_of((one["name"], type_from_json(one["type"])) for one in found["fields"])
    if found["type"] == "array":
        return array(type_from_json(found["elementType"]))
    if found["type"] == "map":
        return mapping(type_from_json(found["keyType"]), type_from_json(found["valueType"]))
    message = f"unknown type: {found['type']}"
    raise ValueError(message)


def decode_row(data: bytes, kinds: Sequence[Type], base: int = 0) -> list[Any]:
    """Return the fields of a row.

    >>> decode_row(bytes(8) + (7).to_bytes(8, "little"), [Type("bigint")])
    [7]
    """
    first = base + (len(kinds) + 63) // 64 * 8
    return [
        None if _is_null(data, base, number) else _field(data, base, first + 8 * number, kind)
        for number, kind in enumerate(kinds)
    ]


def _is_null(data: bytes, bitmap: int, number: int) -> bool:
    return bool(data[bitmap + (number >> 3)] >> (number & 7) & 1)


def _field(data: bytes, base: int, slot: int, kind: Type) -> Any:
    if kind.name in _FIXED:
        return _value(kind, struct.unpack_from(_FIXED[kind.name], data, slot)[0])
    if kind.name == "void":
        return None
    (position,) = struct.unpack_from("<q", data, slot)
    if kind.name == "decimal" and kind.size[0] <= _MAX_INLINE_DECIMAL:
        return Decimal(position).scaleb(-kind.size[1])
    start, size = base + (position >> 32), position & 0xFFFFFFFF
    if start + size > len(data):
        message = "a value is outside of its row"
        raise ValueError(message)
    return _variable(data, start, size, kind)


def _value(kind: Type, raw: Any) -> Any:
    if kind.name == "timestamp":
        return _time(raw)
    if kind.name == "timestamp_ntz":
        found = _time(raw)
        return found.replace(tzinfo=None) if isinstance(found, datetime) else found
    if kind.name == "date":
        return date(1970, 1, 1) + timedelta(days=raw)
    return timedelta(microseconds=raw) if kind.is_interval else raw


def _time(us: int) -> datetime | int:
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return us


def _variable(data: bytes, start: int, size: int, kind: Type) -> Any:
    """Decode a value of variable length."""
    match kind.name:
        case "string":
            return data[start : start + size].decode()
        case "decimal":
            return Decimal(int.from_bytes(data[start : start + size], "big", signed=True)).scaleb(-kind.size[1])
        case "struct":
            return dict(zip(kind.fields, decode_row(data, kind.parts, start), strict=True))
        case "array":
            return decode_array(data, start, kind.parts[0])
        case "map":
            (keys,) = struct.unpack_from("<q", data, start)
            made = decode_array(data, start + 8, kind.parts[0])
            return dict(zip(map(_hashable, made), decode_array(data, start + 8 + keys, kind.parts[1]), strict=True))
    return data[start : start + size]


def decode_array(data: bytes, base: int, element: Type) -> list[Any]:
    """Return the elements of an array."""
    (count,) = struct.unpack_from("<q", data, base)
    if not 0 <= count <= len(data) * 8:
        message = f"an array of {count} elements"
        raise ValueError(message)
    width = struct.calcsize(_FIXED[element.name]) if element.name in _FIXED else 8
    first = base + 8 + (count + 63) // 64 * 8
    return [
        None if _is_null(data, base + 8, number) else _field(data, base, first + width * number, element)
        for number in range(count)
    ]


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, dict | list) else value
