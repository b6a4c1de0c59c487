"""A node of the graph: a collection of values by key, computed from its inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadFunction
from penstock.incremental.deltas import Deltas, compose, remove_keys, set_rows
from penstock.incremental.graph.cells import Cells, Change, Cutoff
from penstock.incremental.graph.key_index import Array, KeyIndex, Slots, as_keys

Function = Callable[..., Any]


@dataclass
class Counters:
    """How many keys a node has recomputed, and how many of those were cut off, since it was created."""

    recomputed: int = 0
    cut_off: int = 0


@dataclass(frozen=True)
class Changes:
    """What a stabilization changed in a node: keys with their new values, and keys that have none any more."""

    keys: list[Any]
    values: list[Any]
    removed: list[Any]


class Node(ABC):
    """A collection of values by key. Invariant: its height is above that of all of its inputs."""

    kind = ""

    def __init__(self, name: str, inputs: Sequence[Node], index: KeyIndex, cutoff: Cutoff | None = None) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.height: int = 1 + max((one.height for one in inputs), default=-1)
        self.cells = Cells(index, cutoff=cutoff)
        self.counters = Counters()
        self.change: Change | None = None
        # Its values are to be computed from all values of its inputs.
        self.fresh = bool(inputs)

    @abstractmethod
    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Follow the changes of the inputs; return what changed here."""

    def reset(self) -> None:
        """Forget everything that is computed."""
        self.cells.clear()
        self.fresh = bool(self.inputs)

    @property
    def detail(self) -> str:
        """What it computes, for drawings."""
        return ""

    def __len__(self) -> int:
        """Return how many keys have a value."""
        return self.cells.count

    def __repr__(self) -> str:
        return f"<{self.kind} '{self.name}', {len(self)} keys>"

    def keys(self) -> Array:
        """Return the keys, in the order in which they were first seen."""
        return self.cells.index.keys(self.cells.slots())

    def values(self) -> Array:
        """Return the values, in the order of the keys."""
        return np.asarray(self.cells.taken(self.cells.slots())[0])

    def to_dict(self) -> dict[Any, Any]:
        """Return keys and values as Python objects."""
        return dict(zip(self.keys().tolist(), self.values().tolist(), strict=True))

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, as NumPy has it."""
        slots = self.cells.index.find(as_keys([key]))
        values, there = self.cells.taken(np.maximum(slots, 0)) if self.cells.index.size else (None, None)
        if values is None or slots[0] < 0 or (there is not None and not there[0]):
            return default
        return values[0]

    @property
    def value(self) -> Any:
        """The value of a fold over everything; None as long as there is nothing to fold."""
        return self.get(None)

    def changes(self) -> Changes:
        """Return what the last stabilization changed."""
        if self.change is None:
            return Changes([], [], [])
        slots, values = self.change.after()
        keys = self.cells.index.keys
        return Changes(keys(slots).tolist(), values.tolist(), keys(self.change.removed).tolist())

    def deltas(self, sequence: int, key: str = "key", value: str = "value") -> Deltas:
        """Return what the last stabilization changed as deltas: a Set for each new value, and Removes.

        A value that is a record gives a column for each of its fields.
        """
        change = self.change or Change(self.cells.slots()[:0], self.cells.values[:0], self.cells.values[:0])
        rows = self._rows(*change.after(), key, value)
        gone = self.cells.index.keys(change.removed).tolist()
        keys = pa.table({key: pa.array(gone, rows.schema.field(key).type)})
        return compose(set_rows(rows, [key], sequence), remove_keys(keys, [key], sequence, rows.schema))

    def _rows(self, slots: Slots, values: Array, key: str, value: str) -> pa.Table:
        index = self.cells.index
        sample = pa.array(index.keys(np.arange(min(index.size, 1))).tolist())
        columns = {key: pa.array(index.keys(slots).tolist(), sample.type)}
        for name in values.dtype.names or (value,):
            column = values[name] if values.dtype.names else values
            columns[name] = pa.array(list(column)) if column.ndim > 1 else pa.array(column)
        return pa.table(columns)

    def settle(self, slots: Slots, new: Array, now: Any = None) -> Change | None:
        """Store recomputed values; return what changed, and count."""
        self.counters.recomputed += len(slots)
        try:
            change = self.cells.settle(slots, new, now)
        except BadFunction as error:
            error.node = self.title
            raise
        self.counters.cut_off += len(slots) - (0 if change is None else len(change.slots))
        return change

    def call(self, function: Function, rows: int, *arguments: Array) -> Array:
        """Call a function of the user on arrays, and check what it returns."""
        found = np.asarray(function(*arguments))
        if found.ndim == 0 or len(found) != rows:
            shape = "one value" if found.ndim == 0 else f"{len(found)} values"
            message = f"the function got {rows} values and returned {shape}"
            raise BadFunction(
                message, node=self.title, hint="it gets NumPy arrays, and returns an array of that length"
            )
        return found

    def spread(self, change: Change, function: Function) -> tuple[Array, Any]:
        """Return the function's results for the slots that have a value, and which they are."""
        slots, values = change.after()
        if not len(slots):
            return np.zeros((len(change.slots), *self.cells.values.shape[1:]), self.cells.values.dtype), change.now
        found = self.call(function, len(values), values)
        return (found, None) if change.now is None else (scattered(found, change.now), change.now)

    @property
    def title(self) -> str:
        """Kind and name, for errors."""
        return f"{self.kind} '{self.name}'"


def scattered(found: Array, there: Any) -> Array:
    """Return results at the positions where a mask is true, and zeros elsewhere."""
    room = np.zeros((len(there), *found.shape[1:]), found.dtype)
    room[there] = found
    return room
