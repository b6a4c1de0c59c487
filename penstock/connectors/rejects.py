"""Rows that are set aside: those that break `not null`, and what `on_error` makes of any bad row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.contracts import Rejected
from penstock.errors import BadValue, RowRejected, choices
from penstock.schema import Schema

OnError = Literal["reject", "fail"]


def broken(batch: pa.RecordBatch, schema: Schema) -> list[tuple[int, str]]:
    """Return the rows with a null where none may be, and why each is bad."""
    found: dict[int, str] = {}
    for field in schema:
        column = batch.column(field.name)
        if field.nullable or not column.null_count:
            continue
        for row in pc.indices_nonzero(column.is_null()).to_pylist():
            found.setdefault(row, f"column {field.name}: null, but it is declared not null")
    return sorted(found.items())


def without(batch: pa.RecordBatch, rows: Iterable[int]) -> pa.RecordBatch:
    """Return the batch without these rows."""
    dropped = set(rows)
    return batch.take(pa.array([n for n in range(batch.num_rows) if n not in dropped], pa.int64()))


def checked_on_error(on_error: str) -> OnError:
    """Refuse anything but the two ways to treat a bad row."""
    if on_error == "reject":
        return "reject"
    if on_error == "fail":
        return "fail"
    message = f"{on_error!r} is not known"
    raise BadValue(message, node="on_error", hint=choices("on_error", ["reject", "fail"], on_error))


def enforce(
    rows: Iterable[pa.RecordBatch | Rejected], on_error: OnError, node: str
) -> Iterator[pa.RecordBatch | Rejected]:
    """Pass everything on; with `on_error="fail"` the first bad row stops the job."""
    for item in rows:
        if isinstance(item, Rejected) and on_error == "fail":
            message = f"bad row at {item.position}: {item.reason}"
            hint = 'mend the row, or pass on_error="reject" to set such rows aside'
            raise RowRejected(message, node=node, hint=hint)
        yield item
