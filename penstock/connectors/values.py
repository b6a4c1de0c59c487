"""Python values for a declared column, without any silent change of type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.durations import instant
from penstock.errors import BadSchema, BadValue
from penstock.schema import Field, arrow_type


def column_value(value: Any, field: Field, where: str) -> Any:
    """Return the value as Arrow takes it; one of another type is refused.

    >>> column_value(1, Field("price", "double"), "row 0")
    1.0
    """
    try:
        return _fit(value, arrow_type(field.type))
    except (TypeError, ValueError, OverflowError, pa.ArrowInvalid, BadValue) as error:
        message = f"{where}, column '{field.name}': {value!r} is not a {field.type}"
        raise BadSchema(message, hint=str(error) or None) from error


def _fit(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return _time(value, kind)
    if pa.types.is_nested(kind):
        return _nested(value, kind)
    if pa.types.is_floating(kind) and type(value) is int:
        value = float(value)
    if pa.types.is_decimal(kind) and type(value) is int:
        value = Decimal(value)
    if type(value) is not _python(kind) and not (isinstance(value, str) and pa.types.is_string(kind)):
        raise TypeError
    # Arrow checks what the type alone does not say: the range, the precision, the scale.
    pa.scalar(value, kind)
    return value


def _python(kind: pa.DataType) -> type:
    checks: list[tuple[Any, type]] = [
        (pa.types.is_string, str),
        (pa.types.is_binary, bytes),
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_decimal, Decimal),
        (pa.types.is_date, date),
        (pa.types.is_duration, timedelta),
    ]
    return next((python for check, python in checks if check(kind)), type(None))


def _time(value: Any, kind: pa.DataType) -> datetime:
    if kind.tz is None:
        if isinstance(value, datetime) and value.tzinfo is None:
            return value
        raise TypeError
    if not isinstance(value, str | datetime):
        raise TypeError
    return instant(value)


def _nested(value: Any, kind: pa.DataType) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_fit(part, kind.value_type) for part in value]
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [(_fit(k, kind.key_type), _fit(v, kind.item_type)) for k, v in value.items()]
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        unknown = set(value) - {part.name for part in kind}
        if not unknown:
            return {part.name: _fit(value.get(part.name), part.type) for part in kind}
    raise TypeError
