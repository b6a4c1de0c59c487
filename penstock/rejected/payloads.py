"""Rows as the payloads that their source reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.connectors.binary_text import from_base64
from penstock.connectors.csv_options import CsvOptions
from penstock.connectors.row_payloads import payloads
from penstock.errors import CannotReplay
from penstock.schema import Schema


@dataclass(frozen=True)
class Return:
    """One row on its way back: the bytes that it had, or its values; and where it stood."""

    raw: bytes | None
    values: dict[str, Any]
    position: str | None


def returned(rows: Sequence[Return], schema: Schema, format: str, options: CsvOptions | None = None) -> list[bytes]:
    """Return each row as a payload: its own bytes, or its values written anew."""
    made = [row for row in rows if row.raw is None]
    written = iter(payloads(batch(made, schema), "raw" if format == "text" else format, options) if made else ())
    return [row.raw if row.raw is not None else _bytes(next(written)) for row in rows]


def batch(rows: Sequence[Return], schema: Schema) -> pa.RecordBatch:
    """Return the values of rows, which were JSON, under a schema."""
    arrow = schema.nullable().arrow
    try:
        columns = [
            pa.array([_value(row.values.get(field.name), field.type) for row in rows], field.type) for field in arrow
        ]
    except (pa.ArrowException, ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        message = f"a rejected row does not fit {schema.ddl!r}: {error}"
        raise CannotReplay(message, hint="leave such rows out with --node or --reason") from error
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON, as `row_json` wrote it or Spark's `to_json`, as Arrow takes it."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_value(part, kind.value_type) for part in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in pairs]
    if pa.types.is_struct(kind):
        return {part.name: _value(value.get(part.name), part.type) for part in kind}
    return _plain_value(value, kind)


def _plain_value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        return from_base64(value)
    if pa.types.is_timestamp(kind):
        return _time(value, kind)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_integer(kind) and isinstance(value, str):
        # Keys of maps, as Spark writes them.
        return int(value)
    if pa.types.is_boolean(kind) and isinstance(value, str):
        return {"true": True, "false": False}[value]
    return value


def _time(value: str, kind: pa.DataType) -> datetime:
    found = datetime.fromisoformat(value)
    if kind.tz is None:
        return found.replace(tzinfo=None)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _bytes(payload: str | bytes | None) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload or b""
