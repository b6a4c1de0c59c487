"""Values as databases give them, in Arrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import SourceFailed
from penstock.schema import Field, Schema


def arrow_table(rows: Sequence[tuple[Any, ...]], schema: Schema, where: str) -> pa.Table:
    """Return rows as a table of the schema's types; a value that does not fit is an error."""
    columns = list(zip(*rows, strict=True)) or [() for _ in schema]
    made = [_array(values, field, where) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(made, schema=schema.nullable().arrow)


def _array(values: Sequence[Any], field: Field, where: str) -> pa.Array:
    kind = field.arrow.type
    convert = _convert(kind)
    try:
        return pa.array([None if value is None else convert(value) for value in values], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, ArithmeticError) as error:
        message = f"{where}: column '{field.name}' has a value that is no {field.type}: {error}"
        raise SourceFailed(message, hint="read it with a schema= that fits, or mend the table") from error


def _convert(kind: pa.DataType) -> Any:
    """Return how a value of a database becomes one that Arrow takes for a type."""
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_decimal(kind):
        return lambda value: value if isinstance(value, Decimal) else Decimal(str(value))
    if pa.types.is_nested(kind):
        return lambda value: json.loads(value) if isinstance(value, str) else value
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_string(kind):
        return str
    return lambda value: value


def _instant(value: Any) -> datetime:
    """Return an instant; text without a zone is UTC, as SQLite's own functions write it."""
    made = datetime.fromisoformat(value) if isinstance(value, str) else value
    return made if made.tzinfo else made.replace(tzinfo=UTC)


def _local(value: Any) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
