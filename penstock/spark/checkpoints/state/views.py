"""The contents of views in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import WEIGHT
from penstock.incremental.circuit.row_identity import keys_of
from penstock.incremental.view_contents import CONTENTS
from penstock.keyed.store.bucket_store import BucketStore, RunSettings
from penstock.keyed.store.run_folder import RunFolder
from penstock.keyed.store.store_set import StoreSet
from penstock.spark.checkpoints.state.tables import Row
from penstock.storage.folders import Folder


def view_rows(state: bytes, runs: Folder, keys: list[str], key: str | None) -> Iterator[Row]:
    """Yield the rows of a view in one bucket; with `key`, as a user writes it, only those that it may be."""
    for row in contents(state, runs, keys, key).to_pylist():
        weight = row.pop(WEIGHT)
        yield from (row for _ in range(weight))


def contents(state: bytes, runs: Folder, keys: list[str], key: str | None) -> pa.Table:
    """Return the rows of a view in one bucket, with their weights."""
    manifest = StoreSet.of(state).get(CONTENTS).manifest
    folder = RunFolder(runs / str(manifest.bucket) / str(CONTENTS))
    store = BucketStore(manifest, RunSettings(folder, 0, verify=key is None))
    wanted = None if key is None else _hash(store, keys, key)
    tables = store.everything().tables if wanted is None else store.read(wanted).tables
    return tables[0] if tables else pa.table({WEIGHT: pa.array([], pa.int64())})


def _hash(store: BucketStore, keys: list[str], key: str) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Return the hash of a key that is given as text; None if that cannot be a value of its columns."""
    texts = key.split(",") if len(keys) > 1 else [key]
    tables = store.manifest.tail.tables
    if not tables or len(texts) != len(keys):
        return None
    types = [tables[0].schema.field(name).type for name in keys]
    try:
        values = [pa.array([text]).cast(kind) for text, kind in zip(texts, types, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return keys_of(values, 1).hashes()
