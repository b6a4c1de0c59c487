"""The values of a node, an array with a position for each slot, and what changes in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import BadFunction
from penstock.incremental.graph.key_index import Array, KeyIndex, Slots, grown

Mask = npt.NDArray[np.bool_]
# Gets the old and the new values; where it is true, dependents do not see the new ones.
Cutoff = Callable[[Array, Array], Any]
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}
_WIDENED = "iufUS"


@dataclass(frozen=True)
class Change:
    """What changed in a node: slots, each once, with values before and after; a mask of None stands for all of them."""

    slots: Slots
    old: Array
    new: Array
    was: Mask | None = None
    now: Mask | None = None

    @property
    def removed(self) -> Slots:
        """The slots that have no value any more."""
        return self.slots[:0] if self.now is None else self.slots[~self.now]

    @property
    def stayed(self) -> bool:
        """Whether all slots had a value and have one."""
        return self.was is None and self.now is None

    def before(self) -> tuple[Slots, Array]:
        """Return the slots that had a value, and these values."""
        return (self.slots, self.old) if self.was is None else (self.slots[self.was], self.old[self.was])

    def after(self) -> tuple[Slots, Array]:
        """Return the slots that have a value now, and these values."""
        return (self.slots, self.new) if self.now is None else (self.slots[self.now], self.new[self.now])


class Cells:
    """The values of a node. Invariant: `count` positions of `present` are true, all of them below `index.size`."""

    def __init__(self, index: KeyIndex, dtype: np.dtype[Any] | None = None, cutoff: Cutoff | None = None) -> None:
        self.index = index
        self.declared = dtype is not None
        self.values: Array = np.zeros(0, dtype if dtype is not None else np.float64)
        self.present: Mask = np.zeros(0, np.bool_)
        self.count = 0
        self._typed = self.declared
        self._same = cutoff or same
        self._custom = cutoff is not None

    def clear(self) -> None:
        """Forget all values."""
        self.present[:] = False
        self.count = 0

    def slots(self) -> Slots:
        """Return the slots that have a value."""
        return np.flatnonzero(self.present[: self.index.size])

    def taken(self, slots: Slots) -> tuple[Array, Mask | None]:
        """Return the values of slots, and which have one."""
        self._grow()
        there = None if self.count == self.index.size else self.present.take(slots)
        return self.values.take(slots, axis=0), there

    def everything(self) -> Change | None:
        """Return all values as a change from nothing; None if there are none."""
        self._grow()
        slots = self.slots()
        if not len(slots):
            return None
        values = self.values.take(slots, axis=0)
        return Change(slots, values, values, was=np.zeros(len(slots), np.bool_))

    def settle(self, slots: Slots, new: Array, now: Mask | None = None) -> Change | None:
        """Store values, and return what has really changed; None if nothing has."""
        new = self._fitted(new)
        old, was = self.taken(slots)
        if was is not None and was.all():
            was = None
        if now is not None and now.all():
            now = None
        differs = ~self._compared(old, new, was, now)
        if not differs.all():
            slots, old, new = slots[differs], old[differs], new[differs]
            was, now = (None if mask is None else mask[differs] for mask in (was, now))
        if not len(slots):
            return None
        self.values[slots] = new
        if was is not None or now is not None:
            self.present[slots] = True if now is None else now
            after = len(slots) if now is None else int(np.count_nonzero(now))
            self.count += after - (len(slots) if was is None else int(np.count_nonzero(was)))
        return Change(slots, old, new, was, now)

    def _compared(self, old: Array, new: Array, was: Mask | None, now: Mask | None) -> Mask:
        if was is None and now is None:
            return np.asarray(self._same(old, new), np.bool_)
        before = np.ones(len(old), np.bool_) if was is None else was
        after = np.ones(len(old), np.bool_) if now is None else now
        alike = before & after
        if alike.any():
            alike[alike] = self._same(old[alike], new[alike])
        return np.asarray(alike | ~(before | after))

    def _fitted(self, new: Array) -> Array:
        """Return values in the type of this node, which widens with what it gets, unless it was declared."""
        if not self._typed:
            self.values, self._typed = np.zeros((0, *new.shape[1:]), new.dtype), True
        own = self.values.dtype
        if new.dtype == own:
            return new
        texts = own.kind in "US" and new.dtype.kind == own.kind
        if texts or (not self.declared and new.dtype.kind == own.kind and own.kind in _WIDENED):
            wide = np.promote_types(new.dtype, own)
            self.values = self.values.astype(wide, copy=False)
            return new.astype(wide, copy=False)
        if np.can_cast(new.dtype, own, "same_kind"):
            return new.astype(own)
        message = f"values are {own}, and these are {new.dtype}"
        raise BadFunction(message, hint="return arrays of one type, or convert them: values.astype(float)")

    def _grow(self) -> None:
        if len(self.present) < self.index.size:
            self.present = grown(self.present, self.index.size)
        if len(self.values) < len(self.present):
            room = np.zeros((len(self.present), *self.values.shape[1:]), self.values.dtype)
            room[: len(self.values)] = self.values
            self.values = room


def same(old: Array, new: Array) -> Mask:
    """Return where values are equal: floats if they have the same bits, so NaN equals NaN, and 0.0 is not -0.0.

    >>> same(np.array([1.0, np.nan, 0.0]), np.array([1.0, np.nan, -0.0])).tolist()
    [True, True, False]
    """
    if old.dtype.names:
        fields = [same(old[name], new[name]) for name in old.dtype.names]
        return np.asarray(np.logical_and.reduce(fields))
    if old.dtype.kind == "f" and old.dtype.itemsize in _BITS:
        bits = _BITS[old.dtype.itemsize]
        equal = old.view(bits) == new.view(bits)
    else:
        equal = np.asarray(old == new, np.bool_)
    return np.asarray(equal.all(axis=tuple(range(1, equal.ndim))) if equal.ndim > 1 else equal)
