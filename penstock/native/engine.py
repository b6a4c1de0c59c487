"""DuckDB in a task, and its errors as the user should see them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.formats.wide_times import python_values
from penstock.errors import ExpressionFailed
from penstock.native.fallible_expressions import WHY, failed_rows, reasons
from penstock.native.steps import INPUT, Step, compose
from penstock.plan.checked_operator import OWN_COLUMNS

if TYPE_CHECKING:
    import duckdb

# Settings of DuckDB with which expressions mean what they mean in Spark: a division by zero raises, for doubles too.
SESSION = (
    "SET TimeZone = 'UTC'; SET preserve_insertion_order = true;"
    " SET ieee_floating_point_ops = false; SET error_on_division_by_zero = true"
)


def database() -> Any:
    """Load DuckDB in tasks only: Spark's planner imports this module too."""
    import duckdb

    return duckdb


@cache
def connection() -> Any:
    """One connection per worker process; one thread, for Spark runs a task per core."""
    made = database().connect()
    made.execute(f"SET threads = 1; {SESSION}")
    return made


def query(sql: str) -> pa.Table:
    """Return the rows of a query over what is registered."""
    return connection().sql(sql).to_arrow_table()


def share_subexpressions(share: bool) -> None:
    """Let DuckDB evaluate common subexpressions once, or not: it moves them out of a TRY, where they raise."""
    connection().execute(f"SET disabled_optimizers = '{'' if share else 'common_subexpressions'}'")


def failed(chain: tuple[Step, ...], end: Step | None, rows: pa.Table, error: duckdb.Error) -> ExpressionFailed:
    """Find the step and the row that failed; if no step did, it was the aggregate at the end, or its input."""
    for number, step in enumerate(chain):
        row = _failing_row(compose(chain[: number + 1]), rows)
        if row is not None:
            why = _why(step, compose(chain[:number]), row) or f'"{step.expression}" failed: {_reason(error)}'
            return _failure(step, why, row)
    if end is None:
        return ExpressionFailed(f"the scan failed: {_reason(error)}", hint=_TRY)
    if end.probes and (row := _failing_row(_probed(end, compose(chain)), rows)) is not None:
        return _failure(end, _why(end, compose(chain), row) or f'"{end.expression}" failed: {_reason(error)}', row)
    # No single row fails, only the rows of a group together.
    message = f'"{end.expression}" failed on a group of rows: {_reason(error)}'
    return ExpressionFailed(
        message,
        node=f"{end.kind} '{end.node}'",
        hint="use try_sum, or sum a wider type: sum(cast(... as decimal(38,2)))",
    )


_TRY = "use the try_ form of what failed, such as try_divide, try_cast or try_add: it gives null"
_HINT = f"{_TRY}; or reject such rows: Pipeline(..., rejected_to=sink)"


def _failure(step: Step, why: str, row: pa.Table) -> ExpressionFailed:
    names = [name for name in row.column_names if not name.startswith(OWN_COLUMNS)]
    # Python has no times before year 1 and after 9999.
    shown = {name: python_values(row.column(name))[0] for name in names}
    message = f"{why}; the input row was {shown}"
    return ExpressionFailed(message, node=f"{step.kind} '{step.node}'", hint=_HINT)


def _probed(step: Step, before: str) -> str:
    """Return a query that evaluates what a step takes of each row."""
    return f"SELECT {', '.join(one.sql for one in step.probes)} FROM ({before})"


def _why(step: Step, before: str, row: pa.Table) -> str | None:
    """Return which part of an expression failed on a row; None if no probe finds it."""
    if not step.probes:
        return None
    connection().register(INPUT, row)
    share_subexpressions(False)
    try:
        found = query(failed_rows(step.probes, f"({before})"))
    except database().Error:
        return None
    finally:
        share_subexpressions(True)
        connection().unregister(INPUT)
    return reasons(step.probes)[found.column(WHY).to_pylist()[0]] if found.num_rows else None


def _failing_row(sql: str, rows: pa.Table) -> pa.Table | None:
    """Bisect to one row on which the query fails."""
    if not _fails(sql, rows):
        return None
    while rows.num_rows > 1:
        half = rows.slice(0, rows.num_rows // 2)
        rows = half if _fails(sql, half) else rows.slice(rows.num_rows // 2)
    return rows


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
        query(sql)
    except database().Error:
        return True
    finally:
        connection().unregister(INPUT)
    return False


def _reason(error: duckdb.Error) -> str:
    """Return DuckDB's message without its class of error and its advice."""
    first = re.sub(r"^[\w ]+ Error: ", "", str(error).splitlines()[0])
    return re.split(r"\.? Use TRY|!? when casting from source", first)[0].rstrip("!. ")
