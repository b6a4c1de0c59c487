"""Deduplication of a bucket: the rule, row by row, whatever the epochs; and state that goes with the watermark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.keyed.deduplication import Deduplicator
from penstock.values.state_tables import StateTable

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WITHIN = 10
Given = list[tuple[str, int]]


@dataclass
class Turn:
    """What a bucket is given in one epoch."""

    rows: pa.Table
    state: tuple[StateTable, ...] | None
    watermark_us: int


def by_the_rule(given: Given) -> list[int]:
    """Judge the rows one after the other."""
    kept: dict[str, list[int]] = defaultdict(list)
    numbers = []
    for number, (key, time) in enumerate(given):
        if all(abs(time - other) > WITHIN for other in kept[key]):
            kept[key].append(time)
            numbers.append(number)
    return numbers


def in_epochs(given: Given, ends: list[int], delay: int) -> tuple[list[int], Given, object]:
    """Give the rows in epochs; return those that are kept, those that were not late, and the last state."""
    step, state, watermark = Deduplicator(("k",), WITHIN, "at"), None, -(10**6)
    kept: list[int] = []
    on_time: Given = []
    for begin, end in zip([0, *ends], [*ends, len(given)], strict=True):
        epoch = [row for row in given[begin:end] if row[1] >= watermark]
        numbered = [(key, len(on_time) + number, time) for number, (key, time) in enumerate(epoch)]
        columns = [list(values) for values in zip(*numbered, strict=True)] or [[], [], []]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
        turn = Turn(pa.Table.from_arrays(arrays, schema=SCHEMA), state, watermark)
        kept += [number for table in step(turn) for number in table.column("n").to_pylist()]
        on_time += epoch
        state = turn.state
        watermark = max([watermark, *(time - delay for _, time in given[begin:end])])
    return kept, on_time, state


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-60, 60)), max_size=60)


@settings(deadline=None)
@given(rows=ROWS, cuts=st.sets(st.integers(0, 60), max_size=8), delay=st.integers(0, 40), in_order=st.booleans())
def test_the_kept_rows_are_those_of_the_rule_wherever_epochs_end(
    rows: Given, cuts: set[int], delay: int, in_order: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[1]) if in_order else rows
    kept, on_time, _ = in_epochs(rows, sorted(cut for cut in cuts if cut <= len(rows)), delay)
    assert kept == by_the_rule(on_time)


def test_a_kept_row_is_forgotten_when_the_watermark_is_further_away_than_the_span() -> None:
    rows = [("a", 0), ("b", 8), ("a", 20)]
    for watermark, left in ((10, [0, 8, 20]), (11, [8, 20]), (30, [20]), (31, [])):
        step = Deduplicator(("k",), WITHIN, "at")
        arrays = [pa.array(values) for values in ([k for k, _ in rows], [0, 1, 2])]
        times = pa.array([time for _, time in rows], SCHEMA.field("at").type)
        turn = Turn(pa.Table.from_arrays([*arrays, times], schema=SCHEMA), None, watermark)
        assert sum(table.num_rows for table in step(turn)) == 3
        found = turn.state[0].rows.column("kept_at").to_pylist() if turn.state else []
        expires = turn.state[0].expires.tolist() if turn.state and turn.state[0].expires is not None else []
        assert (found, expires) == (left, [at + WITHIN + 1 for at in left])
