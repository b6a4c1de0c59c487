"""Several stores in one bucket: each has rows of its own shape, and those that are not used stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CheckpointDamaged
from penstock.keyed.store.bucket_store import BucketStore, RunSettings
from penstock.keyed.store.groups import StateRows
from penstock.keyed.store.run_folder import RunFolder
from penstock.keyed.store.store_set import StoreSet
from penstock.storage.folders import LocalFolder


def settings(folder: Path, tail_bytes: int = 1) -> RunSettings:
    return RunSettings(RunFolder(LocalFolder(folder)), retention=2, tail_bytes=tail_bytes)


def put(stores: StoreSet, number: int, rows: pa.Table, hashes: list[int]) -> None:
    store, found = stores.get(number), np.array(hashes, np.int64)
    stores.put(number, store.replaced(store.read(found), [StateRows(rows, found[: rows.num_rows])]))


def content(store: BucketStore) -> list[dict[str, object]]:
    groups = store.everything()
    rows: list[dict[str, object]] = groups.tables[0].to_pylist() if groups.tables else []
    return rows


@pytest.mark.parametrize("tail_bytes", [1, 1 << 20])
def test_stores_of_several_shapes_are_written_and_read_again(tmp_path: Path, tail_bytes: int) -> None:
    state = None
    for epoch in range(12):
        stores = StoreSet.of(state, settings(tmp_path, tail_bytes), 2)
        put(stores, 0, pa.table({"a": [epoch]}), [epoch % 3])
        if epoch % 4 == 0:
            put(stores, 7, pa.table({"b": [f"text {epoch}"], "c": [1.5]}), [5])
        state = stores.finished(epoch)
    again = StoreSet.of(state, settings(tmp_path, tail_bytes), 2)
    assert again.numbers == [0, 7]
    assert sorted(row["a"] for row in content(again.get(0))) == [9, 10, 11]
    assert content(again.get(7)) == [{"b": "text 8", "c": 1.5}]
    assert content(again.get(3)) == []


def test_nothing_is_stored_of_nothing(tmp_path: Path) -> None:
    stores = StoreSet.of(None, settings(tmp_path, 1 << 20))
    put(stores, 1, pa.table({"a": [1]}), [4])
    state = stores.finished(0)
    assert state is not None
    stores = StoreSet.of(state, settings(tmp_path, 1 << 20))
    put(stores, 1, pa.table({"a": pa.array([], pa.int64())}), [4])
    assert stores.finished(1) is None


def test_the_state_of_another_operator_is_refused() -> None:
    store = BucketStore.of(None)
    made = store.replaced(store.read(np.array([1])), [StateRows(pa.table({"a": [1]}), np.array([1]))]).finished(0)
    with pytest.raises(CheckpointDamaged, match="not the state of a view"):
        StoreSet.of(made)
