"""Rows as the payloads that their source reads."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connectors.row_payloads import payloads
from penstock.errors import CannotReplay
from penstock.schema import Schema


@dataclass(frozen=True)
class Return:
    """One row on its way back: the bytes that it had, or its values; and where it stood."""

    raw: bytes | None
    values: dict[str, Any]
    position: str | None


def returned(rows: Sequence[Return], schema: Schema, format: str) -> list[bytes]:
    """Return each row as a payload: its own bytes, or its values written anew."""
    made = [row for row in rows if row.raw is None]
    written = iter(payloads(batch(made, schema), "raw" if format == "text" else format) if made else ())
    return [row.raw if row.raw is not None else _bytes(next(written)) for row in rows]


def batch(rows: Sequence[Return], schema: Schema) -> pa.RecordBatch:
    """Return the values of rows, which were JSON, under a schema."""
    arrow = schema.nullable().arrow
    try:
        columns = [_column([row.values.get(field.name) for row in rows], field.type) for field in arrow]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        message = f"a rejected row does not fit {schema.ddl!r}: {error}"
        raise CannotReplay(message, hint="leave such rows out with --node or --reason") from error
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else base64.b64decode(value) for value in values], kind)
    if not pa.types.is_nested(kind) and any(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_map(kind):
        values = [list(map(tuple, value)) if isinstance(value, list) else value for value in values]
    return pa.array(values, kind)


def _bytes(payload: str | bytes | None) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload or b""
