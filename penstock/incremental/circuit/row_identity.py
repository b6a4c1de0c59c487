"""When rows are equal: hashes of rows, and their groups. Null equals null, NaN equals NaN, and -0.0 equals 0.0.

Hashes of 64 bits find equal rows; whether those of one hash are equal is then verified, so that results never depend on
a collision.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.native.key_hash import key_hashes

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
_P1, _P2, _SEED, _NULL = (
    np.uint64(number) for number in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
)
_NAN = np.float64("nan").view(np.uint64)


@dataclass(frozen=True)
class _Column:
    """A column as words of 64 bits, and which rows are null; `texts` is compared beside words that are hashes."""

    words: tuple[Words, ...]
    nulls: Flags | None
    texts: pa.Array | None = None

    def same(self, a: Numbers, other: _Column, b: Numbers) -> Flags:
        found: Flags = np.ones(len(a), bool)
        for word, beside in zip(self.words, other.words, strict=True):
            found &= word[a] == beside[b]
        if self.nulls is not None or other.nulls is not None:
            found &= _flags(self.nulls, a) == _flags(other.nulls, b)
        if self.texts is not None and other.texts is not None and len(a):
            equal = pc.equal(self.texts.take(pa.array(a)), other.texts.take(pa.array(b)))
            found &= pc.fill_null(equal, True).to_numpy(zero_copy_only=False)
        return found

    def taken(self, rows: Numbers) -> _Column:
        nulls = None if self.nulls is None else self.nulls[rows]
        texts = None if self.texts is None else self.texts.take(pa.array(rows))
        return _Column(tuple(word[rows] for word in self.words), nulls, texts)


@dataclass(frozen=True)
class Keys:
    """Some columns of rows, in a form in which rows are compared."""

    columns: tuple[_Column, ...]
    rows: int

    def hashes(self) -> Numbers:
        """Return the hash of each row."""
        hashes = np.full(self.rows, _SEED, np.uint64)
        for column in self.columns:
            for word in column.words:
                hashes = (hashes ^ word) * _P1
                hashes = (hashes ^ (hashes >> np.uint64(29))) * _P2
                hashes ^= hashes >> np.uint64(32)
        return hashes.view(np.int64)

    def same(self, a: Numbers, other: Keys, b: Numbers) -> Flags:
        """Say which rows at positions `a` equal those of other keys at `b`."""
        found: Flags = np.ones(len(a), bool)
        for column, beside in zip(self.columns, other.columns, strict=True):
            found &= column.same(a, beside, b)
        return found

    def taken(self, rows: Numbers) -> Keys:
        """Return some rows."""
        return Keys(tuple(column.taken(rows) for column in self.columns), len(rows))

    def has_null(self) -> Flags:
        """Say which rows have a null."""
        found: Flags = np.zeros(self.rows, bool)
        for column in self.columns:
            if column.nulls is not None:
                found |= column.nulls
        return found


def keys_of(columns: Iterable[pa.Array | pa.ChunkedArray], rows: int) -> Keys:
    """Return columns in the form in which rows are compared."""
    return Keys(tuple(_column(_whole(column)) for column in columns), rows)


@dataclass(frozen=True)
class Grouping:
    """Groups of equal rows: the number of each row's group, and the first row of each group."""

    ids: Numbers
    firsts: Numbers

    def __len__(self) -> int:
        return len(self.firsts)

    def total(self, values: Numbers) -> Numbers:
        """Return the sum of whole numbers of each group's rows."""
        found = np.zeros(len(self.firsts), np.int64)
        np.add.at(found, self.ids, values)
        return found

    def lasts(self) -> Numbers:
        """Return the last row of each group."""
        found = np.zeros(len(self.firsts), np.int64)
        np.maximum.at(found, self.ids, np.arange(len(self.ids)))
        return found


def grouped(keys: Keys, hashes: Numbers) -> Grouping:
    """Return the groups of equal rows, in the order of their hashes, and of their values where hashes are the same.

    The order of two groups never depends on other rows.
    """
    if not len(keys.columns):
        # Without columns all rows are equal.
        return Grouping(np.zeros(keys.rows, np.int64), np.zeros(min(keys.rows, 1), np.int64))
    order = np.argsort(hashes)
    in_order = hashes[order]
    differs = np.ones(len(order), bool)
    np.not_equal(in_order[1:], in_order[:-1], out=differs[1:])
    starts = np.flatnonzero(differs)
    # Equal hashes are in any order; the first row of each is the smallest of their positions.
    firsts = np.minimum.reduceat(order, starts) if len(order) else order
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(differs) - 1
    if len(firsts) < len(ids):
        first_of = firsts[ids]
        again = np.flatnonzero(first_of != np.arange(len(ids)))
        if not keys.same(again, keys, first_of[again]).all():
            return _exactly(keys, ids)
    return Grouping(ids, firsts)


def _exactly(keys: Keys, ids: Numbers) -> Grouping:
    """Divide groups by hash, of which some have rows that are not equal, and keep their order."""
    for column in keys.columns:
        codes = [word.view(np.int64) for word in column.words] if column.texts is None else [_codes(column.texts)]
        for one in (*codes, *(() if column.nulls is None else (column.nulls.astype(np.int64),))):
            _, ids = np.unique(np.stack([ids, one]), axis=1, return_inverse=True)
            ids = ids.reshape(-1)
    _, firsts = np.unique(ids, return_index=True)
    return Grouping(ids, firsts)


def _flags(nulls: Flags | None, positions: Numbers) -> Flags:
    return np.zeros(len(positions), bool) if nulls is None else nulls[positions]


def _codes(texts: pa.Array) -> Numbers:
    """Return the places of texts in their order, so that groups do not depend on the order of rows."""
    coded = texts.dictionary_encode(null_encoding="encode")
    order = pc.sort_indices(coded.dictionary).to_numpy()
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    found: Numbers = places[coded.indices.to_numpy(zero_copy_only=False)]
    return found


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _column(column: pa.Array) -> _Column:
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    texts = _texts(column)
    if texts is not None:
        words: Sequence[Words] = (key_hashes([texts]).view(np.uint64),)
    else:
        words = _words(column)
    if nulls is not None:
        words = [np.where(nulls, _NULL, word) for word in words]
    return _Column(tuple(words), nulls, texts)


def _words(column: pa.Array) -> Sequence[Words]:
    kind = column.type
    if pa.types.is_null(kind):
        return (np.zeros(len(column), np.uint64),)
    if pa.types.is_decimal128(kind):
        pairs = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
        return pairs[0::2], pairs[1::2]
    if pa.types.is_floating(kind):
        values = _filled(column).astype(np.float64) + 0.0
        return (np.where(np.isnan(values), _NAN, values.view(np.uint64)),)
    if pa.types.is_boolean(kind):
        return (_filled(column).astype(np.uint64),)
    width = {32: pa.int32(), 64: pa.int64()}[kind.bit_width] if not pa.types.is_integer(kind) else kind
    return (_filled(column.view(width)).astype(np.int64).view(np.uint64),)


def _filled(column: pa.Array) -> npt.NDArray[np.generic]:
    """Return the values of a column; what a null has does not matter."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0).cast(column.type))
    found: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return found


def _texts(column: pa.Array) -> pa.Array | None:
    """Return a column of texts or bytes as texts, and one of lists or structs as JSON; None of other types."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind):
        return pa.StringArray.from_buffers(len(column), *column.buffers()[1:], column.buffers()[0], -1, column.offset)
    return json_texts(column) if pa.types.is_nested(kind) else None


def json_texts(column: pa.Array) -> pa.Array:
    """Return values as JSON."""
    texts = (json.dumps(one, separators=(",", ":"), default=str) for one in column.to_pylist())
    valid = column.is_valid().to_pylist()
    return pa.array([text if there else None for text, there in zip(texts, valid, strict=True)], pa.string())
