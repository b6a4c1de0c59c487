"""Columns in a canonical form, and rows in a canonical order: both depend on the content only.

Two values are the same if both are null, if both are NaN, or if they are equal; 0.0 and -0.0 are the same value. The
order of rows is that of their columns from left to right, nulls last, NaN after all other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadSchema

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True)
class Groups:
    """Rows in order, and where each group of equal rows starts in it."""

    order: Numbers
    starts: Numbers

    @property
    def numbers(self) -> Numbers:
        """The group of each row, in the order of the rows before they were sorted."""
        marks = np.zeros(len(self.order), np.int64)
        marks[self.starts[1:]] = 1
        found = np.empty_like(marks)
        found[self.order] = np.cumsum(marks)
        return found


def grouped(columns: Sequence[pa.Array], rows: int) -> Groups:
    """Sort rows by their columns, stably, and find the groups of equal rows.

    >>> grouped([pa.array(["b", None, "a", "b"])], 4).order.tolist()
    [2, 0, 3, 1]
    """
    keys = [key for column in columns for key in _sort_keys(column)]
    if not rows or not keys:
        return Groups(np.arange(rows), np.zeros(min(rows, 1), np.int64))
    if len(keys) == 1 and not keys[0].null_count and pa.types.is_integer(keys[0].type):
        order = np.argsort(to_numpy(keys[0]), kind="stable")
    else:
        table = pa.Table.from_arrays(keys, names=[str(number) for number in range(len(keys))])
        names = [(name, "ascending") for name in table.column_names]
        order = to_numpy(pc.sort_indices(table, sort_keys=names)).astype(np.int64)
    differs = np.zeros(rows - 1, np.bool_)
    for key in keys:
        differs |= _differs(key.take(pa.array(order)))
    return Groups(order, np.concatenate([[0], np.flatnonzero(differs) + 1]))


def canonical(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array without dictionaries, whose bytes are the same wherever its values are."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = plain_type(array.type)
    if not kind.equals(array.type):
        array = array.cast(kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    if pa.types.is_struct(kind):
        return _assembled(array, [], [canonical(child) for child in array.flatten()])
    if pa.types.is_nested(kind):
        width = np.int64 if pa.types.is_large_list(kind) else np.int32
        return _assembled(array, [_offsets(_lengths(array)).astype(width)], [canonical(_entries(array))])
    if pa.types.is_boolean(kind):
        bits = to_numpy(pc.fill_null(array, False))
        return _assembled(array, [np.packbits(bits, bitorder="little")])
    if pa.types.is_floating(kind):
        return _assembled(array, [_same_floats(to_numpy(pc.fill_null(array, 0)))])
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _assembled(array, [_fixed_width(array)])
    return _canonical_text(array)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries and views; raises BadSchema for a type that has no order."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.string() if pa.types.is_string_view(kind) else pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        list_of = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return list_of(kind.value_field.with_type(plain_type(kind.value_type)))
    if (pa.types.is_nested(kind) and not pa.types.is_map(kind)) or pa.types.is_interval(kind):
        message = f"a Z-set cannot have a column of the Arrow type {kind}"
        raise BadSchema(message, hint="cast it to a list, a struct or a duration")
    return kind


def _sort_keys(column: pa.Array) -> list[pa.Array]:
    """Return flat columns that have the order and the equality of a canonical one."""
    kind = column.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_floating(kind):
        return [_float_keys(column)]
    if pa.types.is_struct(kind):
        return [column.is_null(), *(key for child in column.flatten() for key in _sort_keys(child))]
    if pa.types.is_nested(kind):
        return [_list_keys(column)]
    return [column.cast(pa.binary())] if pa.types.is_fixed_size_binary(kind) else [column]


def _float_keys(column: pa.Array) -> pa.Array:
    """Return numbers as integers with the same order, NaN last."""
    values = to_numpy(pc.fill_null(column, 0)) + 0
    bits = values.view(_BITS[values.dtype.itemsize])
    most = np.iinfo(bits.dtype).max
    keys = np.where(np.isnan(values), most, np.where(bits < 0, bits ^ most, bits))
    return pa.array(keys, mask=null_mask(column))


def _list_keys(column: pa.Array) -> pa.Array:
    """Return lists as bytes: the numbers of their entries in the order of all entries."""
    entries = _entries(column)
    numbers = grouped([entries], len(entries)).numbers.astype(">i8")
    kind = pa.large_binary()
    buffers = [None, pa.py_buffer(_offsets(8 * _lengths(column))), pa.py_buffer(numbers.tobytes())]
    keys = pa.Array.from_buffers(kind, len(column), buffers)
    return pc.if_else(column.is_null(), pa.scalar(None, kind), keys)


def _differs(column: pa.Array) -> Mask:
    """Return for each value but the first whether it is another one than that before it."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    if not column.null_count:
        return np.asarray(to_numpy(pc.not_equal(before, after)))
    nulls = to_numpy(column.is_null())
    unequal = to_numpy(pc.fill_null(pc.not_equal(before, after), False))
    return np.asarray(unequal | (nulls[1:] != nulls[:-1]))


def _assembled(array: pa.Array, data: Sequence[Any], children: Sequence[pa.Array] = ()) -> pa.Array:
    """Return an array with the nulls of another, and with these buffers and children."""
    valid = None
    if array.null_count:
        valid = pa.py_buffer(np.packbits(to_numpy(array.is_valid()), bitorder="little").tobytes())
    buffers = [valid, *(pa.py_buffer(np.ascontiguousarray(one)) for one in data)]
    kind = plain_type(array.type)
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, children=list(children) or None)


def _fixed_width(array: pa.Array) -> npt.NDArray[np.uint8]:
    width = array.type.bit_width // 8
    if not len(array) or not width:
        return np.zeros(0, np.uint8)
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    if not array.null_count:
        return data
    return np.where(to_numpy(array.is_null())[:, None], np.uint8(0), data.reshape(len(array), width)).ravel()


def _same_floats(values: Any) -> Any:
    """Return numbers with 0.0 for -0.0, and one NaN for all."""
    same = values + values.dtype.type(0)
    same[np.isnan(same)] = np.nan
    return same


def _canonical_text(array: pa.Array) -> pa.Array:
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    # To concatenate copies no more than the values.
    filled = pa.concat_arrays([array.slice(0, 0), pc.fill_null(array, "" if text else b"")])
    _, offsets, data = filled.buffers()
    width = np.int64 if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else np.int32
    ends = np.frombuffer(offsets, width)[: len(array) + 1] if len(array) else np.zeros(1, width)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return _assembled(array, [ends - ends[0], content[ends[0] : ends[-1]]])


def _lengths(column: pa.Array) -> Numbers:
    """Return how many entries each list has; a null one has none."""
    if pa.types.is_map(column.type):
        found = np.diff(to_numpy(column.offsets)).astype(np.int64)
        return np.where(to_numpy(column.is_null()), 0, found)
    return np.asarray(to_numpy(pc.fill_null(pc.list_value_length(column), 0)), np.int64)


def _entries(column: pa.Array) -> pa.Array:
    """Return the entries of all lists that are not null; of maps, structs of key and value."""
    if not pa.types.is_map(column.type):
        return column.flatten()
    fields = [column.type.key_field, column.type.item_field]
    entries = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
    ends = to_numpy(column.offsets)
    return entries.filter(pa.array(np.repeat(to_numpy(column.is_valid()), np.diff(ends))))


def _offsets(lengths: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def null_mask(array: pa.Array) -> Mask | None:
    """Return where an array is null, or None if it is nowhere."""
    return np.asarray(to_numpy(array.is_null())) if array.null_count else None


def to_numpy(array: pa.Array) -> Any:
    """Return an array without nulls as NumPy's."""
    return array.to_numpy(zero_copy_only=False)
