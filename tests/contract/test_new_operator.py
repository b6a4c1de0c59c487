"""Promise: a new operator is its node, a function on streams, one lowering and one contract test.

Both operators here live outside the package. If lanes, queries, accounting, fingerprints, drawing or replay needed to
know them by name, these tests would fail.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import BadValue, PaceRefused, UnknownColumn
from penstock.keyed.table_steps import KeyedTables, TableCall
from penstock.plan.fingerprint import described, fingerprints
from penstock.plan.operators.grouped import Stateful
from penstock.plan.operators.node import OneInput
from penstock.plan.physical.determinism import replay_key
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.spark.lowering.buckets import bucketed
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.lower import lower
from penstock.stream import Stream
from penstock.testing import Crash, assert_rows, run_to_end
from penstock.values.state_tables import StateTable
from tests.conftest import at

SCHEMA = "k string, n bigint, ts timestamp"
ROWS: list[Any] = [{"k": f"k{n % 3}", "n": n, "ts": at(n)} for n in range(30)]


# --- the first operator: no state -------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample(OneInput):
    """One row of so many, chosen by a hash of a column: the same rows in every run."""

    kind = "sample"
    keeps_columns = True
    counts_missing_as = "filtered"
    column: str
    every: int

    def _checked(self) -> Schema:
        self.input.schema.field(self.column)
        if self.every < 1:
            message = f"every={self.every} is less than 1"
            raise BadValue(message, hint="pass a whole number from 1")
        return self.input.schema

    @property
    def detail(self) -> str:
        return f"one of {self.every} by {self.column}"


def sample(stream: Stream, column: str, every: int) -> Stream:
    return Stream(Sample(input=stream.node, column=column, every=every))


@lower.register
def _sample(node: Sample, context: Context, frame: DataFrame) -> DataFrame:
    chosen = F.pmod(F.crc32(column(node.column).cast("string")), F.lit(node.every)) == 0
    return context.counted(frame.filter(chosen), node)


def is_chosen(row: dict[str, Any], every: int) -> bool:
    return zlib.crc32(str(row["n"]).encode()) % every == 0


# --- the second: state in buckets of keys -----------------------------------------------------------


@dataclass(frozen=True)
class TakeFirst:
    """The first rows of each key of a bucket; its state is how many each key has had."""

    key: str
    limit: int

    def __call__(self, call: TableCall) -> Iterator[pa.Table]:
        seen = Counter({row["key"]: row["seen"] for row in call.state[0].rows.to_pylist()} if call.state else {})
        taken = []
        for value in call.rows.column(self.key).to_pylist():
            seen[value] += 1
            taken.append(seen[value] <= self.limit)
        call.state = (StateTable(pa.table({"key": [*seen], "seen": [*seen.values()]})),)
        yield call.rows.filter(pa.array(taken, pa.bool_()))


@dataclass(frozen=True, eq=False, kw_only=True)
class First(Stateful):
    """The first rows of each key, over all time."""

    kind = "first"
    bucketed = True
    counts_missing_as = "filtered"
    key_column: str
    limit: int

    def _checked(self) -> Schema:
        self._check_input((self.key_column,), needs_time=False)
        return self.input.schema

    @property
    def detail(self) -> str:
        return f"{self.limit} by {self.key_column}"

    @property
    def state_keys(self) -> tuple[str, ...]:
        return (self.key_column,)

    @property
    def kept(self) -> dict[str, str]:
        return {"keys": self.key_column, "limit": str(self.limit)}

    @property
    def over_all_time(self) -> bool:
        return True

    @property
    def event_time(self) -> bool:
        return False

    @property
    def sets_timers(self) -> bool:
        return False

    @property
    def classes(self) -> tuple[type, ...]:
        return (TakeFirst,)


def first(stream: Stream, key: str, limit: int) -> Stream:
    return Stream(First(input=stream.node, key_column=key, limit=limit))


@lower.register
def _first(node: First, context: Context, frame: DataFrame) -> DataFrame:
    step = KeyedTables(TakeFirst(node.key_column, node.limit), (node.key_column,), ("key",))
    rows = frame.select(*map(column, [*node.schema.names, *(n for n in frame.columns if n not in node.schema.names)]))
    made = bucketed(rows, [column(node.key_column)], step, node.schema, context, node, timed=False)
    return context.counted(made, node)


# --- what they get without a word more -----------------------------------------------------------------


def rows() -> Stream:
    return ps.from_items([], SCHEMA).named("rows")


def sampled() -> ps.Pipeline:
    return ps.Pipeline("sampled", sample(rows().filter("n >= 0"), "n", 3).to(ps.files("out")))


def firsts(limit: int = 4) -> ps.Pipeline:
    return ps.Pipeline("firsts", first(rows(), "k", limit).to(ps.files("out")))


def test_its_arguments_are_checked_when_it_is_built() -> None:
    with pytest.raises(UnknownColumn, match="sample"):
        sample(rows(), "x", 3)
    with pytest.raises(BadValue, match="every=0"):
        sample(rows(), "n", 0)


def test_it_is_explained_and_drawn() -> None:
    pipeline = sampled()
    assert "one of 3 by n" in pipeline.explain(Settings())
    assert "lane spark (sample is Spark's)" in pipeline.explain(Settings())
    assert "sample 'sample'" in pipeline.to_dot()
    assert "sample 'sample'" in pipeline.to_mermaid()
    plan = pipeline.physical_plan(Settings())
    assert (plan.node("filter").lane, plan.node("sample").lane, plan.node("sample").state) == ("native", "spark", None)


def test_its_state_is_in_the_physical_plan() -> None:
    node = firsts().physical_plan(Settings()).node("first")
    assert node.state is not None
    assert node.partitioning is not None
    assert (node.state.store, node.state.bounded, node.state.meaning) == ("buckets", False, {"keys": "k", "limit": "4"})
    assert (node.partitioning.exchange, node.partitioning.keys) == ("hash", ("k",))


def test_it_is_written_as_json_and_read_again() -> None:
    for pipeline in (sampled(), firsts()):
        again = ps.Pipeline.from_json(pipeline.to_json())
        assert again.to_json() == pipeline.to_json()
        assert fingerprints(again.graph) == fingerprints(pipeline.graph)


def test_a_checkpoint_knows_its_state_and_its_arguments() -> None:
    assert fingerprints(firsts(4).graph) == fingerprints(firsts(4).graph) != fingerprints(firsts(5).graph)
    three, four = (ps.Pipeline("p", sample(rows(), "n", every).to(ps.collect())).graph for every in (3, 4))
    assert described(three)["sample"].code != described(four)["sample"].code


def test_a_replay_finds_the_columns_that_name_its_rows() -> None:
    counts = rows().event_time("ts", "1s").key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)")
    assert replay_key(sample(counts, "n", 2).node) == ("k", "window_start", "window_end")


def test_real_time_mode_refuses_what_it_does_not_know() -> None:
    topic = ps.read_topic("in", schema="k string, n bigint")
    with pytest.raises(PaceRefused, match="has no sample"):
        ps.Pipeline("p", sample(topic, "n", 3).to(ps.topic("out")), pace="realtime")


def test_it_runs_and_is_counted_and_survives_a_crash() -> None:
    out = run_to_end(sampled(), {"rows": [*ROWS[:12], Crash(), *ROWS[12:]]})
    chosen = [row for row in ROWS if is_chosen(row, 3)]
    assert 0 < len(chosen) < len(ROWS)
    assert_rows(out["out"], chosen)
    counts = out.counts["sample"]
    assert (counts.rows_in, counts.used, counts.filtered) == (len(ROWS), len(chosen), len(ROWS) - len(chosen))
    assert out.counts["out"].rows_in == len(chosen)


def test_windows_branches_and_rejected_rows_follow_it() -> None:
    timed = sample(rows(), "n", 3).event_time("ts", "1s")
    counts = timed.key_by("k").window(ps.tumbling("100s")).aggregate(n="count(*)")
    outputs = counts.to(ps.files("counts")), timed.to(ps.files("all"))
    out = run_to_end(ps.Pipeline("p", *outputs, rejected_to=ps.topic("bad")), {"rows": [*ROWS, b"{"]})
    chosen = [row for row in ROWS if is_chosen(row, 3)]
    expected = Counter(row["k"] for row in chosen)
    assert {row["k"]: row["n"] for row in out["counts"]} == expected
    assert len(out["all"]) == len(chosen)
    assert len(out["bad"]) == 1


def test_its_state_survives_a_crash() -> None:
    out = run_to_end(firsts(), {"rows": [*ROWS[:6], Crash(), *ROWS[6:]]})
    assert_rows(out["out"], ROWS[:12])
    counts = out.counts["first"]
    assert (counts.rows_in, counts.used, counts.filtered) == (30, 12, 18)


def test_a_name_and_other_arguments_make_another_node() -> None:
    one = Sample(input=rows().node, column="n", every=3)
    assert one == Sample(input=rows().node, column="n", every=3) != replace(one, every=4)
