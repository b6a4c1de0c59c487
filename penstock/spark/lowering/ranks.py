"""The best rows of a group: an array in Spark's state, and a row for each rank when it leaves."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.stateful import Top, is_ordered
from penstock.schema import quoted
from penstock.spark.hidden import PREFIX
from penstock.spark.lowering.context import column

BEST = PREFIX + "best"
_PLACE = PREFIX + "place"


def best_rows(node: Top) -> str:
    """Return the aggregate that keeps whole rows, the largest first; those that tie go by all their columns."""
    row = f"struct({', '.join(map(quoted, node.input.schema.names))})"
    return f"max_by({row}, {order_of(node)}, {node.n})"


def order_of(node: Top) -> str:
    """Return what rows are ordered by, as one value: what has no order of its own goes by its text."""
    ties = (quoted(f.name) if is_ordered(f.type) else f"to_json({quoted(f.name)})" for f in node.input.schema)
    parts = (f"'o{place}', {sql}" for place, sql in enumerate((node.by, *ties)))
    return f"named_struct({', '.join(parts)})"


def ranked(frame: DataFrame, node: Top) -> DataFrame:
    """Make a row of each place in the array."""
    groups = [column(name) for name in frame.columns if name != BEST]
    rows = frame.select(*groups, F.posexplode(BEST).alias(_PLACE, BEST))
    given = (*node.keys, *node.window_columns, "rank")
    rest: list[Column] = [F.col(f"{BEST}.{quoted(name)}") for name in node.schema.names if name not in given]
    return rows.select(*groups, *rest, (column(_PLACE) + 1).alias("rank"))
