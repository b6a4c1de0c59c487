"""Spark's `xxhash64` over Arrow columns, equal to the bit: a key has the same bucket wherever it is computed.

The hash is XXH64 of a value's bytes. Each column takes the hash of those before it as its seed, the first one 42; a
null leaves the hash as it is. Texts of all lengths are hashed together: a round takes 8, 4 or 1 bytes of every text
that still has as many. The types are those of `penstock.plan.translation.KEY_TYPES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
# Texts of this length and more are first hashed by stripes of four words.
_STRIPE = 32
_ALL = (1 << 64) - 1
_LANES = np.array([(int(_P1) + int(_P2)) & _ALL, int(_P2), 0, -int(_P1) & _ALL], np.uint64)


def key_hashes(columns: Sequence[pa.Array]) -> Numbers:
    """Return the hash of each row, as Spark's `xxhash64` of the columns.

    >>> key_hashes([pa.array(["a", None]), pa.array([1, None])]).tolist()
    [-7130307103867563693, 42]
    """
    hashes = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        if not column.null_count:
            hashes = _hashed(column, hashes)
            continue
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        hashes[rows] = _hashed(column.drop_null(), hashes[rows])
    return hashes.view(np.int64)


def _hashed(column: pa.Array, seeds: Hashes) -> Hashes:
    kind = column.type
    if not len(column):
        return seeds
    if pa.types.is_string(kind):
        return _of_texts(column, seeds)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _of_longs(column.cast(pa.int64()).to_numpy().view(np.uint64), seeds)
    return _of_ints(column.cast(pa.int32()).to_numpy().view(np.uint32).astype(np.uint64), seeds)


def _of_ints(values: Hashes, seeds: Hashes) -> Hashes:
    return _finished(_with_int(seeds + np.uint64(int(_P5) + 4), values))


def _of_longs(values: Hashes, seeds: Hashes) -> Hashes:
    return _finished(_with_word(seeds + np.uint64(int(_P5) + 8), values))


def _of_texts(column: pa.StringArray, seeds: Hashes) -> Hashes:
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return _of_bytes(content, edges[:-1], np.diff(edges), seeds)


def _of_bytes(content: Bytes, starts: Numbers, lengths: Numbers, seeds: Hashes) -> Hashes:
    hashes = seeds + _P5
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        hashes[long] = _of_stripes(content, starts[long], lengths[long] // _STRIPE, seeds[long])
    hashes += lengths.view(np.uint64)
    ends = starts + lengths
    starts = ends - lengths % _STRIPE
    for size, rounds, step in ((8, 3, _with_word), (4, 1, _with_int), (1, 3, _with_byte)):
        for _ in range(rounds):
            rows = np.flatnonzero(ends - starts >= size)
            if not len(rows):
                break
            hashes[rows] = step(hashes[rows], _words(content, starts[rows], size))
            starts[rows] += size
    return _finished(hashes)


def _of_stripes(content: Bytes, starts: Numbers, stripes: Numbers, seeds: Hashes) -> Hashes:
    """Hash the stripes of texts, longest first: the texts that still have one are the first so many."""
    order = np.argsort(-stripes, kind="stable")
    starts, stripes = starts[order], stripes[order]
    lanes = seeds[order][:, None] + _LANES
    for number in range(int(stripes[0])):
        some = int(np.searchsorted(-stripes, -number))
        words = [_words(content, starts[:some] + (number * _STRIPE + place), 8) for place in (0, 8, 16, 24)]
        lanes[:some] = _mixed(lanes[:some] + np.stack(words, axis=1) * _P2)
    a, b, c, d = lanes.T
    merged = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
    for lane in (a, b, c, d):
        merged = (merged ^ _mixed(lane * _P2)) * _P1 + _P4
    hashes = np.empty_like(merged)
    hashes[order] = merged
    return hashes


def _words(content: Bytes, starts: Numbers, size: int) -> Hashes:
    """Return the little-endian numbers of so many bytes that start there."""
    if size == 1:
        return content[starts].astype(np.uint64)
    # A view of the number at every byte: none of them need be aligned.
    view: npt.NDArray[Any] = np.ndarray((len(content) - size + 1,), f"<u{size}", content, strides=(1,))
    return view[starts].astype(np.uint64)


def _with_word(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes ^ _mixed(words * _P2), 27) * _P1 + _P4


def _with_int(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes ^ (words * _P1), 23) * _P2 + _P3


def _with_byte(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes ^ (words * _P5), 11) * _P1


def _mixed(words: Hashes) -> Hashes:
    return _rotated(words, 31) * _P1


def _rotated(words: Hashes, by: int) -> Hashes:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _finished(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
