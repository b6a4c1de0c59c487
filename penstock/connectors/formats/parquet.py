"""Reads Parquet files: schema, row groups, and rows in the declared types."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.formats.arrow_types import to_microseconds
from penstock.connectors.formats.parsers import not_text, null_violations, without
from penstock.connectors.formats.wide_times import python_values
from penstock.contracts import Rejected
from penstock.errors import SourceFailed
from penstock.schema import Field, Schema, from_arrow, spark_type

BATCH = 65_536


def read_schema(path: str) -> Schema:
    """Return the schema in a file's footer; a time without zone is read as UTC."""
    found = from_arrow(_opened(path).schema_arrow)
    instants = {"timestamp_ntz": "timestamp"}
    return Schema(tuple(Field(f.name, instants.get(f.type, f.type)) for f in found))


def row_groups(path: str, schema: Schema) -> tuple[int, ...]:
    """Return the rows of each row group; a file that lacks a declared column or has another type fails."""
    with _opened(path) as file:
        for field in schema.arrow:
            _column_type(path, file.schema_arrow, field)
        return tuple(file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups))


def read_groups(path: str, first: int, last: int, schema: Schema, size: int) -> Iterator[pa.RecordBatch | Rejected]:
    """Yield the rows of some row groups; rows with bytes that are no text, or a null too many, are rejected."""
    with _opened(path) as file:
        if os.path.getsize(path) != size:
            message = f"{path} changed after it was found"
            raise SourceFailed(message, hint="files must not change: write a new file and rename it into the folder")
        row = sum(file.metadata.row_group(n).num_rows for n in range(first))
        batches = file.iter_batches(
            BATCH, row_groups=list(range(first, last)), columns=list(schema.names), use_threads=False
        )
        for batch in _guarded(batches, path):
            cast = _cast(batch, schema, path)
            bad = dict(null_violations(cast, schema)) | _garbled(cast, path)
            for n in sorted(bad):
                yield Rejected(bad[n], _as_json(cast, n), f"{path}:{row + n}")
            row += cast.num_rows
            yield without(cast, bad) if bad else cast


def _opened(path: str) -> pq.ParquetFile:
    try:
        # Times of 96 bits are nanoseconds to Arrow unless it is asked for less, and those end in 2262.
        return pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    except FileNotFoundError as error:
        message = f"{path} was found earlier and is missing now"
        hint = "restore it: its rows belong to an epoch that is not committed yet"
        raise SourceFailed(message, hint=hint) from error
    except (pa.ArrowInvalid, OSError) as error:
        message = f"{path} cannot be read as Parquet: {error}"
        hint = "is it still being written? Write under a name that ends in .tmp, then rename it"
        raise SourceFailed(message, hint=hint) from error


def _garbled(batch: pa.RecordBatch, path: str) -> dict[int, str]:
    """Return the rows with invalid UTF-8, which Arrow does not check when it reads them."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        found = {
            n: f"column {name}: {why}"
            for name in batch.schema.names
            for n, value in enumerate(_bytes(batch.column(name)))
            if value is not None and (why := not_text(value))
        }
        if found:
            return found
        raise _damaged(path, error) from error
    return {}


def _bytes(column: pa.Array) -> list[bytes | None]:
    return column.view(pa.binary()).to_pylist() if pa.types.is_string(column.type) else []


def _as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """Return a row as it would be written to be read by people; bytes that are no text are escaped."""
    whole = batch.slice(row, 1)
    values = {name: _bytes(whole.column(name)) or python_values(whole.column(name)) for name in batch.schema.names}
    return json.dumps({name: value for name, (value,) in values.items()}, default=_written).encode()


def _written(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _damaged(path: str, error: Exception) -> SourceFailed:
    return SourceFailed(f"{path} is damaged: {error}", hint="write the file again")


def _guarded(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _column_type(path: str, found: pa.Schema, field: pa.Field) -> pa.DataType:
    if field.name not in found.names:
        message = f"{path} lacks column '{field.name}' ({spark_type(field.type)})"
        raise SourceFailed(message, hint=f"columns there: {', '.join(found.names)}")
    kind = found.field(field.name).type
    if not _fits(kind, field.type):
        raise _misfit(path, field, kind)
    return kind


def _misfit(path: str, field: pa.Field, kind: pa.DataType, why: str = "") -> SourceFailed:
    declared, there = spark_type(field.type), str(kind)
    message = f"{path}: column '{field.name}' is {there} there and {declared} in the schema{why}"
    return SourceFailed(message, hint="declare the type of the file, and cast later")


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast keeps the meaning; whether each value fits shows when it is cast."""
    if pa.types.is_dictionary(kind):
        return _fits(kind.value_type, wanted)
    if pa.types.is_timestamp(wanted):
        return pa.types.is_timestamp(kind) and (wanted.tz is not None or kind.tz is None)
    if pa.types.is_struct(wanted) and pa.types.is_struct(kind):
        names = {part.name: part.type for part in kind}
        return all(part.name in names and _fits(names[part.name], part.type) for part in wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(kind):
        return _fits(kind.key_type, wanted.key_type) and _fits(kind.item_type, wanted.item_type)
    if pa.types.is_list(wanted) and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return _fits(kind.value_type, wanted.value_type)
    if pa.types.is_floating(wanted) and pa.types.is_floating(kind):
        # Arrow's safe casts round a double to a float without a word.
        return bool(kind.bit_width <= wanted.bit_width)
    return kind in (wanted, pa.null()) or _family(wanted) in _families(kind)


def _family(kind: pa.DataType) -> str:
    names = [
        ("string", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
        ("binary", (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)),
        ("integer", (pa.types.is_integer,)),
        ("float", (pa.types.is_floating,)),
        ("decimal", (pa.types.is_decimal,)),
        ("date", (pa.types.is_date,)),
        ("duration", (pa.types.is_duration,)),
    ]
    return next((name for name, checks in names if any(check(kind) for check in checks)), str(kind))


def _families(kind: pa.DataType) -> tuple[str, ...]:
    """Return the kinds of type that a file's type can be cast to without loss of meaning."""
    own = _family(kind)
    return ("integer", "float", "decimal") if own == "integer" else (own,)


def _cast(batch: pa.RecordBatch, schema: Schema, path: str) -> pa.RecordBatch:
    wanted = schema.nullable().arrow
    return pa.RecordBatch.from_arrays([_cast_column(batch, f, path) for f in wanted], schema=wanted)


def _cast_column(batch: pa.RecordBatch, field: pa.Field, path: str) -> pa.Array:
    kind = _column_type(path, batch.schema, field)
    try:
        return to_microseconds(batch.column(field.name)).cast(field.type)
    except pa.ArrowInvalid as error:
        raise _misfit(path, field, kind, f": {error}") from error
