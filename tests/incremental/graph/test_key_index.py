"""The index of keys against a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadValue
from penstock.incremental.graph.key_index import KeyIndex, as_keys
from tests.incremental.edge_values import law

KEYS: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, 30),
    st.text(max_size=9).filter(lambda text: not text.endswith("\0")),
    st.tuples(st.integers(0, 3), st.text(max_size=2)),
]


@law
@given(st.data(), st.sampled_from(KEYS))
def test_slots_are_those_of_a_dictionary(data: st.DataObject, keys: st.SearchStrategy[Any]) -> None:
    index, model = KeyIndex(), {}
    for batch in data.draw(st.lists(st.lists(keys, max_size=40), max_size=6)):
        found = index.slots(as_keys(batch))
        for key in batch:
            model.setdefault(key, len(model))
        # New keys of a batch get their slots in order, so a model that looks at one after the other has the same.
        assert found.tolist() == [model[key] for key in batch]
        assert index.keys(found).tolist() == batch
        assert index.size == len(model)
    assert index.find(as_keys(list(model))).tolist() == list(model.values())


def test_many_keys_are_all_found() -> None:
    index = KeyIndex()
    keys = np.random.default_rng(1).permutation(200_000) * 1024
    assert index.slots(keys[:10]).tolist() == list(range(10))
    assert np.array_equal(index.slots(keys), np.arange(200_000))
    assert (index.find(keys + 1) == -1).all()


def test_longer_strings_widen_the_index() -> None:
    index = KeyIndex()
    assert index.slots(as_keys(["a", ""])).tolist() == [0, 1]
    assert index.slots(as_keys(["abcdefghi", "a", "abc"])).tolist() == [2, 0, 3]
    assert index.find(as_keys(["", "abcdefghij", "abc"])).tolist() == [1, -1, 3]


def test_arrow_arrays_and_single_keys_are_keys() -> None:
    assert as_keys(pa.array(["x", "y"])).tolist() == ["x", "y"]
    assert as_keys(pa.array([1, 2], pa.int32())).dtype == np.int64
    assert as_keys("abc").tolist() == ["abc"]
    assert as_keys(np.array([2**64 - 1], np.uint64)).tolist() == [2**64 - 1]
    with pytest.raises(BadValue, match="null"):
        as_keys(pa.array(["x", None]))


def test_strings_that_end_in_zeros_stay_apart() -> None:
    index = KeyIndex()
    assert index.slots(as_keys(["a", "a\0"])).tolist() == [0, 1]


def test_keys_of_another_kind_are_refused() -> None:
    index = KeyIndex()
    index.slots(as_keys([1]))
    with pytest.raises(BadValue, match="keys are integers, and these are strings"):
        index.slots(as_keys(["a"]))
