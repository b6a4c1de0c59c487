"""Bad values in Python nodes, one by one: batches, sources, reduce, `not null`, and what a bad row leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.generators.items import ItemSource
from penstock.errors import FunctionFailed, SourceFailed
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.spark.tasks.scan import conform
from penstock.testing import EOF, Crash, run_to_end

Row = dict[str, Any]
SCHEMA = "k string, v bigint"


def rows() -> ps.Stream:
    return ps.read(ItemSource([], SCHEMA, "rows"))


class Running(ps.Process):
    """Sums up; a value above 100 is yielded as a float, one below 0 as None."""

    output = "k string not null, total bigint not null"
    total = ps.state.value(int)

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        self.total.set(self.total.get(0) + row["v"])
        yield {**ctx.key, "total": 0}
        total: Any = self.total.get()
        yield {**ctx.key, "total": total / 2 if row["v"] > 100 else None if row["v"] < 0 else total}


class Batched(Running):
    on_row = ps.Process.on_row

    def on_rows(self, batch: pa.RecordBatch, ctx: ps.Context) -> Iterator[Row]:
        for row in batch.to_pylist():
            yield from Running.on_row(self, row, ctx)  # type: ignore[misc]


def required(row: Row) -> Row:
    return {"k": row["k"], "v": None if row["v"] < 0 else row["v"]}


def halves(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch.column("v").to_pylist()
    if 13 in values:
        message = "unlucky"
        raise ValueError(message)
    return pa.RecordBatch.from_pydict({"k": batch.column("k"), "v": [value / 2 for value in values]})


def whole_halves(batch: pa.RecordBatch) -> pa.RecordBatch:
    made = halves(batch)
    return made.set_column(1, "v", made.column("v").cast(pa.int64())) if made.num_rows > 1 else made


def test_a_bad_row_leaves_no_trace_and_none_does_not_pass_not_null(settings: Settings) -> None:
    made = rows().key_by("k").process(Running()).named("running")
    batched = rows().key_by("k").process(Batched()).named("batched")
    filled = rows().map(required, "k string, v bigint not null").named("filled")
    streams = {"running": made, "batched": batched, "filled": filled}
    outputs = [stream.to(ps.collect()).named(f"{name}-out") for name, stream in streams.items()]
    given = [("a", 1), ("a", 1000), ("a", 2), ("b", -5), ("b", 4), ("c", 7)]
    out = run_to_end(
        ps.Pipeline("values", *outputs, rejected_to=ps.console()), {"rows": [*given, Crash()]}, settings=settings
    )
    totals = {key: [row["total"] for row in out["running-out"] if row["k"] == key] for key in "abc"}
    assert totals == {"a": [0, 1, 0, 3], "b": [0, 4], "c": [0, 7]}
    assert [row["k"] for row in out["batched-out"]] == ["c", "c"], "a batch is rejected as a whole"
    assert sorted(row["v"] for row in out["filled-out"]) == [1, 2, 4, 7, 1000]
    rejected = sorted((row["node"], json.loads(row["row"])["v"], row["reason"]) for row in out["console"])
    floats = "BadEmit: a row for output 'main' does not fit: column 'total' is bigint, and was given 500.5 (float)"
    nulls = (
        "BadEmit: a row for output 'main' does not fit: column 'total' is bigint, and was given None: it cannot be null"
    )
    null = "BadResult: column 'v' is bigint, and was given None: it cannot be null"
    assert rejected == [
        *(("batched", v, nulls if v in (-5, 4) else floats) for v in (-5, 1, 2, 4, 1000)),
        ("filled", -5, null),
        ("running", -5, nulls),
        ("running", 1000, floats),
    ]
    for name, bad in (("running", 2), ("batched", 5), ("filled", 1)):
        counts = out.counts[name]
        assert (counts.rows_in, counts.used, counts.rejected) == (6, 6 - bad, bad)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("between", [EOF, pytest.param(Crash(), marks=pytest.mark.slow)], ids=["epoch", "crash"])
def test_a_batch_that_fails_or_does_not_fit_is_rejected(settings: Settings, deterministic: bool, between: Any) -> None:
    made = rows().map_batches(whole_halves, SCHEMA, deterministic=deterministic).named("halves")
    pipeline = ps.Pipeline("values", made.to(ps.collect()), rejected_to=ps.console())
    given: list[Any] = [("a", 3), Crash(), ("b", 13), between, ("c", 4), ("d", 6)]
    out = run_to_end(pipeline, {"rows": given}, settings=settings)
    assert {(row["k"], row["v"]) for row in out["collect"]} == {("c", 2), ("d", 3)}
    assert {(json.loads(row["row"])["k"], row["reason"]) for row in out["console"]} == {
        ("a", "BadResult: column 'v' is bigint, and was given 1.5 (float)"),
        ("b", "ValueError: unlucky"),
    }
    assert len(out["console"]) == out.counts["halves"].rejected == 2


def test_a_reduce_that_changes_a_type_stops_the_job(settings: Settings) -> None:
    made = rows().key_by("k").reduce(lambda a, b: a | {"v": (a["v"] + b["v"]) / 2}).named("mean")
    with pytest.raises(FunctionFailed, match=r"'mean': .*column 'v' is bigint, and was given 1.5 \(float\)"):
        run_to_end(ps.Pipeline("p", made.to(ps.collect())), {"rows": [("a", 1), ("a", 2)]}, settings=settings)


@pytest.mark.parametrize(
    ("declared", "given", "said"),
    [
        ("bigint", pa.array(["12"]), r"column 'a' is bigint, and was given '12' \(str\)"),
        ("bigint", pa.array([1.5]), r"column 'a' is bigint, and was given 1.5 \(float\)"),
        ("int", pa.array([True]), r"column 'a' is int, and was given True \(bool\)"),
        ("boolean", pa.array([2]), r"column 'a' is boolean, and was given 2 \(int\)"),
        ("float", pa.array([1e300]), r"column 'a' is float, and was given 1e\+300 \(float\): it is out of range"),
        ("timestamp", pa.array([5], pa.timestamp("us")), "it has no time zone"),
        ("array<int>", pa.array([[2**40]]), r"column 'a\[0\]' is int, and was given 1099511627776 \(int\)"),
    ],
)
def test_a_source_whose_batches_do_not_fit_its_schema_stops_the_job(declared: str, given: pa.Array, said: str) -> None:
    with pytest.raises(SourceFailed, match=said):
        conform(pa.RecordBatch.from_pydict({"a": given}), Schema({"a": declared}), "mine")


def test_a_source_may_give_the_same_values_in_other_types() -> None:
    given = {"a": pa.array([1, None], pa.int32()), "b": pa.array(["x", "y"], pa.large_string())}
    times = {"c": pa.array([1, 2], pa.timestamp("s", "UTC")), "d": pa.array(["x", "x"]).dictionary_encode()}
    times["e"] = pa.array([1_999, -1], pa.timestamp("ns", "UTC"))
    schema = Schema("a bigint, b string, c timestamp, d string, e timestamp")
    made = conform(pa.RecordBatch.from_pydict(given | times), schema, "mine")
    assert made.column("e").cast(pa.int64()).to_pylist() == [1, -1]
    assert made.schema.equals(schema.arrow)
    assert made.column("d").to_pylist() == ["x", "x"]
