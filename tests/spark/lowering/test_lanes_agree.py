"""Promise: results are equal whatever the lane. Random plans over random, out-of-order rows, in both lanes."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import penstock as ps
from penstock.plan.physical.lanes import split_lanes
from penstock.settings import Settings
from penstock.testing import EOF, Results, run_to_end
from tests.conftest import at

SCHEMA = "i bigint, k string, g int, v bigint, n smallint, d double, p decimal(10,2), b boolean, s string, ts timestamp"
WINDOWS = [
    ps.tumbling("10s"),
    ps.sliding("20s", "5s"),
    None,
    ps.sliding("15s", "10s", offset="4s"),
    ps.tumbling("7s", offset="3s"),
]
KEYS = [("k",), ("k", "g"), ("d",), ("b", "g")]
AGGREGATES = [
    *("count(*)", "count(d)", "count_if(v > 0)", "sum(v)", "sum(n)", "sum(d)", "sum(p)", "avg(v)", "avg(d)", "mean(n)"),
    *("min(v)", "max(d)", "min(s)", "max(p)", "max(ts)", "min(b)", "max_by(s, i)", "min_by(d, i)", "max_by(v, v + g)"),
    *("bool_and(b)", "every(v > -90)", "some(b)", "any(n > 5)", "variance(g)", "var_pop(n)", "stddev(n)"),
    *("stddev_pop(g)", "sum(v) FILTER (WHERE b)", "count(*) FILTER (WHERE s > 'm')", "avg(n) FILTER (WHERE v < 0)"),
    *("max_by(s, i) FILTER (WHERE NOT b)", "sum(d * n) / nullif(sum(n), 0)", "coalesce(sum(v), 0) + count(*)"),
]
BEFORE = [None, "v > -80", "n IS NOT NULL"]
AFTER = [None, "g <> 3", "b"]


class Total(ps.Aggregator):
    """A sum in Python."""

    state, result = "bigint", "bigint"

    def start(self) -> int:
        return 0

    def add(self, acc: int, *values: Any) -> int:
        return acc + (values[0] or 0)

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self, acc: int) -> int:
        return acc


def plan(seed: int) -> ps.Pipeline:
    """A pipeline whose every choice is random, but for the kind of window: those take turns."""
    chance = random.Random(seed)
    stream = ps.from_items([], SCHEMA).named("rows")
    window = WINDOWS[seed % len(WINDOWS)]
    before, after = chance.choice(BEFORE), chance.choice(AFTER)
    stream = stream.filter(before).named("before") if before else stream
    if chance.random() < 0.5:
        stream = stream.with_columns(v="v + 1", w="v * 2").drop("w").rename(at="ts").rename(ts="at")
    if window is not None or chance.random() < 0.5:
        stream = stream.event_time("ts", "5s")
    stream = stream.filter(after).named("after") if after else stream
    keyed = stream.key_by(*chance.choice(KEYS))
    wanted = {f"a{n}": sql for n, sql in enumerate(chance.sample(AGGREGATES, 12))}
    if window is None:
        outputs = [keyed.aggregate(**wanted).to(ps.collect())]
    else:
        lateness, emit = chance.choice(["0s", "6s"]), chance.choice(["final", "updates"])
        python = {"python": Total("v + 1")} if seed % 2 else {}
        results = keyed.window(window, allowed_lateness=lateness, emit=emit).aggregate(**wanted, **python)
        outputs = [results.to(ps.collect()), results.side("late").to(ps.collect()).named("late")]
    bad = ps.collect()
    bad.name = "bad"
    return ps.Pipeline("p", *outputs, rejected_to=bad)


def history(seed: int, epochs: int = 3) -> list[Any]:
    """Epochs that drift forward in time, out of order, some rows far behind, some values missing or odd."""
    chance = random.Random(seed)
    given: list[Any] = []
    for epoch in range(epochs):
        for _ in range(80):
            seconds = epoch * 20 + chance.randrange(0, 30_000) / 1000 - (50 if chance.random() < 0.15 else 0)
            given.append(_row(chance, len(given), None if chance.random() < 0.04 else seconds))
        given.append(EOF)
    return given[:-1]


def _row(chance: random.Random, number: int, seconds: float | None) -> dict[str, Any]:
    def perhaps(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    return {
        "i": perhaps(number),
        "k": perhaps(chance.choice(["a", "b", "é", ""])),
        "g": perhaps(chance.randrange(1, 5)),
        "v": perhaps(chance.randrange(-100, 1000)),
        "n": perhaps(chance.randrange(-9, 9)),
        "d": perhaps(chance.choice([0.0, -0.0, 1.5, -2.25, 1e9 / 256, math.inf, math.nan])),
        "p": perhaps(Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2)),
        "b": perhaps(chance.random() < 0.5),
        "s": perhaps(chance.choice("zyxmdcba") + str(number)),
        "ts": None if seconds is None else at(seconds),
    }


def outcome(pipeline: ps.Pipeline, given: list[Any], settings: Settings) -> dict[str, Any]:
    """All that a run shows: the rows of each sink in one order, and where the rows of each node went."""
    found: Results = run_to_end(pipeline, {"rows": given}, settings=settings)
    rows = {sink: sorted((list(map(_shown, row.items())) for row in found[sink]), key=repr) for sink in found}
    return rows | {"counts": {node: asdict(counts) for node, counts in found.counts.items()}}


def _shown(item: tuple[str, Any]) -> tuple[str, Any]:
    """A value as it is compared: NaN is itself, zero has no sign, and floats agree to twelve digits."""
    name, value = item
    return (name, f"{value + 0.0:.12g}" if isinstance(value, float) else value)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))])
def test_both_lanes_give_the_same_rows_late_rows_rejected_rows_and_counts(seed: int, settings: Settings) -> None:
    pipeline, given = plan(seed), history(seed, 3 if seed else 2)
    (prefix,) = split_lanes(pipeline.graph).prefixes.values()
    assert prefix.partial is not None, "the plan is of a kind that is split"
    native, spark = (outcome(pipeline, given, replace(settings, lane=lane)) for lane in ("auto", "spark"))
    assert native["collect"]
    for what, found in native.items():
        assert found == spark[what], what


@pytest.mark.slow
def test_a_change_that_moves_an_aggregation_to_spark_and_back_keeps_its_state(
    tmp_path: Path, settings: Settings
) -> None:
    data = tmp_path / "in"
    data.mkdir()
    wanted = {"n": "count(*)", "mean": "avg(v)", "best": "max_by(v, ts)", "spread": "stddev(v)", "total": Total("v")}

    def pipeline(condition: str) -> ps.Pipeline:
        rows = ps.read_files(str(data), format="csv", schema="k string, v int, ts timestamp").event_time("ts", "5s")
        windows = rows.filter(condition).key_by("k").window(ps.sliding("20s", "10s"))
        return ps.Pipeline("p", windows.aggregate(**wanted).to(ps.files(str(tmp_path / "out"))))

    versions = [pipeline("v > 1"), pipeline("v > 1 AND upper(k) = 'A'"), pipeline("v > 1")]
    lanes = [split_lanes(one.graph).lane(one.graph.stateful[0]) for one in versions]
    assert lanes == ["native partial, spark merge", "spark", "native partial, spark merge"]
    for number, (version, until) in enumerate(zip(versions, ["drained", "drained", "ended"], strict=True)):
        lines = [f"a,{v},2026-01-01T00:00:{v:02}Z" for v in range(number * 5, number * 5 + 5)]
        (data / f"{number}.csv").write_text("\n".join(lines) + "\n")
        version.run(until=until, checkpoint=tmp_path / "c", settings=settings)  # type: ignore[arg-type]
    found = duckdb.sql(
        f"FROM read_parquet('{tmp_path}/out/*.parquet') SELECT n, mean, best, total ORDER BY window_start"
    )
    assert found.fetchall() == [(8, 5.5, 9, 44), (13, 8.0, 14, 104), (5, 12.0, 14, 60)]
