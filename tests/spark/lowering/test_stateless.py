"""Stateless nodes, Python functions and branches on Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.contracts import Offsets
from penstock.errors import ExpressionFailed, FunctionFailed, RowRejected
from penstock.settings import Settings
from penstock.testing import EOF, Results, assert_rows, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint"


def rows() -> ps.Stream:
    return ps.from_items([], SCHEMA).named("rows")


def run(stream: ps.Stream, given: list[Any], settings: Settings, **options: Any) -> Any:
    return run_to_end(ps.Pipeline("p", stream.to(ps.collect()), **options), {"rows": given}, settings=settings)


@pytest.fixture(scope="module", params=["auto", "spark"])
def lane(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    return dataclasses.replace(settings, lane=request.param)


def test_columns_are_selected_computed_renamed_and_dropped(lane: Settings) -> None:
    stream = rows().with_columns(w="v * 2").filter("w > 2").rename(key="k").drop("v").select("key", "w")
    out = run(stream, [("a", 1), ("b", 2), ("c", None)], lane)
    assert_rows(out["collect"], [{"key": "b", "w": 4}])
    assert out.counts["filter"].filtered == 2


def test_names_that_are_no_identifiers_work(lane: Settings) -> None:
    stream = ps.from_items([], {"order id": "bigint"}).named("rows").with_columns({"a b": "`order id` + 1"})
    out = run(stream, [(1,)], lane)
    assert_rows(out["collect"], [{"order id": 1, "a b": 2}])


class Helper:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def plus(self, v: int) -> int:
        return v + 1

    def close(self) -> None:
        Path(self.marker).touch()


@pytest.fixture(scope="module")
def called(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """Python functions of every kind over the same two rows, and the note of a helper that was closed."""

    def double(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"v": row["v"] * 2}

    def twice(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield row
        yield row | {"k": row["k"].upper()}

    def plus_one(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "v", pc.add(batch.column("v"), 1))

    def split(row: dict[str, Any]) -> Iterator[Any]:
        yield ("odd", {"v": row["v"]}) if row["v"] % 2 else row

    marker = tmp_path_factory.mktemp("helper") / "closed"
    note = str(marker)
    parted = rows().flat_map(split, sides={"odd": "v bigint"})
    streams = {
        "chain": rows().map(double).flat_map(twice).map_batches(plus_one),
        "points": rows().map(_to_point),
        "helped": rows().map(lambda row, helper: row | {"v": helper.plus(row["v"])}, using=lambda: Helper(note)),
        "even": parted,
        "odd": parted.side("odd"),
    }
    pipeline = ps.Pipeline("p", *(stream.to(ps.collect()).named(name) for name, stream in streams.items()))
    return run_to_end(pipeline, {"rows": [("a", 1), ("b", 2)]}, settings=settings), marker


def test_map_flat_map_and_map_batches_call_python(called: tuple[Results, Path]) -> None:
    expected = [("a", 3), ("A", 3), ("b", 5), ("B", 5)]
    assert_rows(called[0]["chain"], [{"k": k, "v": v} for k, v in expected])


def test_a_function_may_take_and_return_dataclasses(called: tuple[Results, Path]) -> None:
    assert_rows(called[0]["points"], [{"x": 1, "y": 2.0}, {"x": 2, "y": 2.0}])


def test_using_gives_a_helper_that_is_closed(called: tuple[Results, Path]) -> None:
    out, marker = called
    assert_rows(out["helped"], [{"k": "a", "v": 2}, {"k": "b", "v": 3}])
    assert marker.exists()


def test_flat_map_has_named_sides(called: tuple[Results, Path]) -> None:
    assert_rows(called[0]["even"], [{"k": "b", "v": 2}])
    assert_rows(called[0]["odd"], [{"v": 1}])


def test_event_time_travels_through_python(settings: Settings) -> None:
    timed = ps.from_items([], "k string, ts timestamp").named("rows").event_time("ts", "1s")
    shouted = timed.map(lambda row: {"k": row["k"].upper()}, "k string")
    stream = shouted.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)")
    late = stream.side("late").to(ps.collect()).named("late")
    pipeline = ps.Pipeline("p", stream.to(ps.collect()), late)
    given = [("a", at(1)), ("a", at(50)), EOF, ("a", at(2)), ("b", at(51))]
    out = run_to_end(pipeline, {"rows": given}, settings=settings)
    assert {(r["k"], r["window_start"], r["n"]) for r in out["collect"]} == {
        ("A", at(0), 1),
        ("A", at(50), 1),
        ("B", at(50), 1),
    }
    assert_rows(out["late"], [{"k": "A"}])


def test_a_function_that_raises_sends_its_row_to_the_rejected_rows(settings: Settings) -> None:
    stream = rows().map(lambda row: row | {"v": 10 // row["v"]}).named("divide")
    out = run(stream, [("a", 5), ("b", 0)], settings, rejected_to=_named(ps.collect(), "bad"))
    assert_rows(out["collect"], [{"k": "a", "v": 2}])
    (bad,) = out["bad"]
    assert bad["node"] == "divide"
    assert "ZeroDivisionError" in bad["reason"]
    assert '"k": "b"' in bad["row"]
    assert out.counts["divide"].rejected == 1


def test_without_a_place_for_rejected_rows_a_function_that_raises_stops_the_job(settings: Settings) -> None:
    stream = rows().map(_divide).named("divide")
    with pytest.raises(FunctionFailed) as caught:
        run(stream, [("a", 5), ("b", 0)], settings)
    text = str(caught.value)
    assert "map 'divide'" in text
    assert "_divide" in text
    assert "'k': 'b'" in text


def test_an_expression_that_fails_on_a_row_names_node_expression_and_help(settings: Settings) -> None:
    stream = rows().with_columns(q="10 div v").named("quotient")
    with pytest.raises(ExpressionFailed) as caught:
        run(stream, [("a", 0)], settings)
    assert "with_columns 'quotient'" in str(caught.value)
    assert "10 div v" in str(caught.value)
    assert "try_divide" in str(caught.value)


def test_an_overflow_in_the_native_lane_names_node_and_row(settings: Settings) -> None:
    stream = rows().with_columns(w="v * v").named("square")
    with pytest.raises(ExpressionFailed) as caught:
        run(stream, [("a", 3), ("b", 2**62)], settings)
    assert "with_columns 'square'" in str(caught.value)
    assert "'k': 'b'" in str(caught.value)


@pytest.fixture(scope="module")
def refused(lane: Settings) -> Results:
    """Three sources, each with rows that are rejected for another reason."""
    streams = {
        "parsed": rows().select("k"),
        "dated": ps.from_items([], "k string, ts timestamp").named("times").event_time("ts", "1s"),
        "keyed": ps.from_items([], "k string not null, v bigint").named("keys"),
    }
    outputs = [stream.to(ps.collect()).named(name) for name, stream in streams.items()]
    inputs = {
        "rows": [b'{"k": "a", "v": 1}', b'{"k": "a", "v": "x"}', b"{"],
        "times": [("a", at(1)), ("b", None)],
        "keys": [("a", 1), (None, 2)],
    }
    pipeline = ps.Pipeline("p", *outputs, rejected_to=_named(ps.collect(), "bad"))
    return run_to_end(pipeline, inputs, settings=lane)


def _bad(out: Results, source: str) -> list[Any]:
    return [row for row in out["bad"] if row["source"] == source]


def test_rows_that_do_not_parse_are_rejected_with_reason_and_bytes(refused: Results) -> None:
    assert len(refused["parsed"]) == 1
    bad = _bad(refused, "rows")
    assert {r["raw"] for r in bad} == {b'{"k": "a", "v": "x"}', b"{"}
    assert all(r["reason"] for r in bad)
    counts = refused.counts["rows"]
    assert (counts.rows_in, counts.used, counts.rejected) == (3, 1, 2)


def test_a_row_without_event_time_is_rejected(refused: Results) -> None:
    assert [r["k"] for r in refused["dated"]] == ["a"]
    bad = [(r["node"], r["reason"]) for r in refused["bad"] if r["node"].startswith("event_time")]
    assert bad == [("event_time", "event time 'ts' is null")]


def test_not_null_is_kept(refused: Results) -> None:
    assert [r["k"] for r in refused["keyed"]] == ["a"]
    (bad,) = _bad(refused, "keys")
    assert "column k: null" in bad["reason"]


def test_branches_read_their_source_once(settings: Settings, tmp_path: Path) -> None:
    source = Counting(tmp_path / "reads")
    stream = ps.read(source).with_columns(w="v + 1")
    low, high = stream.filter("v < 3").select("v"), stream.filter("v >= 3").select("w")
    outputs = [low.to(_named(ps.collect(), "low")), high.to(_named(ps.collect(), "high"))]
    pipeline = ps.Pipeline("p", *outputs)
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
    assert report.rows == {"low": 3, "high": 3}
    assert (tmp_path / "reads").read_text() == "read 0 6\n"
    assert report.counts["counting"].rows_in == 6


def test_streams_union_and_sources_mix(settings: Settings) -> None:
    other = ps.from_items([], SCHEMA).named("others").select("k", v="v * 100")
    pipeline = ps.Pipeline("p", rows().union(other).to(ps.collect()))
    out = run_to_end(pipeline, {"rows": [("a", 1)], "others": [("b", 2)]}, settings=settings)
    assert_rows(out["collect"], [{"k": "a", "v": 1}, {"k": "b", "v": 200}])


def test_on_error_fail_stops_at_the_first_bad_row(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,1\nb,x\n")
    stream = ps.read_files(str(tmp_path / "in.csv"), schema=SCHEMA, on_error="fail")
    with pytest.raises(RowRejected, match=r"in\.csv"):
        ps.Pipeline("p", stream.to(ps.collect())).run(until="ended", checkpoint=tmp_path / "c", settings=settings)


@dataclasses.dataclass
class Pair:
    k: str
    v: int | None


@dataclasses.dataclass
class Point:
    x: int
    y: float


def _to_point(pair: Pair) -> Point:
    return Point(x=pair.v or 0, y=2.0)


def _divide(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"v": 10 // row["v"]}


def _named(sink: Any, name: str) -> Any:
    sink.name = name
    return sink


class Counting(ps.Source):
    """Six rows, and a note of every read."""

    name = "counting"
    schema = ps.Schema("v bigint")

    def __init__(self, path: Path) -> None:
        self.path = path

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        return {"0": 6}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        with self.path.open("a") as file:
            file.write(f"read {start or 0} {end}\n")
        yield pa.RecordBatch.from_pydict({"v": list(range(start or 0, end))})

    def ended(self, offsets: Offsets) -> bool:
        return offsets == {"0": 6}
