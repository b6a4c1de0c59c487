"""DuckDB in a task, and what its errors mean for a user."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import ExpressionFailed
from penstock.native.steps import INPUT, Step, compose

if TYPE_CHECKING:
    import duckdb


def database() -> Any:
    """Load DuckDB in tasks only: Spark's planner imports this module too."""
    import duckdb

    return duckdb


@cache
def connection() -> Any:
    """One connection per worker process; one thread, for Spark runs a task per core."""
    made = database().connect()
    made.execute("SET threads = 1; SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
    # As in Spark, a division by zero raises, for doubles too.
    made.execute("SET ieee_floating_point_ops = false; SET error_on_division_by_zero = true")
    return made


def share_subexpressions(share: bool) -> None:
    """Let DuckDB evaluate common subexpressions once, or not: it moves them out of a TRY, where they raise."""
    connection().execute(f"SET disabled_optimizers = '{'' if share else 'common_subexpressions'}'")


def failed(chain: tuple[Step, ...], end: str, rows: pa.Table, error: duckdb.Error) -> ExpressionFailed:
    """Find the step and the row that failed; if no step did, it was the aggregate at the end."""
    for number, step in enumerate(chain):
        row = _failing_row(compose(chain[: number + 1]), rows)
        if row is not None:
            message = f'"{step.expression}" failed: {_reason(error)}; the row was {row}'
            return ExpressionFailed(message, node=f"{step.kind} '{step.node}'", hint=_HINT)
    message = f"an aggregate failed: {_reason(error)}"
    return ExpressionFailed(message, node=f"aggregate '{end}'", hint=_TRY)


_TRY = "use try_add, try_subtract, try_multiply, try_divide, try_mod, try_cast or try_sum, which give null instead"
_HINT = f"{_TRY}; or send such rows aside: Pipeline(..., rejected_to=sink)"


def _failing_row(sql: str, rows: pa.Table) -> dict[str, Any] | None:
    """Bisect to one row on which the query fails."""
    if not _fails(sql, rows):
        return None
    while rows.num_rows > 1:
        half = rows.slice(0, rows.num_rows // 2)
        rows = half if _fails(sql, half) else rows.slice(rows.num_rows // 2)
    row: dict[str, Any] = rows.to_pylist()[0]
    return row


def unsliced(rows: pa.Table) -> pa.Table:
    """Return rows that DuckDB can read: it refuses structs that are a slice of others, so these are copied."""
    sliced = any(_is_sliced(chunk) for column in rows.columns for chunk in column.chunks)
    return rows.take(pa.array(range(rows.num_rows), pa.int64())) if sliced else rows


def _is_sliced(array: pa.Array) -> bool:
    if isinstance(array, pa.StructArray):
        return bool(array.offset) or any(_is_sliced(array.field(i)) for i in range(array.type.num_fields))
    if isinstance(array, pa.ListArray) and pa.types.is_nested(array.values.type):
        return bool(array.offset) or _is_sliced(array.values)
    return False


def _fails(sql: str, rows: pa.Table) -> bool:
    connection().register(INPUT, unsliced(rows))
    try:
        connection().sql(sql).to_arrow_table()
    except database().Error:
        return True
    finally:
        connection().unregister(INPUT)
    return False


def _reason(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]
