"""Python values for a declared column of rows given in a program: the rules of `penstock.values`, and times as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.durations import instant
from penstock.errors import BadSchema, BadValue
from penstock.schema import Field, arrow_type
from penstock.values import column_of


def column_value(value: Any, field: Field, where: str) -> Any:
    """Return the value as Arrow takes it; one of another type is refused.

    >>> column_value(1, Field("price", "double"), "row 0")
    1.0
    """
    kind = arrow_type(field.type)
    try:
        array, wrong = column_of(kind).converted([_timed(value, kind)])
    except BadValue as error:
        message = f"{where}, column '{field.name}': {value!r} is not a {field.type}"
        raise BadSchema(message, hint=str(error)) from error
    for misfit in wrong.values():
        message = f"{where}, column '{field.name}': {value!r} is not a {field.type}"
        raise BadSchema(message, hint=misfit.within(field.name).text)
    return array[0].as_py()


def _timed(value: Any, kind: pa.DataType) -> Any:
    """Return a value with times that are given as text as such."""
    if pa.types.is_timestamp(kind):
        return instant(value) if kind.tz and isinstance(value, str) else value
    if not pa.types.is_nested(kind):
        return value
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_timed(part, kind.value_type) for part in value]
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [(_timed(key, kind.key_type), _timed(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_struct(kind) and dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        kinds = {part.name: part.type for part in kind}
        return {name: _timed(part, kinds[name]) if name in kinds else part for name, part in value.items()}
    return value
