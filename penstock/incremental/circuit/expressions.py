"""SQL over the rows of an operator, in DuckDB, with errors that name the operator, the expression and the row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.incremental.circuit.changes import WEIGHT
from penstock.native import engine
from penstock.native.steps import INPUT, Step, compose

# A row of a view is not rejected: what replaces or deletes it later would have to be rejected with it.
_HINT = (
    "no row is lost: the epoch is not committed, and the next run reads it again\n"
    "  to continue from this checkpoint, keep such rows out before .view(), where rejected_to takes them: "
    'stream.filter("... IS NOT NULL").view(...); then run it with --allow-drop SINK\n'
    "  or use the try_ form of what failed, such as try_cast or try_divide, which gives null; "
    "a view that is changed needs a new checkpoint"
)
_LONGEST = 60


def evaluated(chain: tuple[Step, ...], rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Run steps over rows, and return their result with this schema; the order of rows stays."""
    connection = engine.connection()
    connection.register(INPUT, engine.unsliced(rows))
    try:
        found = connection.sql(compose(chain)).to_arrow_table()
    except engine.database().Error as error:
        connection.unregister(INPUT)
        found = engine.failed(chain, None, rows, error)
        found.hint, found.node = _HINT, _short(found.node)
        raise found from error
    connection.unregister(INPUT)
    return without_negative_zeros(found if found.schema.equals(schema) else found.cast(schema))


def _short(operator: str | None) -> str | None:
    """Return the label of an operator; of a long one, its beginning."""
    return operator if operator is None or len(operator) <= _LONGEST else f"{operator[:_LONGEST]}...'"


def without_negative_zeros(rows: pa.Table) -> pa.Table:
    """Return rows in which 0.0 is written in one way, so that equal rows are the same."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            rows = rows.set_column(number, field, pc.add(rows.column(number), pa.scalar(0.0, field.type)))
    return rows


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns and types of a schema, each of weight 1 if they have none."""
    if WEIGHT not in rows.column_names:
        rows = rows.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    rows = rows.select(schema.names)
    return without_negative_zeros(rows if rows.schema.equals(schema) else rows.cast(schema)).combine_chunks()
