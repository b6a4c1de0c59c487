"""The state of a process function in a bucket: the key of each entry, as JSON, and its pickled values and timers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.keyed.store.groups import StateRows

SCHEMA = pa.schema([("key", pa.string()), ("data", pa.binary())])
# The hash of the key, the key, the pickle, the next timers of event and processing time, and when all of it expires.
Entry = tuple[int, str, bytes, int, int, int]


class KeyStates:
    """The entries of the keys that an invocation touches."""

    def __init__(self, tables: tuple[pa.Table, ...] | None) -> None:
        table = SCHEMA.empty_table() if tables is None else tables[0]
        self._keys, self._data = (table.column(name).combine_chunks() for name in SCHEMA.names)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, keys: Sequence[str]) -> list[int | None]:
        """Return the position of each key, or None."""
        if not keys or not len(self._keys):
            return [None] * len(keys)
        found: list[int | None] = pc.index_in(pa.array(keys, pa.string()), value_set=self._keys).to_pylist()
        return found

    def key(self, position: int) -> str:
        """Return the key at a position."""
        found: str = self._keys[position].as_py()
        return found

    def data(self, position: int) -> Any:
        """Return the pickle at a position."""
        return self._data[position].as_buffer()


def entry_rows(entries: Sequence[Entry]) -> StateRows:
    """Return entries as rows of state."""
    hashes, keys, data, *times = zip(*entries, strict=True) if entries else ((),) * 6
    table = pa.Table.from_arrays([pa.array(keys, pa.string()), pa.array(data, pa.binary())], schema=SCHEMA)
    return StateRows(table, np.array(hashes, np.int64), *(np.array(one, np.int64) for one in times))
