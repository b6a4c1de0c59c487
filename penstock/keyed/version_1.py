"""State of version 1, in which the whole of a bucket was one value; it is read once, and written as version 2."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import CheckpointDamaged
from penstock.keyed.process_state import SCHEMA
from penstock.keyed.store.groups import ALWAYS, StateRows
from penstock.keyed.store.hashes import group_hashes
from penstock.values.arrow_stream import from_stream

_HEADER = b"\x01"
_PROCESS_HEADER = _HEADER.ljust(8, b"\0")
_TIMES = ("event_timer", "processing_timer", "expires")
_PROCESS_SCHEMA = pa.schema([*SCHEMA, *((name, pa.int64()) for name in _TIMES)])


def is_version_1(state: bytes) -> bool:
    """Return whether a bucket is in the older layout."""
    return state.startswith(_HEADER)


def decode_rows(state: bytes) -> pa.Table:
    """Return the rows of a bucket of deduplication or an as-of join."""
    return from_stream(_without(state, _HEADER))


def process_keys(state: bytes) -> pa.Table:
    """Return the keys and pickles of a bucket of a process function."""
    batch = pa.ipc.read_record_batch(_without(state, _PROCESS_HEADER), _PROCESS_SCHEMA)
    return pa.Table.from_batches([batch]).select(SCHEMA.names)


def process_rows(state: bytes, kinds: Sequence[pa.DataType]) -> StateRows:
    """Return a bucket of a process function, with these types of keys: all of it is due, so that it is seen once."""
    table = process_keys(state)
    keys = [pickle.loads(one.as_buffer())[0] for one in table.column("data")]
    columns = [pa.array([key[number] for key in keys], kind) for number, kind in enumerate(kinds)]
    return StateRows(table, group_hashes(columns, len(keys)), event=np.full(len(keys), ALWAYS))


def _without(state: bytes, header: bytes) -> pa.Buffer:
    if state[: len(header)] != header:
        message = f"state begins with {state[: len(header)]!r}, which this Penstock cannot read"
        raise CheckpointDamaged(message, hint="run the version of Penstock that wrote it")
    return pa.py_buffer(state).slice(len(header))
