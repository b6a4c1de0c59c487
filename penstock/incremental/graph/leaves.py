"""A leaf: values that are set from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.errors import BadValue
from penstock.incremental.graph.cells import Cells, Change, Cutoff, Mask
from penstock.incremental.graph.key_index import Array, KeyIndex, Slots, as_keys, grown
from penstock.incremental.graph.nodes import Node


class Leaf(Node):
    """Values by key that `Graph.set` and `Graph.remove` change; they are seen from the next stabilization on."""

    kind = "leaf"

    def __init__(self, name: str, dtype: np.dtype[Any], index: KeyIndex, cutoff: Cutoff | None) -> None:
        super().__init__(name, (), index)
        self.cells = Cells(index, dtype, cutoff)
        self._pending: list[tuple[Slots, Array | None]] = []
        self._places = np.zeros(0, np.int64)

    @property
    def dirty(self) -> bool:
        """Whether something was set since the last stabilization."""
        return bool(self._pending)

    @property
    def detail(self) -> str:
        """The type of its values."""
        return str(self.cells.values.dtype)

    def set(self, keys: Any, values: Any) -> None:
        """Keep new values for the next stabilization."""
        known = as_keys(keys)
        new = self._values(values, len(known))
        if len(known):
            self._pending.append((self.cells.index.slots(known), new))

    def remove(self, keys: Any) -> None:
        """Keep for the next stabilization that keys have no value any more."""
        slots = self.cells.index.find(as_keys(keys))
        if (slots >= 0).any():
            self._pending.append((slots[slots >= 0], None))

    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Store what was set since the last time; of several values of a key the last one."""
        slots, new, now = self._merged()
        self._pending.clear()
        if _repeats(slots):
            kept = self._last(slots)
            slots, new, now = slots[kept], new[kept], None if now is None else now[kept]
        return self.settle(slots, new, now)

    def _last(self, slots: Slots) -> Slots:
        """Return where slots stand for the last time."""
        if len(self._places) < self.cells.index.size:
            self._places = grown(self._places, self.cells.index.size)
        numbers = np.arange(len(slots))
        self._places[slots] = numbers
        return np.flatnonzero(self._places[slots] == numbers)

    def _merged(self) -> tuple[Slots, Array, Mask | None]:
        if len(self._pending) == 1 and self._pending[0][1] is not None:
            return self._pending[0][0], self._pending[0][1], None
        nothing = self.cells.values.dtype
        values = [np.zeros(len(slots), nothing) if new is None else new for slots, new in self._pending]
        there = [np.full(len(slots), new is not None) for slots, new in self._pending]
        return np.concatenate([slots for slots, _ in self._pending]), np.concatenate(values), np.concatenate(there)

    def _values(self, given: Any, rows: int) -> Array:
        dtype = self.cells.values.dtype
        if isinstance(given, Mapping):
            return self._records(given, rows)
        values = np.asarray(given)
        if not (dtype.kind in "OUS" or values.dtype == dtype or np.can_cast(values.dtype, dtype, "same_kind")):
            message = f"values are {dtype}, and these are {values.dtype}"
            raise BadValue(message, node=self.title, hint=f"such as {values.ravel()[:3].tolist()}; convert them first")
        values = values.copy() if dtype.kind in "US" and values.dtype.kind == dtype.kind else values.astype(dtype)
        if values.ndim == 0:
            return np.full(rows, values)
        if len(values) != rows:
            message = f"{rows} keys, and {len(values)} values"
            raise BadValue(message, node=self.title, hint="pass one value for each key, or one value for all")
        return values

    def _records(self, given: Mapping[str, Any], rows: int) -> Array:
        dtype = self.cells.values.dtype
        if set(given) != set(dtype.names or ()):
            message = f"got the fields {', '.join(given)}"
            raise BadValue(message, node=self.title, hint=f"its fields are {', '.join(dtype.names or ('(none)',))}")
        records = np.empty(rows, dtype)
        for name, values in given.items():
            column = np.asarray(values)
            if column.ndim and len(column) != rows:
                message = f"{rows} keys, and {len(column)} values of '{name}'"
                raise BadValue(message, node=self.title, hint="pass one value for each key")
            records[name] = column
        return records


def _repeats(slots: Slots) -> bool:
    ordered = np.sort(slots)
    return bool((ordered[1:] == ordered[:-1]).any())
