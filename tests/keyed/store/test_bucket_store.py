"""A bucket's state against a dict: whatever is written, deleted, due or expired, and wherever runs begin and end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.keyed.store.bucket_store import BucketStore, RunSettings
from penstock.keyed.store.groups import ALWAYS, NEVER, StateRows
from penstock.keyed.store.manifest import manifest_from
from penstock.keyed.store.run_folder import RunFolder
from penstock.storage.folders import LocalFolder

RETENTION = 2
Rows = list[tuple[int, str]]
TABLE = pa.schema([("k", pa.int64()), ("v", pa.string())])


@dataclass
class Model:
    """What a bucket should hold: for each hash its rows, when it is due, and when it expires."""

    rows: dict[int, Rows] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    expires: dict[int, int] = field(default_factory=dict)

    def drop_expired(self, now: int) -> None:
        for one in [one for one, at in self.expires.items() if at <= now]:
            self.remove(one)

    def remove(self, one: int) -> None:
        for each in (self.rows, self.due, self.expires):
            each.pop(one, None)


def state_rows(rows: dict[int, Rows], due: dict[int, int], expires: dict[int, int]) -> StateRows:
    flat = [(one, value) for one, values in rows.items() for value in values]
    hashes = np.array([one for one, _ in flat], np.int64)
    table = pa.Table.from_arrays(
        [pa.array([value[column] for _, value in flat], kind) for column, kind in enumerate(TABLE.types)],
        schema=TABLE,
    )
    return StateRows(
        table,
        hashes,
        event=np.array([due.get(int(one), NEVER) for one in hashes], np.int64),
        expires=np.array([expires.get(int(one), NEVER) for one in hashes], np.int64),
    )


def found(tables: tuple[pa.Table, ...] | None) -> dict[int, Rows]:
    rows: dict[int, Rows] = {}
    for key, value in zip(*(tables[0].column(name).to_pylist() for name in TABLE.names), strict=True) if tables else ():
        rows.setdefault(key, []).append((key, value))
    return rows


EPOCHS = st.lists(
    st.dictionaries(
        st.integers(-20, 20),
        st.tuples(
            st.lists(st.text("ab", min_size=1, max_size=40), max_size=3),
            st.one_of(st.none(), st.integers(0, 30)),
            st.one_of(st.none(), st.integers(0, 30)),
        ),
        max_size=12,
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(epochs=EPOCHS, tail_bytes=st.sampled_from([0, 300, 2000, 10**9]), crashes=st.sets(st.integers(0, 30)))
def test_what_is_read_is_what_was_written(
    tmp_path: Path, epochs: list[dict[int, Any]], tail_bytes: int, crashes: set[int]
) -> None:
    folder = RunFolder(LocalFolder(tmp_path / str(abs(hash(str((epochs, tail_bytes)))))))
    runs, model, state = RunSettings(folder, RETENTION, tail_bytes=tail_bytes), Model(), None
    versions: list[tuple[bytes | None, dict[int, Rows]]] = []
    expired: set[int] = set()
    for epoch, changes in enumerate(epochs):
        for _ in range(1 + (epoch in crashes)):
            # After a crash the epoch runs again, from the same state.
            store = BucketStore.of(state, runs)
            due = store.due(epoch, 0)
            touched = store.read(np.concatenate([due, np.array([*changes], np.int64)]))
            assert due.tolist() == sorted(one for one, at in model.due.items() if at <= epoch)
            assert found(touched.tables) == {
                one: model.rows[one] for one in touched.hashes.tolist() if one in model.rows
            }
            new = {one: [(one, text) for text in texts] for one, (texts, _, _) in changes.items() if texts}
            times = {one: max(at, epoch + 1) for one, (_, at, _) in changes.items() if at is not None and one in new}
            expiry = {one: ends for one, (_, at, ends) in changes.items() if at is None and ends is not None}
            expiry = {one: at for one, at in expiry.items() if one in new}
            store = store.replaced(touched, [state_rows(new, times, expiry)], epoch).advanced()
            after = Model(
                {one: rows for one, rows in model.rows.items() if one not in touched.hashes} | new,
                {one: at for one, at in model.due.items() if one not in touched.hashes} | times,
                {one: at for one, at in model.expires.items() if one not in touched.hashes} | expiry,
            )
            gone = {one for one, at in after.expires.items() if at <= epoch}
            after.drop_expired(epoch)
            assert store.next_due()[0] == min(after.due.values(), default=None)
            # Expired groups may be counted until runs are merged.
            counted = (expired - {*touched.hashes.tolist()}) | gone
            assert len(after.rows) <= store.size.rows <= len(after.rows) + len(counted)
            written = store.finished(epoch)
        state, model, expired = written, after, counted
        versions.append((state, dict(model.rows)))
        for old, rows in versions[-RETENTION - 1 :]:
            everything = BucketStore.of(old, runs).everything()
            everything.check()
            assert found(everything.tables) == rows, "an epoch that is retained can be restored"


def test_a_large_state_costs_what_is_touched(tmp_path: Path) -> None:
    folder = RunFolder(LocalFolder(tmp_path))
    runs, state = RunSettings(folder, RETENTION, tail_bytes=4096), None
    keys = np.arange(20_000) * 7919
    wrote = []
    for epoch in range(60):
        touched_keys = keys if epoch == 0 else keys[epoch * 50 : epoch * 50 + 50]
        store = BucketStore.of(state, runs)
        touched = store.read(touched_keys)
        new = {int(one): [(int(one), f"value {epoch}")] for one in touched_keys}
        state = store.replaced(touched, [state_rows(new, {}, {})]).advanced().finished(epoch)
        assert state is not None
        wrote.append(
            len(state) + sum(one.size for one in manifest_from(state).runs if one.name.startswith(f"{epoch}-"))
        )
    assert max(wrote[1:]) < wrote[0] / 3
    assert len(manifest_from(state).runs) <= 5
    assert len(folder.names()) <= 5 + len(manifest_from(state).retired)
    assert len(BucketStore.of(state, runs).everything()) == 20_000


def test_runs_that_no_retained_epoch_needs_are_deleted_and_those_of_failed_attempts_too(tmp_path: Path) -> None:
    folder = RunFolder(LocalFolder(tmp_path))
    runs, state = RunSettings(folder, RETENTION, tail_bytes=0), None
    (tmp_path / ".1-0123.run.4567").write_bytes(b"not finished")
    for epoch in range(40):
        for _ in range(2):
            store = BucketStore.of(state, runs)
            hashes = np.arange(epoch % 7, 100)
            new = {int(one): [(int(one), str(epoch))] for one in hashes}
            after = store.replaced(store.read(hashes), [state_rows(new, {}, {})]).finished(epoch)
        state = after
    assert len(folder.names()) < 25, "one run of each attempt of the last epochs"
    assert not [name for name in folder.names() if name.startswith(".")]


def test_everything_that_expired_is_gone_without_a_compaction(tmp_path: Path) -> None:
    runs = RunSettings(RunFolder(LocalFolder(tmp_path)), RETENTION, tail_bytes=0)
    store = BucketStore.of(None, runs)
    new = {one: [(one, "x")] for one in range(10)}
    expires = {one: 5 + one for one in range(10)}
    state = store.replaced(store.read(np.arange(10)), [state_rows(new, {}, expires)], 1).finished(0)
    store = BucketStore.of(state, runs)
    assert store.last_expiry == 14
    nothing = store.read(np.zeros(0, np.int64))
    state = store.replaced(nothing, [state_rows({}, {}, {})], 14).finished(1)
    assert manifest_from(state).runs == ()
    for epoch in range(2, 9):
        store = BucketStore.of(state, runs)
        state = store.replaced(store.read(np.zeros(0, np.int64)), [state_rows({}, {}, {})], ALWAYS).finished(epoch)
    assert (state, runs.folder.names()) == (None, [])


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_groups_survive_their_bytes(rows: int) -> None:
    store = BucketStore.of(None)
    new = {one: [(one, f"{one}")] * (one % 3) for one in range(rows)}
    state = store.replaced(store.read(np.arange(rows)), [state_rows(new, {3: 7}, {4: 8})]).finished(0)
    again = BucketStore.of(state).everything()
    again.check()
    assert found(again.tables) == {one: rows for one, rows in new.items() if rows}


def test_operators_that_share_a_folder_do_not_delete_the_runs_of_each_other(tmp_path: Path) -> None:
    """Two operators, and from epoch 20 on two more in a copy of the folder, which start with the state of the first."""

    def played(folder: Path, states: list[bytes | None], epochs: range) -> list[bytes | None]:
        runs = RunSettings(RunFolder(LocalFolder(folder)), RETENTION, tail_bytes=0, shared=True)
        for epoch in epochs:
            for number, state in enumerate(states):
                store = BucketStore.of(state, runs)
                # Not the same rows, so that the operators compact in other epochs.
                hashes = np.arange(epoch % (5 + number), 60, 1 + number)
                new = {int(one): [(int(one), f"{number} {epoch}")] for one in hashes}
                states[number] = store.replaced(store.read(hashes), [state_rows(new, {}, {})]).finished(epoch)
            for number, state in enumerate(states):
                rows = found(BucketStore.of(state, runs).everything().tables)
                assert {row[1].split()[0] for values in rows.values() for row in values} <= {str(number), "0"}
        return states

    states = played(tmp_path / "a", [None, None], range(20))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    played(tmp_path / "b", [states[0], states[0]], range(20, 60))
    played(tmp_path / "a", states, range(20, 60))
