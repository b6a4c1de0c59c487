"""Rows without an event time that can be used, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from penstock.windows import TimeRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def usable(column: str, times: TimeRange) -> str:
    """Return the condition, as DuckDB's SQL, that a time can be used; of a time that is null it is null."""
    return f"({column} >= make_timestamptz({times.first_us}) AND {column} < make_timestamptz({times.end_us}))"


def reasons(name: str, column: pa.ChunkedArray, times: TimeRange) -> list[str]:
    """Say of each time why it cannot be used."""
    early = f"event time '{name}' is before {_text(times.first_us)}, the earliest that can be used"
    late = f"event time '{name}' is not before {_text(times.end_us)}, the end of what can be used"
    return [
        f"event time '{name}' is null" if us is None else early if us < times.first_us else late
        for us in column.cast(pa.int64()).to_pylist()
    ]


def _text(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
