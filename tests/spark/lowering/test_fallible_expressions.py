"""Promise: SQL that fails on a row rejects that row, with its node and a reason, alike in both lanes; no other row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ExpressionFailed
from penstock.settings import Settings
from penstock.testing import EOF, Crash, Results, run_to_end
from tests.conftest import at

SCHEMA = (
    "id bigint, s string, i int, b bigint, d double, m decimal(38,2), ts timestamp, a array<int>, k map<string,int>"
)
Row = dict[str, Any]


def row(number: int, **given: Any) -> Row:
    usual = {"s": "1", "i": 1, "b": 1, "d": 1.0, "m": None, "ts": at(number), "a": [1, 2], "k": {"x": 1}}
    return {"id": number} | usual | given


ROWS = {
    "good": row(0),
    "nulls": row(1, s=None, i=None, b=None, d=None, a=None, k=None),
    "more": row(2, s="7", i=2, b=8, d=2.5, m=3),
    "text": row(10, s="x"),
    "zero": row(11, i=0, b=0, d=0.0),
    "large": row(12, i=2**31 - 1, b=2**63 - 1, m=10**35),
}
IDS = {name: one["id"] for name, one in ROWS.items()}


def source(name: str) -> ps.Stream:
    return ps.from_items([], SCHEMA).named(name)


def sink(name: str) -> Any:
    made = ps.collect()
    made.name = name
    return made


def pipeline(*outputs: ps.Output, rejects: bool = True) -> ps.Pipeline:
    return ps.Pipeline("p", *outputs, rejected_to=sink("bad") if rejects else None)


def run(made: ps.Pipeline, lane: str, settings: Settings, rows: list[Any] | None = None) -> Results:
    given = list(ROWS.values()) if rows is None else rows
    reads = [str(node.name) for node in made.graph.reads]
    return run_to_end(made, {name: list(given) for name in reads}, settings=replace(settings, lane=lane))


def rejected(out: Results) -> dict[str, dict[int, str]]:
    """The reasons of each node, by the ids of the rows; a row is rejected once."""
    found: dict[str, dict[int, str]] = {}
    for one in out["bad"]:
        number = json.loads(one["row"])["id"]
        assert number not in found.setdefault(one["node"], {}), "a row was rejected twice"
        assert (one["raw"], one["position"]) == (None, None)
        found[one["node"]][number] = one["reason"]
    return found


def add_up(out: Results) -> None:
    """Every row that comes to a node is in one count, and every rejected row was written."""
    written = Counter(one["node"] for one in out["bad"])
    for name, counts in out.counts.items():
        parts = (counts.used, counts.filtered, counts.late, counts.rejected, counts.duplicate, counts.dropped)
        assert counts.rows_in == sum(parts), name
        assert counts.rejected == written[name], name


class Largest(ps.Aggregator):
    """The largest ratio, in Python."""

    state = "most double"
    result = "double"

    def start(self) -> dict[str, Any]:
        return {"most": None}

    def add(self, acc: dict[str, Any], *values: Any) -> dict[str, Any]:
        known = [one for one in (acc["most"], values[0]) if one is not None]
        return {"most": max(known, default=None)}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return self.add(a, b["most"])

    def finish(self, acc: dict[str, Any]) -> Any:
        return acc["most"]


def every_kind(chosen: tuple[str, ...]) -> ps.Pipeline:
    """SQL that fails in every kind of node that takes SQL, or in those of some outputs."""
    # A rejected row may have a time that Python cannot have.
    given = source("a").with_columns(n="cast(s as int)", far="ts + interval '3650000' day").named("with")
    chain = given.filter("b / d > -100 or b is null").named("fil")
    wide = chain.select("id", "i", "n", "ts", x="b + 1").named("sel").event_time("ts", "1s")
    per_key = wide.key_by(k="n % 2").window(ps.tumbling("1h")).aggregate(n="count(*)", ratio="sum(x / (i - 2))")
    whole = source("b").event_time("ts", "1s").window(ps.tumbling("1h"))
    sums = whole.aggregate(n="count(*)", t="sum(b / d)", f="sum(b / i) FILTER (WHERE i <> 0)", p=Largest("i div 2"))
    parts = source("c").split(low="b / d < 2", high="b / d < 100")
    outputs = {
        "per-key": per_key.named("per-key-counts"),
        "sums": sums.named("sums-of"),
        "best": whole.top(2, by="cast(s as int)").select("id", "rank", "window_end").named("top-ids"),
        "low": parts["low"],
        "high": parts["high"],
        "rest": parts["rest"],
    }
    return pipeline(*(outputs[name].to(sink(name)) for name in chosen))


# Windows over all rows and top(by=) are in short in `test_sql_after_state_and_on_late_rows_rejects_too`, in one lane.
SHORT = ("per-key", "low", "high", "rest")


@pytest.mark.parametrize(
    "chosen", [SHORT, pytest.param((*SHORT, "sums", "best"), marks=pytest.mark.slow)], ids=["short", "all"]
)
def test_every_kind_of_node_rejects_the_rows_on_which_its_sql_fails_alike_in_both_lanes(
    chosen: tuple[str, ...], settings: Settings
) -> None:
    native, spark = (run(every_kind(chosen), lane, settings) for lane in ("auto", "spark"))
    for out in (native, spark):
        add_up(out)
        found = {node: set(reasons) for node, reasons in rejected(out).items()}
        text, zero, large, more = (IDS[kind] for kind in ("text", "zero", "large", "more"))
        of_rows = {"with": {text}, "fil": {zero}, "sel": {large}, "filter-low": {zero}, "per-key-counts": {more}}
        of_windows = {"sums-of": {zero}, "top": {text}} if "sums" in chosen else {}
        assert found == of_rows | of_windows
        assert {one["id"] for name in ("low", "high", "rest") for one in out[name]} == set(IDS.values()) - {zero}
        if "sums" in chosen:
            assert [one["n"] for one in out["sums"]] == [5]
            assert [one["id"] for one in sorted(out["best"], key=lambda one: one["rank"])] == [more, large]
        (row_of_filter,) = (json.loads(one["row"]) for one in out["bad"] if one["node"] == "fil")
        assert (row_of_filter["far"], row_of_filter["ts"]) == ("+12019-05-13T00:00:11Z", "2026-01-01T00:00:11Z")
    assert rejected(native)["sel"] == {IDS["large"]: '"b + 1" failed: overflow'}
    assert rejected(native)["with"] == {IDS["text"]: '"cast(s as int)" failed: it cannot be cast to int'}
    assert native.counts == spark.counts
    for name in native:
        assert sorted(map(repr, native[name])) == sorted(map(repr, spark[name])), name


# An expression, and the rows on which it fails.
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "b / d + b / d": ("zero",),
    "m * m": ("large",),
    "a[i]": ("more", "large"),
    "element_at(a, i)": ("zero", "large"),
    "to_date(s, 'd')": ("text",),
    "s = 1": ("text",),
    "nullif(b / d, 1)": ("zero",),
    "coalesce(try_cast(s as int), b div i)": (),
    "case when d <> 0 then b / d end": (),
    "d <> 0 and b / d > 1": (),
    "try_divide(b, d) is null or k['y'] is null": (),
}


# In short the lanes are compared by `every_kind`.
LANES = pytest.mark.parametrize("lane", ["auto", pytest.param("spark", marks=pytest.mark.slow)])


@LANES
def test_an_expression_that_fails_on_a_row_rejects_that_row_and_no_other(lane: str, settings: Settings) -> None:
    given = source("rows")
    outputs = [given.select("id", x=sql).named(f"n{n}").to(sink(f"o{n}")) for n, sql in enumerate(EXPRESSIONS)]
    out = run(pipeline(*outputs), lane, settings)
    add_up(out)
    for number, (sql, kinds) in enumerate(EXPRESSIONS.items()):
        bad = {IDS[kind] for kind in kinds}
        assert set(rejected(out).get(f"n{number}", {})) == bad, sql
        assert {one["id"] for one in out[f"o{number}"]} == set(IDS.values()) - bad, sql


# Spark converts values here without being asked to; or the part that fails is inside of one that cannot.
HIDDEN = [
    *(
        "s + 1",
        "s in (1, 2)",
        "s between 0 and 2",
        "i > s",
        "case s when 1 then 2 end",
        "nullif(s, i)",
        "coalesce(s, i)",
    ),
    *("if(b = 0, s, i)", "array(i, s)", "get(a, s)", "abs(s)", "sqrt(s)", "hex(b / d)"),
    *("struct(b div i as x).x", "size(filter(a, z -> 10 div z > 1))", "isnull(transform(a, z -> 1 div z))"),
    *("+s", "try_parse_url('http://h/?q=1', 'QUERY', replace(s, 'x', '('))"),
    "try_variant_get(try_parse_json('[1]'), replace(s, '1', '$[0]'), 'int')",
    *("try_element_at(a, i)", "element_at(array(struct(b div i as x)), 1).x"),
]


@LANES
def test_a_failure_inside_of_an_expression_that_seems_safe_rejects_its_row_too(lane: str, settings: Settings) -> None:
    # Each expression is evaluated on two rows of its own.
    guarded = {f"x{n}": f"case when id in ({2 * n}, {2 * n + 1}) then {sql} end" for n, sql in enumerate(HIDDEN)}
    bad = {"s": "x", "i": 0, "b": 0, "d": 0.0, "a": [0]}
    rows = [one for n in range(len(HIDDEN)) for one in (row(2 * n), row(2 * n + 1, **bad))]
    out = run(pipeline(source("rows").with_columns(**guarded).named("all").to(sink("out"))), lane, settings, rows)
    add_up(out)
    found = rejected(out)["all"]
    assert sorted(one["id"] for one in out["out"]) == [2 * n for n in range(len(HIDDEN))]
    for number, reason in found.items():
        assert HIDDEN[number // 2].lower() in reason.lower()


@LANES
def test_a_node_with_two_sinks_rejects_a_row_once_and_a_replay_does_not_repeat_it(
    lane: str, settings: Settings
) -> None:
    ratios = source("rows").with_columns(x="b / d").named("ratio")
    made = pipeline(ratios.to(sink("one")), ratios.filter("x > 1").to(sink("two")))
    early, late = list(ROWS.values())[:5], list(ROWS.values())[5:]
    out = run(made, lane, settings, [*early, Crash(), *late, row(20, d=0.0)])
    add_up(out)
    assert set(rejected(out)["ratio"]) == {IDS["zero"], 20}
    assert (out.counts["ratio"].rows_in, out.counts["ratio"].rejected, len(out["one"])) == (7, 2, 5)


# In short without an updating stream.
@pytest.mark.parametrize("updating", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["short", "all"])
def test_sql_after_state_and_on_late_rows_rejects_too(updating: bool, settings: Settings) -> None:
    timed = source("rows").event_time("ts", "1s")
    counted = timed.key_by("id").window(ps.tumbling("1s")).aggregate(low="min(d)", high="max(b)").named("counted")
    totals = source("totals").key_by("id").aggregate(d="min(d)", b="max(b)")
    late = counted.side("late").with_columns(x="b / d").named("late-ratio")
    now = totals.with_columns(x="b / d").named("now").to(sink("totals-out"))
    made = pipeline(
        counted.select("id", x="high / low").named("ratio").to(sink("ratios")),
        *([now] if updating else []),
        late.to(sink("late")),
        timed.window(ps.tumbling("1h")).aggregate(all="collect_list(b div i)").named("lists").to(sink("lists-out")),
        timed.window(ps.tumbling("1h")).top(2, by="cast(s as int)").named("best").to(sink("best-out")),
    )
    behind = [row(30, d=0.0) | {"ts": at(1)}, row(31) | {"ts": at(1)}]
    out = run(made, "auto", settings, [*ROWS.values(), EOF, *behind])
    add_up(out)
    found = {node: set(reasons) for node, reasons in rejected(out).items()}
    zero = IDS["zero"]
    of_updates = {"now": {zero, 30}} if updating else {}
    assert found == {"ratio": {zero}, "late-ratio": {30}, "lists": {zero}, "best": {IDS["text"]}} | of_updates
    assert [one["id"] for one in out["late"]] == [31]


def test_a_row_whose_key_in_the_sink_fails_is_rejected_by_the_sink(tmp_path: Path, settings: Settings) -> None:
    keyed, bad = sink("keyed"), sink("bad")
    keyed.row_key, keyed.row_removed = "b div i", "cast(s as int) < 0"
    rows = ps.from_items(list(ROWS.values()), SCHEMA).named("rows")
    made = ps.Pipeline("p", rows.to(keyed), rows.select("id", x="b / d").to(sink("x")), rejected_to=bad)
    report = made.run(until="ended", checkpoint=str(tmp_path / "checkpoint"), settings=settings)
    assert {one["id"] for one in keyed.rows} == set(IDS.values()) - {IDS["zero"], IDS["text"]}
    found = sorted((one["node"], json.loads(one["row"])["id"], one["reason"]) for one in bad.rows)
    assert found == [
        ("keyed", IDS["text"], '"CAST(s AS INT)" failed in "cast(s as int) < 0": it cannot be cast to int'),
        ("keyed", IDS["zero"], '"b div i" failed: division by zero or overflow'),
        ("select", IDS["zero"], '"b / d" failed: division by zero'),
    ]
    assert (report.counts["keyed"].rows_in, report.counts["keyed"].used, report.counts["keyed"].rejected) == (6, 4, 2)


def test_rejected_to_can_be_added_to_a_job_that_failed_on_a_row(tmp_path: Path, settings: Settings) -> None:
    def job(rejects: bool) -> ps.Pipeline:
        timed = ps.from_items(list(ROWS.values()), SCHEMA).named("rows").event_time("ts", "1s")
        sums = timed.key_by("id").window(ps.tumbling("1h")).aggregate(t="sum(b / d)").named("sums")
        return ps.Pipeline("p", sums.to(out), rejected_to=bad if rejects else None)

    out, bad = sink("out"), sink("bad")
    given = {"until": "ended", "checkpoint": str(tmp_path / "checkpoint"), "settings": settings}
    with pytest.raises(ExpressionFailed, match="sums"):
        job(rejects=False).run(**given)
    report = job(rejects=True).run(**given)
    assert ([json.loads(one["row"])["id"] for one in bad.rows], len(out.rows)) == ([IDS["zero"]], 5)
    assert report.counts["sums"].rejected == 1


RATIO = (lambda rows: rows.select("id", x="b / d").named("ratio"), "select 'ratio'", "b / d")
KEPT = (lambda rows: rows.filter("cast(s as int) > 0").named("kept"), "filter 'kept'", "cast(s as int)")


# In short one of them; test_stateless.py has the other lane.
@pytest.mark.parametrize(
    ("make", "label", "sql", "lane"),
    [
        (*KEPT, "spark"),
        pytest.param(*RATIO, "auto", marks=pytest.mark.slow),
        pytest.param(*RATIO, "spark", marks=pytest.mark.slow),
        pytest.param(*KEPT, "auto", marks=pytest.mark.slow),
    ],
)
def test_without_rejected_to_the_job_stops_and_names_node_and_expression(
    make: Callable[[ps.Stream], ps.Stream], label: str, sql: str, lane: str, settings: Settings
) -> None:
    made = pipeline(make(source("rows")).to(sink("out")), rejects=False)
    with pytest.raises(ExpressionFailed) as failed:
        run(made, lane, settings)
    assert label in str(failed.value)
    assert sql in str(failed.value)
    assert "rejected_to" in str(failed.value.hint)
