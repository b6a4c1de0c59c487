"""State of many keys as bytes: only what is touched is read, and keys are kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged
from penstock.keyed.process_operator import ProcessOperator
from penstock.keyed.process_state import KeyStates
from penstock.keyed.store.bucket_store import BucketStore
from penstock.testing import ProcessTester
from tests.keyed.test_process import Forgetful


def test_only_keys_that_are_touched_are_unpickled() -> None:
    operator = ProcessOperator(Forgetful(), ("k",), ("k", "n"), None, rejects=False, label="process")
    many = pa.table({"k": [f"key {i}" for i in range(500)], "n": list(range(500))})
    state = operator.run(many, BucketStore.of(None), 0, 1).store.finished(0)
    assert state is not None
    keys = KeyStates(BucketStore.of(state).everything().tables)
    assert keys.find(["key 7"]) == [None], "keys are told apart by their values as JSON"
    (place,) = keys.find(['["key 7"]'])
    assert place is not None
    damaged = state.replace(keys.data(place).to_pybytes(), b"?" * keys.data(place).size)
    assert damaged != state
    result = operator.run(pa.table({"k": ["key 8"], "n": [1]}), BucketStore.of(damaged), 0, 2)
    assert result.tables["main"][0].to_pylist() == [{"k": "key 8", "before": 8}]


def test_keys_of_several_columns_and_nulls_are_kept_apart() -> None:
    class Pair(ps.Process):
        output = "a string, b bigint, n bigint"
        n = ps.state.value(int)

        def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
            self.n.set(self.n.get(0) + 1)
            yield {**ctx.key, "n": self.n.get()}

    t = ProcessTester(Pair(), key=("a", "b"))
    keys = [("x", 1), ("x", None), (None, 1), ("x", 1), (None, None), (None, 1)]
    for _ in range(2):
        t.send(*({"a": a, "b": b} for a, b in keys))
    assert t.state("x", 1) == t.state(None, 1) == {"n": 4}
    assert t.state("x", None) == t.state(None, None) == {"n": 2}


def test_state_in_another_version_of_its_format_is_refused() -> None:
    with pytest.raises(CheckpointDamaged, match="cannot read"):
        BucketStore.of(b"\x01.......")
