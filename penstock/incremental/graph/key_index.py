"""Keys as small numbers, their slots: a hash table in NumPy arrays that looks up a whole array of keys at once.

Keys are integers, strings, or anything that can be in a dictionary; an index has one kind of them. The slot of a key is
the position at which nodes have its value. Slots are given in the order in which keys are first seen.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import BadValue

Slots = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
INTEGERS, TEXTS, OBJECTS = "integers", "strings", "objects"
# Of the table at most a quarter is used, so that nearly all keys are found at the first try.
_SPARE = 4
_FIRST_BITS = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(29)


class KeyIndex:
    """The slots of keys."""

    def __init__(self) -> None:
        self.kind: str | None = None
        self.size = 0
        self._keys: Array = np.empty(0, np.int64)
        self._table = np.empty(0, np.int32)
        self._shift = np.uint64(0)
        self._slots: dict[Any, int] = {}

    def keys(self, slots: Slots) -> Array:
        """Return the keys of slots."""
        return np.asarray(self._keys[slots])

    def slots(self, keys: Array) -> Slots:
        """Return the slots of keys from `as_keys`; a new key gets one."""
        if not len(keys):
            return np.empty(0, np.int64)
        keys = self._fitted(keys)
        if self.kind == OBJECTS:
            return self._object_slots(keys)
        hashes = self._hashes(keys)
        found = self._find(keys, hashes)
        missing = found < 0
        if missing.any():
            self._insert(keys[missing])
            hashes = self._hashes(keys)
            found = self._find(keys, hashes)
        return found

    def find(self, keys: Array) -> Slots:
        """Return the slots of keys, -1 for those that have none."""
        if self.kind is None or not len(keys):
            return np.full(len(keys), -1, np.int64)
        keys = self._fitted(keys)
        if self.kind == OBJECTS:
            return np.fromiter((self._slots.get(key, -1) for key in keys.tolist()), np.int64, len(keys))
        return self._find(keys, self._hashes(keys))

    def _find(self, keys: Array, hashes: npt.NDArray[np.uint64]) -> Slots:
        if not self.size:
            return np.full(len(keys), -1, np.int64)
        places = (hashes >> self._shift).view(np.int64)
        found = self._table.take(places)
        wrong = np.flatnonzero((self._keys.take(found) != keys) & (found >= 0))
        last = len(self._table) - 1
        while len(wrong):
            places[wrong] = tried = (places[wrong] + 1) & last
            found[wrong] = now = self._table.take(tried)
            wrong = wrong[(self._keys.take(now) != keys[wrong]) & (now >= 0)]
        return found.astype(np.int64)

    def _insert(self, keys: Array) -> None:
        _, first = np.unique(keys, return_index=True)
        new = keys[np.sort(first)]
        start, self.size = self.size, self.size + len(new)
        if self.size > len(self._keys):
            self._keys = grown(self._keys, self.size)
        self._keys[start : self.size] = new
        if self.size * _SPARE > len(self._table):
            self._rehash()
        else:
            self._place(np.arange(start, self.size, dtype=np.int32))

    def _rehash(self) -> None:
        bits = max(_FIRST_BITS, int(2 * self.size * _SPARE - 1).bit_length())
        self._table = np.full(1 << bits, -1, np.int32)
        self._shift = np.uint64(64 - bits)
        self._place(np.arange(self.size, dtype=np.int32))

    def _place(self, slots: npt.NDArray[np.int32]) -> None:
        places = (self._hashes(self._keys[slots]) >> self._shift).view(np.int64)
        last = len(self._table) - 1
        while len(slots):
            free = self._table[places] < 0
            # Of several keys that take the same place, one stays.
            self._table[places[free]] = slots[free]
            left = self._table[places] != slots
            slots, places = slots[left], (places[left] + 1) & last

    def _hashes(self, keys: Array) -> npt.NDArray[np.uint64]:
        if self.kind == INTEGERS:
            return np.asarray(keys.view(np.uint64) * _FACTOR)
        width = keys.dtype.itemsize // 8
        mixed = keys.view(np.uint64).reshape(len(keys), width) @ _factors(width)
        return np.asarray((mixed ^ (mixed >> _MIX)) * _FACTOR)

    def _fitted(self, keys: Array) -> Array:
        """Return keys in the type of this index, which takes the kind of the first ones."""
        kind = _kind_of(keys)
        if self.kind is None:
            self.kind = kind
            self._keys = np.empty(0, _stored(keys))
        if kind != self.kind:
            message = f"keys are {self.kind}, and these are {kind}"
            raise BadValue(message, hint=f"such as {keys[:3].tolist()}; a collection has keys of one kind")
        if kind == TEXTS and keys.dtype.itemsize > self._keys.dtype.itemsize:
            self._keys = self._keys.astype(_stored(keys))
            self._rehash()
        return np.ascontiguousarray(keys, self._keys.dtype)

    def _object_slots(self, keys: Array) -> Slots:
        found = np.empty(len(keys), np.int64)
        for number, key in enumerate(keys.tolist()):
            found[number] = self._slots.setdefault(key, len(self._slots))
        if len(self._slots) > self.size:
            if len(self._slots) > len(self._keys):
                self._keys = grown(self._keys, len(self._slots))
            new = list(self._slots)[self.size :]
            for number, key in enumerate(new, start=self.size):
                self._keys[number] = key
            self.size = len(self._slots)
        return found


@cache
def _factors(width: int) -> npt.NDArray[np.uint64]:
    """Return an odd number for each word of a string."""
    return np.random.Generator(np.random.PCG64(width)).integers(0, 2**64, width, np.uint64) | np.uint64(1)


def as_keys(given: Any) -> Array:
    """Return keys as an array of integers, strings or objects; one key alone is an array of one.

    >>> as_keys(["a", "b"]).dtype.kind, as_keys(7).tolist(), as_keys([("a", 1)]).dtype.kind
    ('U', [7], 'O')
    """
    if isinstance(given, pa.Array | pa.ChunkedArray):
        if given.null_count:
            message = "a key is null"
            raise BadValue(message, hint="filter those rows out")
        given = given.to_pylist() if not pa.types.is_integer(given.type) else given.to_numpy()
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuU":
        return _plain(np.atleast_1d(given))
    many = given if isinstance(given, list | np.ndarray | range) else [given]
    return _from_objects(many.tolist() if isinstance(many, np.ndarray) else list(many))


def _from_objects(keys: list[Any]) -> Array:
    kinds = set(map(type, keys))
    if kinds <= {int} and keys and min(keys) >= -(2**63) and max(keys) < 2**63:
        return np.array(keys, np.int64)
    if kinds == {str}:
        # An array of strings drops zeros at their ends.
        return _objects(keys) if any(key.endswith("\0") for key in keys) else np.array(keys)
    return _objects(keys) if keys else np.empty(0, np.int64)


def _objects(keys: list[Any]) -> Array:
    found = np.empty(len(keys), object)
    for number, key in enumerate(keys):
        # A dictionary finds the same NaN, and no other.
        found[number] = key if key == key else math.nan
    return found


def _plain(keys: Array) -> Array:
    if keys.dtype.kind == "U":
        return keys
    if keys.dtype.kind == "u" and keys.dtype.itemsize == 8 and len(keys) and keys.max() >= 2**63:
        return _objects(keys.tolist())
    return keys.astype(np.int64, copy=False)


def _kind_of(keys: Array) -> str:
    return {"U": TEXTS, "O": OBJECTS}.get(keys.dtype.kind, INTEGERS)


def _stored(keys: Array) -> np.dtype[Any]:
    if keys.dtype.kind != "U":
        return keys.dtype
    # Two characters are a word of the hash.
    characters = max(keys.dtype.itemsize // 4, 1)
    return np.dtype(f"U{characters + characters % 2}")


def grown(array: Array, size: int) -> Array:
    """Return an array with room for at least so many entries, half as many again as it had; new ones are zero."""
    room = np.zeros((max(size, len(array) + len(array) // 2, 16), *array.shape[1:]), array.dtype)
    room[: len(array)] = array
    return room
