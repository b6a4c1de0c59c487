"""The steps of windows in buckets, without Spark: for any rows in any turns they agree with plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.keyed.store.bucket_store import BucketStore, RunSettings
from penstock.keyed.store.run_folder import RunFolder
from penstock.keyed.table_steps import KeyedTables
from penstock.native.count_windows import CountWindows
from penstock.native.early_windows import EarlyWindows
from penstock.native.panes import Panes
from penstock.native.session_windows import SessionWindows
from penstock.native.steps import TIME
from penstock.schema import Schema
from penstock.storage.folders import LocalFolder
from penstock.windows import LAST_US, Window, count_window, session, sliding

ROWS = Schema("k string, __penstock_p0 bigint, __penstock_p1 bigint")
MERGES = (("__penstock_p0", "sum(__penstock_p0)::BIGINT"), ("__penstock_p1", "max(__penstock_p1)"))
PANES = Panes(("k",), MERGES, ROWS)
ARROW = pa.schema([*ROWS.nullable().arrow, pa.field(TIME, pa.timestamp("us", "UTC"))])
SECOND = 1_000_000
# A row: its key, its value, its time in seconds; and after which rows a turn ends.
Given = tuple[str | None, int, int]
histories = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9), st.integers(-40, 60)), max_size=12),
    max_size=5,
)


@dataclass
class Turn:
    """One turn, as Spark would give it."""

    rows: pa.Table
    store: BucketStore
    watermark_us: int = 0
    now_us: int = 0
    ended: bool = False
    next_event_timer_us: int | None = None
    next_processing_timer_us: int | None = None


def turn(rows: list[Given], **more: Any) -> Turn:
    made = [{"k": k, "__penstock_p0": 1, "__penstock_p1": v, TIME: at * SECOND} for k, v, at in rows]
    return Turn(pa.Table.from_pylist(made, schema=ARROW), BucketStore.of(None), **more)


def played(step: Any, turns: list[Turn]) -> list[dict[str, Any]]:
    """Take turns; each goes on from the state that the one before left, in runs."""
    keys = step.panes.keys
    tables = KeyedTables(step, keys, keys, closes_at_end=isinstance(step, CountWindows), time=TIME)
    found, state = [], None
    with TemporaryDirectory() as folder:
        runs = RunSettings(RunFolder(LocalFolder(folder)), 100, tail_bytes=100)
        for epoch, one in enumerate(turns):
            now = replace(one, store=BucketStore.of(state, runs))
            found += [row for table in tables(now) for row in table.to_pylist()]
            state = now.store.advanced().finished(epoch)
        assert not len(BucketStore.of(state, runs).everything())
    return found


def by_key(history: list[list[Given]]) -> dict[str | None, list[Given]]:
    keys = defaultdict(list)
    for row in (row for rows in history for row in rows):
        keys[row[0]].append(row)
    return keys


@settings(max_examples=25, deadline=None)
@given(histories, st.integers(1, 6), st.integers(1, 6))
def test_count_windows_hold_n_rows_of_a_key_in_their_order(history: list[list[Given]], n: int, slide: int) -> None:
    window = count_window(max(n, slide), slide)
    found = played(CountWindows(PANES, window), [*map(turn, history), turn([], ended=True)])
    expected = [
        (repr(k), number, len(part), max(row[1] for row in part))
        for k, rows in by_key(history).items()
        for number, part in enumerate(rows[i : i + window.size_us] for i in range(0, len(rows), slide))
    ]
    shown = [(repr(r["k"]), r["window_number"], r["__penstock_p0"], r["__penstock_p1"]) for r in found]
    assert sorted(shown) == sorted(expected)


@pytest.mark.parametrize("key", ["n", "more", "Before", "starts", "ends", "is_over"])
def test_a_key_may_have_any_name(key: str) -> None:
    names = Schema(f"{key} string, __penstock_p0 bigint, __penstock_p1 bigint")
    panes = Panes((key,), MERGES, names)
    turns = [turn([("a", v, v) for v in range(7)]), turn([("a", v, v) for v in range(7)]), turn([], ended=True)]
    for one in turns:
        one.rows = one.rows.rename_columns([key, *one.rows.column_names[1:]])
    counted = played(CountWindows(panes, count_window(3)), turns)
    assert [row["__penstock_p0"] for row in sorted(counted, key=lambda row: row["window_number"])] == [3, 3, 3, 3, 2]
    turns[-1].watermark_us = LAST_US
    (whole,) = played(SessionWindows(panes, session("10s", max_length="1h")), turns)
    assert (whole[key], whole["__penstock_p0"]) == ("a", 14)


@settings(max_examples=25, deadline=None)
@given(histories, st.integers(1, 12), st.integers(0, 20))
def test_sessions_are_cut_alike_however_rows_come(history: list[list[Given]], gap: int, more: int) -> None:
    window = session(f"{gap}s", max_length=f"{gap + more}s")
    at_once = played(SessionWindows(PANES, window), [turn([r for rows in history for r in rows]), turn([], ended=True)])
    first = [min((row[2] for rows in history[i + 1 :] for row in rows), default=99) for i in range(len(history))]
    turns = [turn(rows, watermark_us=max(at, -50) * SECOND) for rows, at in zip(history, first, strict=True)]
    in_turns = played(SessionWindows(PANES, window), [*turns, turn([], watermark_us=LAST_US)])
    assert _sessions(in_turns) == _sessions(at_once)
    lengths = [(row["window_end"] - row["window_start"]).total_seconds() for row in at_once]
    assert all(gap <= length <= gap + more for length in lengths)
    assert sum(row["__penstock_p0"] for row in at_once) == sum(map(len, history))
    assert _starts(at_once) == _cut(history, gap, gap + more)


def _sessions(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr([row[name] for name in (*ROWS.names, "window_start", "window_end", TIME)]) for row in rows)


def _starts(rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return sorted((repr(row["k"]), row["window_start"].timestamp()) for row in rows)


def _cut(history: list[list[Given]], gap: int, longest: int) -> list[tuple[str, float]]:
    found = []
    for k, rows in by_key(history).items():
        start = last = -999
        for at in sorted(row[2] for row in rows):
            if at - last > gap or at - start >= longest:
                start = at
                found.append((repr(k), float(start)))
            last = at
    return sorted(found)


@settings(max_examples=25, deadline=None)
@given(histories, st.sampled_from([(10, 10), (10, 5), (9, 6)]), st.integers(0, 3))
def test_the_last_update_of_a_window_is_its_final_result(
    history: list[list[Given]], lengths: tuple[int, int], every: int
) -> None:
    window: Window = sliding(*(f"{one}s" for one in lengths))
    size, slide = lengths
    step = EarlyWindows(PANES, window, every * SECOND)
    turns = [turn(rows, now_us=number * SECOND, watermark_us=-99 * SECOND) for number, rows in enumerate(history)]
    found = played(step, [*turns, turn([], ended=True, now_us=len(turns) * SECOND)])
    last, shown = {}, defaultdict(int)
    for row in found:
        key = (row["k"], round(row["window_start"].timestamp()))
        last[key], shown[key] = (row["__penstock_p0"], row["__penstock_p1"]), shown[key] + 1
    expected: dict[Any, Any] = {}
    for k, v, at in (row for rows in history for row in rows):
        for start in range(at // slide * slide, at - size, -slide):
            n, most = expected.get((k, start), (0, v))
            expected[k, start] = (n + 1, max(most, v))
    assert last == expected
    assert max(shown.values(), default=0) <= (len(turns) // every + 2 if every else len(turns))
