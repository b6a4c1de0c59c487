"""Converts rows, arrays and maps of Python values, and Arrow arrays of user code, to the declared types."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadResult, choices
from penstock.schema import Schema, spark_type
from penstock.values.scalars import REFUSED, Misfit, Misfits, ScalarType, plain

_NOT_LISTS = (str, bytes, bytearray, memoryview)


@dataclass(frozen=True)
class Rows:
    """Rows, or structs: dicts or dataclasses. What is left out is null, which a required column does not take."""

    arrow: pa.DataType
    parts: tuple[Column, ...]
    required: frozenset[str] = frozenset()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(field.name for field in self.arrow)

    @property
    def text(self) -> str:
        """The Spark type."""
        return spark_type(self.arrow)

    def converted(self, column: list[Any]) -> tuple[pa.Array, Misfits]:
        """Return rows as an Arrow array, null for those that do not fit, and the misfits."""
        columns, wrong, nulls = self._columns(column)
        arrays, found = self.arrays(columns)
        wrong = {number: misfit for number, misfit in found.items() if column[number] is not None} | wrong
        mask = _places([*nulls, *wrong], len(column)) if nulls or wrong else None
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=mask), wrong

    def arrays(self, columns: list[list[Any]]) -> tuple[list[pa.Array], Misfits]:
        """Return columns as Arrow arrays, and the first misfit of each row."""
        arrays, wrong = [], Misfits()
        for name, part, values in zip(self.names, self.parts, columns, strict=True):
            array, found = part.converted(values)
            if name in self.required and array.null_count:
                found = _nulls(array, part, "it cannot be null") | found
            for number, misfit in found.items():
                wrong.setdefault(number, misfit.within(name))
            arrays.append(array)
        return arrays, wrong

    def _columns(self, rows: list[Any]) -> tuple[list[list[Any]], Misfits, list[int]]:
        """Return the values of each column, the invalid rows, and the null ones."""
        names = self.names
        if {*map(type, rows)} == {dict} and {*map(len, rows)} == {len(names)}:
            with contextlib.suppress(KeyError):
                return [[row[name] for row in rows] for name in names], {}, []
        wrong: Misfits = {}
        made: list[Mapping[str, Any]] = []
        for number, value in enumerate(rows):
            row = {} if value is None else _as_mapping(value)
            unknown = [name for name in row if name not in names] if row else []
            if row is None or unknown:
                wrong[number] = Misfit(value, self.text, f"it has no field {unknown[0]!r}" if unknown else "")
            made.append({} if number in wrong else row)
        nulls = [number for number, value in enumerate(rows) if value is None]
        return [[row.get(name) for row in made] for name in names], wrong, nulls


@dataclass(frozen=True)
class Lists:
    """Arrays: lists, tuples and other sequences but text and bytes; one-dimensional arrays of NumPy too."""

    arrow: pa.DataType
    part: Column

    def converted(self, column: list[Any]) -> tuple[pa.Array, Misfits]:
        """Return lists as an Arrow array, null for those that do not fit, and the misfits."""
        lists, wrong = _normal(column, _as_list, self.arrow)
        ends = _ends(lists)
        array, found = self.part.converted([*chain.from_iterable(one for one in lists if one is not None)])
        _blame(found, ends, wrong)
        return pa.ListArray.from_arrays(pa.array(ends), array, type=self.arrow, mask=_mask(lists, wrong)), wrong


@dataclass(frozen=True)
class Maps:
    """Maps: dicts, or sequences of pairs, which is how Arrow gives them."""

    arrow: pa.DataType
    key: Column
    item: Column

    def converted(self, column: list[Any]) -> tuple[pa.Array, Misfits]:
        """Return maps as an Arrow array, null for those that do not fit, and the misfits."""
        pairs, wrong = _normal(column, _as_pairs, self.arrow)
        array, found = self._built(pairs)
        if found:
            # Arrow rejects a map with a null key, so maps that do not fit are left out before.
            array, _ = self._built([None if number in found else one for number, one in enumerate(pairs)])
        return array, wrong | found

    def _built(self, pairs: list[Any]) -> tuple[pa.Array, Misfits]:
        wrong: Misfits = {}
        ends = _ends(pairs)
        flat = [*chain.from_iterable(one for one in pairs if one is not None)]
        keys, found = self.key.converted([key for key, _ in flat])
        if keys.null_count:
            found = _nulls(keys, self.key, "a key cannot be null") | found
        items, more = self.item.converted([item for _, item in flat])
        _blame(found, ends, wrong)
        _blame(more, ends, wrong)
        if wrong:
            return None, wrong
        return pa.MapArray.from_arrays(pa.array(ends), keys, items, type=self.arrow, mask=_mask(pairs, wrong)), wrong


Column = ScalarType | Rows | Lists | Maps


@cache
def column_of(kind: pa.DataType) -> Column:
    """Return the converter of a type."""
    if pa.types.is_struct(kind):
        return Rows(kind, tuple(column_of(field.type) for field in kind))
    if pa.types.is_map(kind):
        return Maps(kind, column_of(kind.key_type), column_of(kind.item_type))
    return Lists(kind, column_of(kind.value_type)) if pa.types.is_list(kind) else plain(kind)


def rows_of(schema: Schema) -> Rows:
    """Return the converter of a schema's rows, which enforces `not null`.

    >>> array, wrong = rows_of(Schema("n bigint")).converted([{"n": 1}, {"n": 1.5}])
    >>> array.to_pylist(), str(wrong[1])
    ([{'n': 1}, None], "column 'n' is bigint, and was given 1.5 (float)")
    """
    found = column_of(pa.struct([field.with_nullable(True) for field in schema.arrow]))
    assert isinstance(found, Rows)
    return dataclasses.replace(found, required=frozenset(field.name for field in schema if not field.nullable))


def _as_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _as_list(value: Any) -> Any:
    if type(value) in (list, tuple):
        return value
    if isinstance(value, np.ndarray):
        # Not tolist(): NumPy's scalars keep their types.
        return list(value) if value.ndim == 1 else None
    return list(value) if isinstance(value, Sequence) and not isinstance(value, _NOT_LISTS) else None


def _as_pairs(value: Any) -> Any:
    if isinstance(value, Mapping):
        return list(value.items())
    pairs = _as_list(value)
    if pairs is None or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return None
    # With duplicate keys a value would be lost.
    return pairs if len({repr(key) for key, _ in pairs}) == len(pairs) else None


def _normal(column: list[Any], form: Callable[[Any], Any], kind: pa.DataType) -> tuple[list[Any], Misfits]:
    """Return values in one representation, None for those that have none."""
    made = [None if value is None else form(value) for value in column]
    pairs = enumerate(zip(column, made, strict=True))
    return made, {n: Misfit(value, spark_type(kind)) for n, (value, one) in pairs if one is None is not value}


def _ends(lists: list[Any]) -> Any:
    """Return the offsets of lists in their concatenated elements."""
    sizes = np.fromiter((0 if one is None else len(one) for one in lists), np.int32, len(lists))
    return np.r_[np.int32(0), np.cumsum(sizes, dtype=np.int32)]


def _blame(found: Misfits, ends: Any, wrong: Misfits) -> None:
    """Add the misfits of elements to the lists that contain them."""
    for number, misfit in sorted(found.items()):
        whole = int(np.searchsorted(ends, number, side="right")) - 1
        wrong.setdefault(whole, misfit.within(number - int(ends[whole])))


def _places(numbers: list[int], count: int) -> pa.Array:
    """Return True at these positions, False at the others."""
    found = np.zeros(count, bool)
    found[numbers] = True
    return pa.array(found)


def _mask(lists: list[Any], wrong: Misfits) -> pa.Array:
    return pa.array([one is None or number in wrong for number, one in enumerate(lists)], pa.bool_())


def _nulls(array: pa.Array, part: Column, why: str) -> Misfits:
    """Return the nulls where there must be none."""
    found = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return {number: Misfit(None, spark_type(part.arrow), why) for number in found}


def fit_batch(made: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return the columns of a batch in the types of a schema; raises if a value does not fit."""
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
    """Return an array in another type, by the rules for single values, null for misfits, and the misfits.

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
