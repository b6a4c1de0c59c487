"""Arrow arrays that user code returns, in declared types."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import BadResult, choices
from penstock.schema import Schema
from penstock.values.columns import column_of
from penstock.values.misfit import Misfit
from penstock.values.plain import REFUSED, Misfits


def fit_batch(made: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return the columns of a batch in the types of a schema; raises where one of its values does not fit."""
    if not isinstance(made, pa.RecordBatch | pa.Table):
        message = f"returned {type(made).__name__}, not a record batch"
        raise TypeError(message)
    arrays = []
    for field in schema.arrow:
        if field.name not in made.schema.names:
            message = f"it returned no column '{field.name}'"
            raise BadResult(message, hint=choices("columns that it returned", made.schema.names, field.name))
        column = made.column(field.name)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array, wrong = fit_array(whole, field.type)
        if not wrong and not field.nullable and array.null_count:
            wrong = {0: Misfit(None, schema.field(field.name).type, "it cannot be null")}
        for misfit in wrong.values():
            raise BadResult(misfit.within(field.name).text)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.nullable().arrow)


def fit_array(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Misfits]:
    """Return an array in another type, by the rules for single values, null where one does not fit, and these.

    >>> fit_array(pa.array([1, 300], pa.int64()), pa.int8())[0].to_pylist()
    [1, None]
    """
    if array.type == kind:
        return array, {}
    if _is_same_kind(array.type, kind):
        try:
            return array.cast(kind), {}
        except REFUSED:
            pass
    return column_of(kind).converted(array.to_pylist())


def _is_same_kind(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's cast changes no value without an error."""
    types = pa.types
    if types.is_null(given):
        return True
    if types.is_integer(kind) or types.is_float64(kind):
        return bool(types.is_integer(given) or (types.is_float64(kind) and types.is_floating(given)))
    if types.is_string(kind):
        return bool(types.is_large_string(given) or types.is_string_view(given))
    if types.is_timestamp(kind):
        return bool(types.is_timestamp(given) and bool(given.tz) == bool(kind.tz))
    return bool(types.is_decimal(kind) and types.is_decimal(given))
