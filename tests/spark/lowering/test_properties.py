"""Promise: no row vanishes, and results are equal in both lanes, for any order of rows. Checked against a model."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, run_to_end
from tests.conftest import at

DELAY, SIZE = 5, 10


def history(seed: int, epochs: int) -> list[list[dict[str, Any]]]:
    """Some epochs of rows that drift forward in time, out of order, a few far behind, a few without a time."""
    chance = random.Random(seed)
    made = []
    for number in range(epochs):
        rows = []
        for _ in range(60):
            seconds = number * 20 + chance.randrange(0, 30_000) / 1000 - (60 if chance.random() < 0.1 else 0)
            time = None if chance.random() < 0.03 else at(seconds)
            rows.append({"k": chance.choice("abc"), "v": chance.randrange(-2, 9), "ts": time})
        made.append(rows)
    return made


def model(epochs: list[list[dict[str, Any]]]) -> tuple[dict[Any, tuple[int, int]], Counter[str]]:
    """The words of the design, in Python: a row is late by the watermark of the epochs before its own."""
    totals: dict[Any, tuple[int, int]] = {}
    counts: Counter[str] = Counter()
    newest: float | None = None
    for rows in epochs:
        watermark = None if newest is None else newest - DELAY
        for row in rows:
            if row["ts"] is None:
                counts["rejected"] += 1
                continue
            seconds = (row["ts"] - at(0)).total_seconds()
            newest = seconds if newest is None else max(newest, seconds)
            start = seconds // SIZE * SIZE
            if row["v"] < 0:
                counts["filtered"] += 1
            elif watermark is not None and start + SIZE <= watermark:
                counts["late"] += 1
            else:
                counts["used"] += 1
                total, n = totals.get((row["k"], at(start)), (0, 0))
                totals[row["k"], at(start)] = (total + row["v"], n + 1)
    return totals, counts


# In short the other lane is compared by test_lanes_agree.py.
@pytest.mark.parametrize(("lane", "seed"), [("auto", 1), pytest.param("spark", 2, marks=pytest.mark.slow)])
def test_every_row_is_used_filtered_late_or_rejected(seed: int, lane: str, settings: Settings) -> None:
    epochs = history(seed, 3 if seed == 1 else 4)
    rows = ps.from_items([], "k string, v bigint, ts timestamp").named("rows")
    kept = rows.event_time("ts", f"{DELAY}s").filter("v >= 0")
    sums = kept.key_by("k").window(ps.tumbling(f"{SIZE}s")).aggregate(total="sum(v)", n="count(*)")
    bad = ps.collect()
    bad.name = "bad"
    late = sums.side("late").to(ps.collect()).named("late")
    pipeline = ps.Pipeline("p", sums.to(ps.collect()), late, rejected_to=bad)
    given = [item for epoch in epochs for item in (*epoch, EOF)][:-1]
    out = run_to_end(pipeline, {"rows": given}, settings=replace(settings, lane=lane))
    totals, counts = model(epochs)
    assert counts["late"] > 0
    assert {(r["k"], r["window_start"]): (r["total"], r["n"]) for r in out["collect"]} == totals
    assert len(out["collect"]) == len(totals)
    assert (len(out["late"]), len(out["bad"])) == (counts["late"], counts["rejected"])
    aggregate, filtered, timed = (out.counts[name] for name in ("aggregate", "filter", "event_time"))
    assert (aggregate.used, aggregate.late) == (counts["used"], counts["late"])
    assert (filtered.filtered, timed.rejected) == (counts["filtered"], counts["rejected"])
    for node in out.counts.values():
        parts = node.used + node.filtered + node.late + node.rejected + node.duplicate + node.dropped
        assert node.rows_in == parts
