"""Split: every row goes to exactly one branch, whatever its conditions make of nulls, and the counts add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadExpression, BadValue, UnknownColumn
from penstock.settings import Settings
from penstock.testing import EOF, Crash, assert_rows, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint, ts timestamp"


def row(k: str | None, v: int | None, seconds: float) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


ROWS = [row("a", 1, 1), row("b", 20, 2), row(None, 30, 3), row("a", None, 4), row("c", None, 5), row("it's", 5, 6)]


@pytest.mark.parametrize("lane", ["auto", "spark"])
def test_each_row_goes_to_the_first_branch_that_holds_and_nulls_hold_nowhere(lane: str, settings: Settings) -> None:
    timed = ps.from_items([], SCHEMA).named("rows").event_time("ts", "1s")
    # `100 / v` would fail on no row: what an earlier branch took is not asked again.
    parts = timed.split({"it's": "k = 'it''s' -- quoted"}, big="v > 10", a="k = 'a' AND NOT v <=> 0")
    counted = parts["a"].window(ps.tumbling("10s")).aggregate(n="count(*)").named("windows")
    outputs = [stream.to(ps.collect()).named(f"out-{number}") for number, stream in enumerate(parts.values())]
    pipeline = ps.Pipeline("p", *outputs, counted.to(ps.collect()).named("counted"))
    out = run_to_end(
        pipeline,
        {"rows": [*ROWS[:3], Crash() if lane == "spark" else EOF, *ROWS[3:]]},
        settings=replace(settings, lane=lane),
    )
    assert list(parts) == ["it's", "big", "a", "rest"]
    assert_rows(out["out-0"], ROWS[5:])
    assert_rows(out["out-1"], ROWS[1:3])
    assert_rows(out["out-2"], [ROWS[0], ROWS[3]])
    assert_rows(out["out-3"], [ROWS[4]])
    assert [one["n"] for one in out["counted"]] == [2]
    filters = [counts for name, counts in out.counts.items() if name.startswith("filter")]
    assert [counts.rows_in for counts in filters] == [6] * 4
    assert sum(counts.used for counts in filters) == 6
    assert all(counts.rows_in == counts.used + counts.filtered for counts in filters)
    assert out.counts["rows"].rows_in == 6


@pytest.mark.slow
def test_results_of_windows_and_updating_rows_are_split_too(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows")
    totals = rows.key_by("k").aggregate(v="sum(v)").named("totals").split(known="k IS NOT NULL")
    counts = rows.event_time("ts", "1s").key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)").named("n")
    many = counts.split(many="n > 1")
    outputs = {
        "totals-known": totals["known"],
        "totals-rest": totals["rest"],
        "many": many["many"],
        "one": many["rest"],
    }
    pipeline = ps.Pipeline("p", *(stream.to(ps.collect()).named(name) for name, stream in outputs.items()))
    out = run_to_end(pipeline, {"rows": ROWS}, settings=settings)
    assert_rows(out["totals-rest"], [{"k": None, "v": 30}])
    assert sorted(one["k"] for one in out["totals-known"]) == ["a", "b", "c", "it's"]
    assert [one["k"] for one in out["many"]] == ["a"]
    assert {one["k"] for one in out["one"]} == {"b", None, "c", "it's"}


def test_mistakes_are_reported_when_the_pipeline_is_built() -> None:
    items = ps.from_items([], SCHEMA)
    with pytest.raises(UnknownColumn, match=r"split 'bad'.*'prize'"):
        items.split(good="v > 1", bad="prize > 1")
    with pytest.raises(BadExpression, match=r"split 'bad'.*boolean"):
        items.split(bad="v + 1")
    with pytest.raises(BadValue, match="split: no condition"):
        items.split()
    with pytest.raises(BadValue, match="duplicate branch 'rest'"):
        items.split(rest="v > 1")
    with pytest.raises(BadValue, match="duplicate branch 'a'"):
        items.split({"a": "v > 1"}, a="v > 2")


def test_a_split_is_written_as_json_and_read_again() -> None:
    parts = ps.from_items([], SCHEMA).split(big="v > 10")
    outputs = [stream.to(ps.files(name)) for name, stream in parts.items()]
    text = ps.Pipeline("p", *outputs).to_json()
    assert ps.Pipeline.from_json(text).to_json() == text


def test_a_function_names_the_output_of_each_row(settings: Settings) -> None:
    def parse(row: dict[str, Any]) -> Any:
        yield {"word": row["line"]} if row["line"].isalpha() else ("numbers", {"number": int(row["line"])})
        yield "all", {"line": row["line"]}

    lines = ps.from_items([{"line": one} for one in ("a", "1", "b")], "line string").named("lines")
    words = lines.flat_map(parse, "word string", sides={"numbers": "number bigint", "all": "line string"})
    sides = [words.side(name).to(ps.collect()).named(name) for name in ("numbers", "all")]
    out = run_to_end(ps.Pipeline("p", words.to(ps.collect()).named("words"), *sides), {}, settings=settings)
    assert_rows(out["words"], [{"word": "a"}, {"word": "b"}])
    assert_rows(out["numbers"], [{"number": 1}])
    assert len(out["all"]) == 3
