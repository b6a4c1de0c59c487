"""Deltas of keys: Set, Patch and Remove with sequence numbers, as columns and not as objects.

A batch of deltas is one Arrow table: the columns of the key, those of the value, and three of ours: the sequence
number, the kind of the change, and a bitmap of the value columns that a delta has. A state is such a table too: a Set
for each key that exists, and a Remove for each that was removed, so that an older delta that arrives again is
recognised.

The laws, each of which is tested:
- `apply(d, apply(d, s)) = apply(d, s)`: a delta whose sequence number is not above that of its key changes nothing.
- `apply(diff(old, new), old) = new`; which values are equal is in `canonical`.
- `compose(a, compose(b, c)) = compose(compose(a, b), c)`, and `apply(compose(a, b), s) = apply(b, apply(a, s))`.
- A later Set or Remove replaces what was before it. A Patch of a key that does not exist changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import BadSchema, BadValue, UnknownColumn, choices
from penstock.incremental.canonical import Groups, canonical, grouped, to_numpy

SEQUENCE, CHANGE, PATCHED = "__penstock_sequence", "__penstock_change", "__penstock_patched"
OWN = (SEQUENCE, CHANGE, PATCHED)
SET, PATCH, REMOVE = 0, 1, 2
Numbers = npt.NDArray[np.int64]
Bitmap = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Deltas:
    """A batch of deltas, in order; sequence numbers of one key increase.

    >>> rows = pa.table({"symbol": ["A", "B"], "price": [1.0, 2.0], "size": [10, 20]})
    >>> state = apply(set_rows(rows, ["symbol"], 1), no_deltas(rows.schema, ["symbol"]))
    >>> cheaper = patch_rows(pa.table({"symbol": ["A"], "price": [0.5]}), ["symbol"], 2, rows.schema)
    >>> apply(cheaper, state).rows().to_pylist()
    [{'symbol': 'A', 'price': 0.5, 'size': 10}, {'symbol': 'B', 'price': 2.0, 'size': 20}]
    """

    key: tuple[str, ...]
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The columns of key and value."""
        return pa.schema([field for field in self.table.schema if field.name not in OWN])

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the value columns."""
        return tuple(name for name in self.schema.names if name not in self.key)

    @property
    def sequences(self) -> Numbers:
        """The sequence number of each delta."""
        return np.asarray(to_numpy(self.table.column(SEQUENCE).combine_chunks()))

    @property
    def changes(self) -> npt.NDArray[np.int8]:
        """The kind of each delta: SET, PATCH or REMOVE."""
        return np.asarray(to_numpy(self.table.column(CHANGE).combine_chunks()))

    @property
    def patched(self) -> Bitmap:
        """Whether a delta (row) has a value column (column)."""
        array = self.table.column(PATCHED).combine_chunks()
        width = array.type.byte_width
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)[array.offset * width :][: len(self) * width]
        bits = np.unpackbits(data.reshape(len(self), width), axis=1, bitorder="little")
        return bits[:, : len(self.values)].astype(np.bool_)

    def rows(self) -> pa.Table:
        """Return the rows that a state has, in the order of their keys."""
        present = pa.array(self.changes == SET)
        return self.table.filter(present).drop_columns(list(OWN)).combine_chunks()

    def take(self, numbers: Numbers) -> Deltas:
        """Return some of the deltas."""
        return Deltas(self.key, self.table.take(pa.array(numbers)))

    def forget(self, sequence: int) -> Deltas:
        """Return a state without keys that were removed up to a sequence number: no older delta may arrive again."""
        return self.take(np.flatnonzero((self.changes != REMOVE) | (self.sequences > sequence)))


def no_deltas(schema: pa.Schema, key: Sequence[str]) -> Deltas:
    """Return no deltas of rows with these columns: also the state without any key."""
    return set_rows(schema.empty_table(), key, 0)


def set_rows(rows: pa.Table, key: Sequence[str], sequence: int | Numbers) -> Deltas:
    """Return a Set for each row."""
    return _deltas(rows, key, sequence, SET, np.ones((rows.num_rows, rows.num_columns - len(key)), np.bool_))


def patch_rows(rows: pa.Table, key: Sequence[str], sequence: int | Numbers, schema: pa.Schema) -> Deltas:
    """Return a Patch for each row: of all columns in `schema`, those that `rows` has get new values."""
    for name in rows.column_names:
        if name not in schema.names:
            message = f"patch: unknown column '{name}'"
            raise UnknownColumn(message, hint=choices("columns here", schema.names, name))
    values = [name for name in schema.names if name not in key]
    has = np.array([name in rows.column_names for name in values], np.bool_)
    bitmap = np.broadcast_to(has, (rows.num_rows, len(values)))
    return _deltas(_widened(rows, schema), key, sequence, PATCH, bitmap)


def remove_keys(keys: pa.Table, key: Sequence[str], sequence: int | Numbers, schema: pa.Schema) -> Deltas:
    """Return a Remove for each key."""
    bitmap = np.zeros((keys.num_rows, len(schema.names) - len(key)), np.bool_)
    return _deltas(_widened(keys.select(list(key)), schema), key, sequence, REMOVE, bitmap)


def concat(*batches: Deltas) -> Deltas:
    """Return all deltas of batches, one after the other."""
    if any(one.key != batches[0].key or not one.table.schema.equals(batches[0].table.schema) for one in batches):
        message = "deltas have different keys or columns"
        found = " and ".join(str(one.schema.names) for one in batches)
        raise BadSchema(message, hint=f"columns here: {found}")
    return Deltas(batches[0].key, pa.concat_tables([one.table for one in batches]).combine_chunks())


def compose(*batches: Deltas) -> Deltas:
    """Return one delta for each key that does what all of its deltas do, in the order of keys.

    Raises BadValue if the sequence numbers of a key do not increase.
    """
    whole = concat(*batches)
    keys = [canonical(whole.table.column(name)) for name in whole.key]
    groups = grouped(keys, len(whole))
    sequences = whole.sequences[groups.order]
    first = np.zeros(len(whole), np.bool_)
    first[groups.starts] = True
    if np.any((np.diff(sequences) <= 0) & ~first[1:]):
        message = "deltas: the sequence numbers of a key do not increase"
        raise BadValue(message, hint="pass the deltas of a key in order, and each of them once")
    return _composed(whole, groups, sequences)


def apply(deltas: Deltas, state: Deltas) -> Deltas:
    """Return a state with deltas applied, in the order of keys."""
    new = _not_yet_applied(deltas, state)
    after = compose(state, new)
    # A Patch that is left had no row to change.
    return after.take(np.flatnonzero(after.changes != PATCH))


def diff(old: Deltas, new: pa.Table, sequence: int | None = None) -> Deltas:
    """Return the deltas that turn the rows of a state into others: Set, Patch of what differs, Remove.

    Their sequence number is the given one, or the next one after those of the state.
    """
    sequence = int(old.sequences.max(initial=0)) + 1 if sequence is None else sequence
    before, key = old.rows(), old.key
    new = new.select(old.schema.names).cast(old.schema).combine_chunks()
    both = pa.concat_tables([before.select(list(key)), new.select(list(key))])
    groups = grouped([canonical(both.column(name)) for name in key], both.num_rows)
    numbers = groups.numbers
    count = len(groups.starts)
    if len(np.unique(numbers[before.num_rows :])) < new.num_rows:
        message = "diff: a key has several rows"
        raise BadValue(message, hint=f"the key is {', '.join(key)}")
    was, now = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    was[numbers[: before.num_rows]] = np.arange(before.num_rows)
    now[numbers[before.num_rows :]] = np.arange(new.num_rows)
    removed = remove_keys(before.take(pa.array(was[now < 0])), key, sequence, old.schema)
    added = set_rows(new.take(pa.array(now[was < 0])), key, sequence)
    stayed = (was >= 0) & (now >= 0)
    changed = _patches(old, before.take(pa.array(was[stayed])), new.take(pa.array(now[stayed])), sequence)
    return compose(removed, added, changed)


def _patches(old: Deltas, before: pa.Table, after: pa.Table, sequence: int) -> Deltas:
    differs = [_unlike(before.column(name), after.column(name)) for name in old.values]
    bitmap = np.column_stack(differs) if differs else np.zeros((after.num_rows, 0), np.bool_)
    changed = np.flatnonzero(bitmap.any(axis=1))
    return _deltas(after.take(pa.array(changed)), old.key, sequence, PATCH, bitmap[changed])


def _unlike(before: pa.ChunkedArray, after: pa.ChunkedArray) -> Bitmap:
    rows = len(before)
    numbers = grouped([canonical(pa.chunked_array([*before.chunks, *after.chunks], before.type))], 2 * rows).numbers
    return np.asarray(numbers[:rows] != numbers[rows:])


def _composed(whole: Deltas, groups: Groups, sequences: Numbers) -> Deltas:
    order, starts = groups.order, groups.starts
    if not len(order):
        return whole
    changes, patched = whole.changes[order], whole.patched[order]
    position = np.arange(len(order))
    base = np.maximum.reduceat(np.where(changes != PATCH, position, -1), starts)
    last = np.append(starts[1:], len(order)) - 1
    kind = np.where(base >= 0, changes[np.maximum(base, 0)], PATCH).astype(np.int8)
    # A Remove hides the patches after it; a Set or a Patch takes of each column the last value.
    from_base = np.repeat(np.where(kind == REMOVE, len(order), base), np.diff(np.append(starts, len(order))))
    columns: dict[str, pa.Array] = {}
    bitmap = np.zeros((len(starts), len(whole.values)), np.bool_)
    for number, name in enumerate(whole.values):
        given = np.where(patched[:, number] & (position >= from_base), position, -1)
        source = np.maximum.reduceat(given, starts)
        bitmap[:, number] = source >= 0
        columns[name] = _taken(whole.table.column(name), order[source], source < 0)
    for name in whole.key:
        columns[name] = whole.table.column(name).combine_chunks().take(pa.array(order[last]))
    rows = pa.Table.from_arrays([columns[name] for name in whole.schema.names], schema=whole.schema)
    return _deltas(rows, whole.key, sequences[last], kind, bitmap)


def _taken(column: pa.ChunkedArray, places: Numbers, missing: Bitmap) -> pa.Array:
    return column.combine_chunks().take(pa.array(places, mask=missing))


def _not_yet_applied(deltas: Deltas, state: Deltas) -> Deltas:
    """Return the deltas whose sequence numbers are above those of their keys, and of each number the first."""
    key_columns = [canonical(concat(state, deltas).table.column(name)) for name in state.key]
    numbers = grouped(key_columns, len(state) + len(deltas)).numbers
    known = np.full(int(numbers.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    known[numbers[: len(state)]] = state.sequences
    mine, sequences = numbers[len(state) :], deltas.sequences
    order = np.lexsort((np.arange(len(deltas)), mine))
    highest = _highest_before(sequences[order], mine[order], known)
    kept = np.zeros(len(deltas), np.bool_)
    kept[order] = sequences[order] > highest
    return deltas.take(np.flatnonzero(kept))


def _highest_before(sequences: Numbers, keys: Numbers, known: Numbers) -> Numbers:
    """Return for each delta, ordered by key, the highest sequence number before it, in the state or in the batch."""
    if not len(keys):
        return sequences
    previous = known[keys]
    same = np.append(False, keys[1:] == keys[:-1])
    previous[same] = np.maximum(previous, np.append(0, sequences[:-1]))[same]
    # A running maximum within each key: numbers of a later key are above all those of an earlier one.
    levels, ranks = np.unique(previous, return_inverse=True)
    running = np.maximum.accumulate(keys * len(levels) + ranks)
    return np.asarray(levels[running % len(levels)])


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=_nullable(schema))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _deltas(rows: pa.Table, key: Sequence[str], sequence: int | Numbers, change: Any, bitmap: Bitmap) -> Deltas:
    for name in key:
        if name not in rows.column_names:
            message = f"deltas: unknown column '{name}' in the key"
            raise UnknownColumn(message, hint=choices("columns here", rows.column_names, name))
    count = rows.num_rows
    packed = np.packbits(bitmap, axis=1, bitorder="little") if bitmap.shape[1] else np.zeros((count, 1), np.uint8)
    width = packed.shape[1]
    own = [
        pa.array(np.broadcast_to(np.asarray(sequence, np.int64), count)),
        pa.array(np.broadcast_to(np.asarray(change, np.int8), count)),
        pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(np.ascontiguousarray(packed))]),
    ]
    arrays = [*(column for column in rows.columns), *own]
    fields = [*_nullable(rows.schema), *(pa.field(name, array.type) for name, array in zip(OWN, own, strict=True))]
    return Deltas(tuple(key), pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
