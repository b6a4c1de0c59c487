"""Z-sets: rows with a weight, as Arrow tables with a weight column.

A weight says how often a row is there; a negative one takes it away. Z-sets form a group under `add`, so every change
of a table is a Z-set, and a table plus its changes is the new table. Equal rows may stand in several places:
`consolidate` sums them up. Which rows are equal is in `canonical`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import BadSchema, BadValue
from penstock.incremental.canonical import canonical, grouped, plain_type, to_numpy

WEIGHT = "__penstock_weight"
_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)
_MOST = 2**63 - 1
Weights = npt.NDArray[np.int64]


def from_rows(rows: pa.Table, weight: int | Weights = 1) -> pa.Table:
    """Return rows as a Z-set, each with this weight.

    >>> from_rows(pa.table({"a": [1, 2]}), -1).to_pylist()
    [{'a': 1, '__penstock_weight': -1}, {'a': 2, '__penstock_weight': -1}]
    """
    weights = np.full(rows.num_rows, weight, np.int64) if isinstance(weight, int) else np.asarray(weight, np.int64)
    return rows.append_column(_FIELD, pa.array(weights))


def empty(schema: pa.Schema) -> pa.Table:
    """Return the Z-set of no rows with these columns."""
    return from_rows(schema.empty_table())


def weights(zset: pa.Table) -> Weights:
    """Return the weights of a Z-set."""
    if zset.schema.get_field_index(WEIGHT) < 0:
        message = f"not a Z-set: there is no column {WEIGHT}"
        raise BadSchema(message, hint=f"columns here: {', '.join(zset.column_names)}")
    return np.asarray(to_numpy(zset.column(WEIGHT).combine_chunks()), np.int64)


def rows_of(zset: pa.Table) -> pa.Table:
    """Return the rows of a Z-set without their weights."""
    return zset.drop_columns([WEIGHT])


def with_weights(zset: pa.Table, new: Weights) -> pa.Table:
    """Return the rows of a Z-set with other weights."""
    return from_rows(rows_of(zset), new)


def add(*zsets: pa.Table) -> pa.Table:
    """Return the sum of Z-sets with the same columns, not consolidated."""
    return pa.concat_tables([from_rows(rows_of(one), weights(one)) for one in zsets])


def negate(zset: pa.Table) -> pa.Table:
    """Return the Z-set that takes away what this one adds."""
    return with_weights(zset, -weights(zset))


def consolidate(zset: pa.Table) -> pa.Table:
    """Return the canonical form: each row once, in order, none with weight 0; the same content has the same bytes.

    >>> changes = pa.table({"a": ["x", "y", "x"], WEIGHT: [1, -1, -1]})
    >>> consolidate(changes).to_pylist()
    [{'a': 'y', '__penstock_weight': -1}]
    """
    summed = weights(zset)
    rows = rows_of(zset)
    columns = [canonical(column) for column in rows.columns]
    groups = grouped(columns, len(summed))
    sums = _sums(summed[groups.order], groups.starts)
    kept = np.flatnonzero(sums)
    chosen = pa.array(groups.order[groups.starts[kept]])
    # What is taken has the bytes of what it was taken from, but for nulls.
    arrays = [canonical(column.take(chosen)) for column in columns]
    fields = [pa.field(field.name, plain_type(field.type), field.nullable) for field in rows.schema]
    return pa.Table.from_arrays([*arrays, pa.array(sums[kept])], schema=pa.schema([*fields, _FIELD]))


def distinct(zset: pa.Table) -> pa.Table:
    """Return each row whose weight is positive once, with weight 1, consolidated."""
    whole = consolidate(zset)
    present = whole.filter(pa.array(weights(whole) > 0)).combine_chunks()
    return consolidate(with_weights(present, np.ones(present.num_rows, np.int64)))


def equal(left: pa.Table, right: pa.Table) -> bool:
    """Return whether two Z-sets have the same columns and content, consolidated or not."""
    kinds = [[(field.name, plain_type(field.type)) for field in one.schema] for one in (left, right)]
    return kinds[0] == kinds[1] and content(left) == content(right)


def content(zset: pa.Table) -> bytes:
    """Return bytes that are the same for equal content; the names of columns are not in them."""
    whole = consolidate(zset)
    arrays = [canonical(column) for column in whole.columns]
    return bytes(pa.RecordBatch.from_arrays(arrays, names=whole.column_names).serialize())


def _sums(values: Weights, starts: npt.NDArray[np.int64]) -> Weights:
    if not len(values):
        return values
    sums = np.add.reduceat(values, starts)
    if int(np.abs(values.astype(np.float64)).max()) * len(values) >= _MOST:
        _refuse_overflow(values, starts)
    return np.asarray(sums)


def _refuse_overflow(values: Weights, starts: npt.NDArray[np.int64]) -> None:
    exact = np.add.reduceat(values.astype(object), starts)
    if any(abs(one) > _MOST for one in exact):
        message = f"Z-set: the weight of a row is beyond {_MOST}"
        raise BadValue(message, hint="weights are bigint")
