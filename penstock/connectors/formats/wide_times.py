"""Times before year 1 and after 9999, which Python's datetime cannot have: as ISO-8601 with a signed year, and back.

Arrow would write them as no time, or as one that sources refuse; csv and json of a sink do not hold them.

The calendar repeats every 400 years, so a time is calculated in the years 1970 to 2369 and moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.arrow_types import contains_type
from penstock.errors import SinkFailed

# What Arrow raises for them.
OUT_OF_RANGE = (ValueError, OverflowError, pa.ArrowException)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS, _CYCLE = 400, timedelta(days=146_097)
_MICROSECOND = timedelta(microseconds=1)
DAY_US = 86_400_000_000
_WIDE = re.compile(r"([+-]\d{4,})(-.*)")
_FIRST_DAY, _END_DAY = -719_162, 2_932_897


def wide_text(us: int) -> str:
    """Return a time in microseconds since 1970 as text, without a zone.

    >>> wide_text(2**63 - 1), wide_text(-(10**17))
    ('+294247-01-10T04:00:54.775807', '-1199-02-15T14:13:20')
    """
    cycles, rest = divmod(us, _CYCLE // _MICROSECOND)
    found = _UNIX + rest * _MICROSECOND
    return f"{found.year + cycles * _CYCLE_YEARS:+05}{found.replace(tzinfo=None).isoformat()[4:]}"


def wide_us(text: str) -> int | None:
    """Return the microseconds since 1970 of a text with a signed year; None if its year has no sign.

    >>> wide_us("+294247-01-10T04:00:54.775807Z"), wide_us("2026-01-01T00:00:00Z")
    (9223372036854775807, None)
    """
    found = _WIDE.fullmatch(text)
    if found is None:
        return None
    cycles, years = divmod(int(found[1]) - _UNIX.year, _CYCLE_YEARS)
    moment = datetime.fromisoformat(f"{_UNIX.year + years}{found[2]}")
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _UNIX) // _MICROSECOND + cycles * (_CYCLE // _MICROSECOND)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python has them; of one with a time out of range, that time alone is text."""
    try:
        found: list[Any] = column.to_pylist()
    except OUT_OF_RANGE:
        found = [_value(one) for one in column]
    return found


def batch_dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python has them; times out of range as text."""
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
    except OUT_OF_RANGE:
        columns = [python_values(column) for column in rows.columns]
        found = [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _value(one: pa.Scalar) -> Any:
    try:
        return one.as_py()
    except OUT_OF_RANGE:
        if isinstance(one, pa.StructScalar):
            return {name: _value(part) for name, part in one.items()}
        if isinstance(one, pa.MapScalar):
            return [(_value(pair["key"]), _value(pair["value"])) for pair in one.values]
        if isinstance(one, pa.ListScalar):
            return [_value(part) for part in one.values]
        if pa.types.is_date(one.type):
            return _text(one.cast(pa.int32()).as_py(), one.type)
        return _text(one.cast(pa.timestamp("us", one.type.tz)).cast(pa.int64()).as_py(), one.type)


def refuse_wide(batch: pa.RecordBatch, format: str) -> None:
    """Raise SinkFailed if a time, alone or nested, is one that no csv or json source reads."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        found = _wide_in(column) if contains_type(field.type, _is_time) else None
        if found is not None:
            message = f"column '{field.name}': {found} is before year 1 or after 9999, which {format} cannot hold"
            raise SinkFailed(message, hint="filter() such rows before, or write parquet")


def wide_texts(times: pa.Array) -> pa.Array | None:
    """Return all values of a column as text, if it has one out of range; else None."""
    if _wide_in(times) is None:
        return None
    plain = times.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date(times.type) else times.cast(pa.int64())
    return pa.array([None if value is None else _text(value, times.type) for value in plain.to_pylist()], pa.string())


def _wide_in(column: pa.Array) -> str | None:
    kind = column.type
    if pa.types.is_nested(kind):
        return next((found for part in _parts(column) if (found := _wide_in(part)) is not None), None)
    if not _is_time(kind):
        return None
    first, end = (_FIRST_DAY, _END_DAY) if pa.types.is_date(kind) else (_FIRST_DAY * DAY_US, _END_DAY * DAY_US)
    bounds = pc.min_max(column)
    for value in (bounds["min"].value, bounds["max"].value):
        if value is not None and not first <= value < end:
            return _text(value, kind)
    return None


def _parts(column: pa.Array) -> Iterable[pa.Array]:
    if not pa.types.is_map(column.type):
        found = column.flatten()
        return [found] if isinstance(found, pa.Array) else found
    # A slice of maps has the keys of all.
    whole = pa.concat_arrays([column.slice(0, 0), column]) if column.offset else column
    return whole.keys, whole.items


def _text(value: int, kind: pa.DataType) -> str:
    is_date = pa.types.is_date(kind)
    us = value * DAY_US if is_date else value
    if not _FIRST_DAY * DAY_US <= us < _END_DAY * DAY_US:
        text = wide_text(us)
    else:
        text = (_UNIX + us * _MICROSECOND).replace(tzinfo=None).isoformat()
    return text.partition("T")[0] if is_date else text + ("Z" if kind.tz else "")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
