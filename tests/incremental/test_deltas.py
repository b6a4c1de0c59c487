"""Promise: the laws of deltas hold, whatever the values are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadSchema, BadValue, UnknownColumn
from penstock.incremental.deltas import (
    PATCH,
    REMOVE,
    SET,
    Deltas,
    apply,
    compose,
    concat,
    diff,
    no_deltas,
    patch_rows,
    remove_keys,
    set_rows,
)
from tests.incremental.edge_values import VALUES, columns, contents, law, row, same, table

# A delta as a test writes it: kind, key, values, and of a patch which of them it has.
Delta = tuple[int, Any, tuple[Any, ...], tuple[bool, ...]]
Model = dict[Any, tuple[int, tuple[Any, ...] | None]]


@st.composite
def worlds(draw: st.DrawFn, batches: int = 1) -> tuple[list[pa.DataType], list[list[Delta]]]:
    """Return the types of a key and of value columns, and batches of deltas."""
    key = draw(st.sampled_from([pa.int64(), pa.string(), pa.float64(), pa.decimal128(20, 2)]))
    kinds = [key, *draw(columns())]
    width = len(kinds) - 1
    one = st.tuples(
        st.sampled_from([SET, PATCH, REMOVE]),
        st.sampled_from([None, *VALUES[key][:4]]),
        row(kinds[1:]),
        st.tuples(*[st.booleans()] * width),
    )
    return kinds, [draw(st.lists(one, max_size=8)) for _ in range(batches)]


def batch(kinds: list[pa.DataType], deltas: list[Delta], first: int) -> Deltas:
    schema = table(kinds, []).schema
    return concat(no_deltas(schema, ["c0"]), *(one(kinds, delta, first + n) for n, delta in enumerate(deltas)))


def one(kinds: list[pa.DataType], delta: Delta, sequence: int) -> Deltas:
    kind, key, values, has = delta
    whole = table(kinds, [(key, *values)])
    if kind == SET:
        return set_rows(whole, ["c0"], sequence)
    if kind == REMOVE:
        return remove_keys(whole, ["c0"], sequence, whole.schema)
    chosen = [name for name, there in zip(whole.column_names[1:], has, strict=True) if there]
    return patch_rows(whole.select(["c0", *chosen]), ["c0"], sequence, whole.schema)


def played(model: Model, deltas: list[Delta], first: int) -> Model:
    """Apply deltas one by one, as an object for each."""
    model = dict(model)
    for sequence, (kind, key, values, has) in enumerate(deltas, start=first):
        old = model.get(same(key), (-1, None))
        if sequence <= old[0]:
            continue
        if kind == SET:
            model[same(key)] = (sequence, values)
        elif kind == REMOVE:
            model[same(key)] = (sequence, None)
        elif old[1] is not None:
            patched = tuple(new if there else was for new, was, there in zip(values, old[1], has, strict=True))
            model[same(key)] = (sequence, patched)
        elif same(key) in model:
            # It has no row to change, and is applied all the same: another delta with its number is a duplicate.
            model[same(key)] = (sequence, None)
    return model


def rows_of(model: Model) -> set[Any]:
    return {(key, *(same(value) for value in values)) for key, (_, values) in model.items() if values is not None}


def content(state: Deltas) -> list[Any]:
    """Return everything that a batch means: of columns that a delta does not have, nothing."""
    found = contents(state.table.drop_columns(["__penstock_patched"]))
    return [(*one, *has) for one, has in zip(found, state.patched.tolist(), strict=True)]


def test_a_patch_of_a_removed_key_counts_as_applied() -> None:
    kinds, nothing = [pa.int64(), pa.int64()], (None, (None,), (False,))
    deltas = [(REMOVE, *nothing), (PATCH, *nothing)]
    none = no_deltas(table(kinds, []).schema, ["c0"])
    whole = apply(batch(kinds, deltas, 5), none)
    one_by_one = apply(batch(kinds, deltas[1:], 6), apply(batch(kinds, deltas[:1], 5), none))
    assert whole.sequences.tolist() == one_by_one.sequences.tolist() == [6]


@law
@given(worlds(2))
def test_applying_batches_is_applying_deltas_one_by_one(given: Any) -> None:
    kinds, (first, second) = given
    state = apply(batch(kinds, first, 1), no_deltas(table(kinds, []).schema, ["c0"]))
    model = played({}, first, 1)
    assert set(contents(state.rows())) == rows_of(model)
    after = apply(batch(kinds, second, 5), state)
    assert set(contents(after.rows())) == rows_of(played(model, second, 5))


@law
@given(worlds(3))
def test_apply_is_idempotent_per_sequence(given: Any) -> None:
    kinds, (a, b, c) = given
    state = apply(batch(kinds, a, 1), no_deltas(table(kinds, []).schema, ["c0"]))
    new = batch(kinds, b, 20)
    after = apply(new, state)
    assert content(apply(new, after)) == content(after)
    assert content(apply(batch(kinds, a, 1), after)) == content(after)
    twice = concat(new, new)
    assert content(apply(twice, state)) == content(after)
    later = batch(kinds, c, 40)
    assert content(apply(concat(new, later), after)) == content(apply(later, after))


@law
@given(worlds(2))
def test_apply_of_a_diff_gives_the_new_rows(given: Any) -> None:
    kinds, (first, second) = given
    nothing = no_deltas(table(kinds, []).schema, ["c0"])
    old = apply(batch(kinds, first, 1), nothing)
    new = apply(batch(kinds, second, 1), nothing).rows()
    changes = diff(old, new)
    assert sorted(map(str, contents(apply(changes, old).rows()))) == sorted(map(str, contents(new)))
    assert len(diff(apply(changes, old), new)) == 0


@law
@given(worlds(2))
def test_a_diff_has_only_what_differs(given: Any) -> None:
    kinds, (first, second) = given
    nothing = no_deltas(table(kinds, []).schema, ["c0"])
    old = apply(batch(kinds, first, 1), nothing)
    new = apply(batch(kinds, second, 1), nothing)
    before, after = ({one[0]: one[1:] for one in contents(state.rows())} for state in (old, new))
    found = diff(old, new.rows(), 99)
    told = {same(key): kind for key, kind in zip(found.table.column("c0").to_pylist(), found.changes, strict=True)}
    assert {key for key, kind in told.items() if kind == SET} == after.keys() - before.keys()
    assert {key for key, kind in told.items() if kind == REMOVE} == before.keys() - after.keys()
    patched = {key: after[key] for key in before.keys() & after.keys() if before[key] != after[key]}
    assert {key for key, kind in told.items() if kind == PATCH} == patched.keys()
    for key, kind, has in zip(found.table.column("c0").to_pylist(), found.changes, found.patched, strict=True):
        if kind == PATCH:
            pairs = zip(before[same(key)], after[same(key)], strict=True)
            assert has.tolist() == [was != now for was, now in pairs]


@law
@given(worlds(3))
def test_compose_is_associative(given: Any) -> None:
    kinds, parts = given
    a, b, c = (batch(kinds, part, 1 + 20 * number) for number, part in enumerate(parts))
    assert content(compose(a, compose(b, c))) == content(compose(compose(a, b), c)) == content(compose(a, b, c))


@law
@given(worlds(3))
def test_applying_composed_deltas_is_applying_each(given: Any) -> None:
    kinds, (a, b, c) = given
    state = apply(batch(kinds, a, 1), no_deltas(table(kinds, []).schema, ["c0"]))
    first, second = batch(kinds, b, 20), batch(kinds, c, 40)
    each = apply(second, apply(first, state)).rows()
    assert contents(apply(compose(first, second), state).rows()) == contents(each)
    # Also where a part of what was composed has been applied already.
    assert contents(apply(compose(first, second), apply(first, state)).rows()) == contents(each)


@law
@given(worlds(1))
def test_a_later_set_or_remove_wins(given: Any) -> None:
    kinds, (deltas,) = given
    composed = compose(batch(kinds, deltas, 1))
    kept = {}
    for delta in deltas:
        if delta[0] != PATCH:
            kept[same(delta[1])] = delta
    for key, kind in zip(composed.table.column("c0").to_pylist(), composed.changes, strict=True):
        assert kind == (kept[same(key)][0] if same(key) in kept else PATCH)


ROWS = pa.table({"k": ["a", "b"], "x": [1.0, 2.0], "y": [None, "q"]})


def test_a_patch_can_set_null_and_leaves_the_other_columns() -> None:
    state = apply(set_rows(ROWS, ["k"], 1), no_deltas(ROWS.schema, ["k"]))
    patch = patch_rows(pa.table({"k": ["b"], "x": pa.array([None], pa.float64())}), ["k"], 2, ROWS.schema)
    assert apply(patch, state).rows().to_pylist()[1] == {"k": "b", "x": None, "y": "q"}


def test_a_removed_key_does_not_come_back_by_an_old_delta_until_it_is_forgotten() -> None:
    first = set_rows(ROWS, ["k"], 1)
    state = apply(remove_keys(ROWS, ["k"], 2, ROWS.schema), apply(first, no_deltas(ROWS.schema, ["k"])))
    assert len(apply(first, state).rows()) == 0
    assert len(state) == 2
    assert len(state.forget(1)) == 2
    assert len(state.forget(2)) == 0


def test_a_key_of_several_columns_may_have_nulls() -> None:
    rows = pa.table({"a": [1, 1, None], "b": ["x", None, None], "v": [1, 2, 3]})
    state = apply(set_rows(rows, ["a", "b"], 1), no_deltas(rows.schema, ["a", "b"]))
    removed = remove_keys(rows.slice(1, 1), ["a", "b"], 2, rows.schema)
    assert apply(removed, state).rows().column("v").to_pylist() == [1, 3]


def test_more_than_eight_columns_fit_in_the_bitmap() -> None:
    wide = pa.table({"k": [1], **{f"v{n}": [n] for n in range(20)}})
    state = apply(set_rows(wide, ["k"], 1), no_deltas(wide.schema, ["k"]))
    patch = patch_rows(pa.table({"k": [1], "v17": [99]}), ["k"], 2, wide.schema)
    assert apply(patch, state).rows().to_pylist() == [{**wide.to_pylist()[0], "v17": 99}]


def test_sequence_numbers_that_do_not_increase_cannot_be_composed() -> None:
    late = set_rows(ROWS, ["k"], 1)
    with pytest.raises(BadValue, match="do not increase"):
        compose(set_rows(ROWS, ["k"], 2), late)


def test_unknown_columns_and_other_schemas_are_refused() -> None:
    with pytest.raises(UnknownColumn, match="unknown column 'z'"):
        patch_rows(pa.table({"k": ["a"], "z": [1]}), ["k"], 1, ROWS.schema)
    with pytest.raises(UnknownColumn, match="in the key"):
        set_rows(ROWS, ["key"], 1)
    with pytest.raises(BadSchema, match="different"):
        compose(set_rows(ROWS, ["k"], 1), set_rows(ROWS.select(["k", "x"]), ["k"], 2))
    with pytest.raises(BadValue, match="several rows"):
        diff(set_rows(ROWS, ["k"], 1), pa.concat_tables([ROWS, ROWS]))
