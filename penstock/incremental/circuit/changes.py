"""Changes of a relation: rows with a weight, which says how many times the row is added or taken out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.row_identity import Grouping, Keys, Numbers, grouped, keys_of

WEIGHT = "__penstock_weight"
Positions = Numbers


def weights(changes: pa.Table) -> Numbers:
    """Return the weight of each row."""
    found: Numbers = changes.column(WEIGHT).to_numpy()
    return found


def weighted(rows: pa.Table, given: Numbers) -> pa.Table:
    """Return rows with weights in place of those that they have."""
    column = pa.array(given, pa.int64())
    if WEIGHT in rows.column_names:
        return rows.set_column(rows.column_names.index(WEIGHT), WEIGHT, column)
    return rows.append_column(WEIGHT, column)


def negated(changes: pa.Table) -> pa.Table:
    """Return changes that undo these."""
    return weighted(changes, -weights(changes))


def whole(table: pa.Table) -> pa.Table:
    """Return a table in one piece."""
    return table.combine_chunks() if any(column.num_chunks != 1 for column in table.columns) else table


def taken(table: pa.Table, positions: Positions) -> pa.Table:
    """Return some rows, by their positions."""
    return whole(table).take(pa.array(positions))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of tables of one schema, one after the other."""
    filled = [table for table in tables if table.num_rows] or list(tables[:1])
    return filled[0] if len(filled) == 1 else whole(pa.concat_tables(filled))


def keys(table: pa.Table, names: Sequence[str]) -> Keys:
    """Return columns of a table in the form in which rows are compared."""
    return keys_of([table.column(name) for name in names], table.num_rows)


def values_of(table: pa.Table) -> list[str]:
    """Return the names of the columns but the weight."""
    return [name for name in table.column_names if name != WEIGHT]


def consolidated(changes: pa.Table) -> pa.Table:
    """Return the same changes with each row once, without those of weight 0, in an order that only they determine."""
    if not changes.num_rows:
        return changes
    by_row = keys(changes, values_of(changes))
    return summed(changes, grouped(by_row, by_row.hashes()))[0]


def summed(changes: pa.Table, groups: Grouping) -> tuple[pa.Table, Positions]:
    """Return one row for each group of equal rows with the sum of their weights, and the positions of these rows."""
    total = groups.total(weights(changes))
    there = np.flatnonzero(total)
    if len(there) == changes.num_rows and bool((groups.firsts == np.arange(len(there))).all()):
        return changes, groups.firsts
    positions = groups.firsts[there]
    return weighted(taken(changes, positions), total[there]), positions
