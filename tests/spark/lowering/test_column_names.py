"""Promise: a column may have any name, in every node and in both lanes; what cannot be is refused when it is built."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

import penstock as ps
from penstock.settings import Settings
from penstock.spark.checkpoints.state.reader import read_state
from penstock.storage.folders import folder
from penstock.testing import AdvanceTime, Results, run_to_end
from tests.conftest import at, at_parallelism
from tests.odd_names import CASES, NAMES, backticked

# DuckDB, and so the native lane, takes names that differ in case for one, and braces are kept from it.
NATIVE = tuple(name for name in NAMES if name not in CASES and not {"{", "}"} & {*name})
KEYS = ("größe", "a.b", "a`b", "select", "null", "window", "key", "x" * 300, "🐟", "*", "日本")


def rows_of(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows whose values differ by column, so that no two can be mistaken for each other."""
    return [
        {"k": "ab"[row % 2], **{name: number * 10 + row % 2 for number, name in enumerate(names)}, "ts": at(row)}
        for row in range(6)
    ]


async def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def first(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return a


class Largest(ps.Aggregator):
    """The largest value, in an accumulator whose fields have odd names."""

    state = {"a.b": "bigint", "größe": "bigint"}
    result = "bigint"

    def start(self) -> Any:
        return {"a.b": 0, "größe": 0}

    def add(self, acc: Any, value: int) -> Any:
        return {"a.b": max(acc["a.b"], value), "größe": acc["größe"] + 1}

    def merge(self, a: Any, b: Any) -> Any:
        return {"a.b": max(a["a.b"], b["a.b"]), "größe": a["größe"] + b["größe"]}

    def finish(self, acc: Any) -> int:
        return int(acc["a.b"])


def process_of(schema: ps.Schema) -> ps.Process:
    class Same(ps.Process):
        output = schema
        sides = {"odd": {"größe": "bigint", "a.b": "bigint"}}
        seen = ps.state.value(int)

        def on_row(self, row: dict[str, Any], ctx: Any) -> Any:
            self.seen.set((self.seen.get() or 0) + 1)
            yield row
            yield "odd", {"größe": self.seen.get(), "a.b": ctx.key["a.b"]}

    return Same()


def sums(names: tuple[str, ...], call: str = "sum({})") -> dict[str, str]:
    return {name: call.format(backticked(name)) for name in names}


def stateless(source: ps.Stream, names: tuple[str, ...]) -> dict[str, ps.Stream]:
    quoted = [backticked(name) for name in names]
    more, less = ({name: f"{backticked(name)} {sign} 1000" for name in names} for sign in "+-")
    chosen = source.select("k", *quoted, "ts").with_columns(more).with_columns(less).select("k", *names, "ts")
    renamed = chosen.rename({f"{name}~": name for name in names}).rename({name: f"{name}~" for name in names})
    called = source.map(dict, source.schema).flat_map(lambda row: [row], source.schema)
    return {
        "sql": renamed.filter(" AND ".join(f"{one} >= 0" for one in quoted)),
        "python": called.map_async(same, source.schema).map_batches(lambda batch: batch, source.schema),
        "less": source.drop(*names[::2]).union(source.filter("k = 'a'").drop(*names[::2])),
    }


def judge_stateless(found: Results, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    assert in_order(found["sql"]) == in_order(rows)
    assert in_order(found["python"]) == in_order(rows)
    less = [{key: value for key, value in row.items() if key not in names[::2]} for row in rows]
    assert in_order(found["less"]) == in_order([*less, *(row for row in less if row["k"] == "a")])


def in_order(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(sorted(row.items())) for row in rows)


def stateful(source: ps.Stream, names: tuple[str, ...]) -> dict[str, ps.Stream]:
    timed = source.event_time("ts", "1s")
    by_name, by_k = timed.key_by(*KEYS), timed.key_by("k")
    minute, cut = ps.tumbling("1m"), ps.session("1m", max_length="1h")
    processed = by_name.process(process_of(timed.schema))
    other = timed.select("k", *map(backticked, KEYS), "ts").filter("k = 'a'")
    return {
        "tumbling": by_name.window(minute).aggregate(n_="count(*)"),
        "named": timed.key_by(**{"größe_": "`größe`"}).window(minute).aggregate({"a.b": "count(*)"}),
        "sums": by_k.window(minute).aggregate(sums(names)),
        "distinct": by_k.window(minute).aggregate(sums(KEYS, "count(DISTINCT {})")),
        "session": by_name.window(ps.session("1m")).aggregate(n_="count(*)"),
        "cut": by_name.window(cut).aggregate(n_="count(*)"),
        "cut_sums": by_k.window(cut).aggregate(sums(names)),
        "python": by_name.window(minute).aggregate({"größte.": Largest("`größe`"), "n": "count(*)"}),
        "reduce": by_name.window(minute).reduce(first),
        "top": timed.drop("rank").key_by(*KEYS).window(minute).top(1, by="`größe`"),
        "unique": timed.deduplicate(KEYS, within="1h"),
        "process": processed,
        "odd": processed.side("odd"),
        "join": timed.join(other, on=KEYS, within=("0s", "0s"), suffix=".ö"),
        "asof": timed.join_asof(other, on="k", suffix=" r"),
    }


def groups(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by their parity: `k`, and every odd name has one value in each group."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return found


def judge_stateful(found: Results, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    by_k = groups(rows)
    keys = {k: {name: mine[0][name] for name in KEYS} for k, mine in by_k.items()}
    for name in ("tumbling", "session", "cut"):
        assert in_order([_without_window(row) for row in found[name]]) == in_order(
            [{**key, "n_": 3} for key in keys.values()]
        ), name
    for name in ("sums", "cut_sums"):
        expected = [{"k": k, **{n: sum(row[n] for row in mine) for n in names}} for k, mine in by_k.items()]
        assert in_order([_without_window(row) for row in found[name]]) == in_order(expected), name
    ones_of = [{"k": k, **dict.fromkeys(KEYS, 1)} for k in by_k]
    assert in_order([_without_window(row) for row in found["distinct"]]) == in_order(ones_of)
    size = {k: mine[0]["größe"] for k, mine in by_k.items()}
    assert in_order([_without_window(row) for row in found["named"]]) == in_order(
        [{"größe_": value, "a.b": 3} for value in size.values()]
    )
    assert in_order([_without_window(row) for row in found["python"]]) == in_order(
        [{**key, "größte.": size[k], "n": 3} for k, key in keys.items()]
    )
    ones = [min(mine, key=lambda row: row["ts"]) for mine in by_k.values()]
    assert in_order([_without_window(row) for row in found["reduce"]]) == in_order(ones)
    assert in_order(found["unique"]) == in_order(ones)
    assert len(found["top"]) == 2
    assert in_order(found["process"]) == in_order(rows)
    assert in_order(found["odd"]) == in_order(
        [{"größe": n, "a.b": key["a.b"]} for key in keys.values() for n in (1, 2, 3)]
    )
    assert in_order([{name: row[name] for name in rows[0]} for row in found["join"]]) == in_order(by_k["a"])
    assert {(row["k"], row["größe r"]) for row in found["asof"]} == {("a", size["a"]), ("b", None)}


def _without_window(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("window_start", "window_end")}


# Plans of a hundred columns take Spark long: most runs have the worst of them.
FEW = (*KEYS, "order id", "it's", 'say "x"', "current_date", "true", "rank", "session_window", "c0", "?", "``", "a/b")
LONG = [pytest.param(names, "auto", cores, marks=pytest.mark.slow) for names, cores in ((FEW, 3), (NATIVE, 2))]
CASE = pytest.mark.parametrize(("names", "lane", "parallelism"), [(FEW, "auto", 1), *LONG, (NAMES, "spark", 1)])


def run(
    build: Callable[[ps.Stream, tuple[str, ...]], dict[str, ps.Stream]],
    names: tuple[str, ...],
    settings: Settings,
) -> tuple[Results, list[dict[str, Any]]]:
    rows = rows_of(names)
    schema = {"k": "string", **dict.fromkeys(names, "bigint"), "ts": "timestamp"}
    # Every sink has a name of its own, and no node needs one.
    outputs = [made.to(ps.collect()).named(name) for name, made in build(ps.from_items(rows, schema), names).items()]
    found = run_to_end(ps.Pipeline("odd", *outputs, rejected_to=ps.topic("bad")), {}, settings=settings)
    assert found["bad"] == []
    return found, rows


@CASE
def test_rows_keep_every_name(names: tuple[str, ...], lane: Any, parallelism: int, settings: Settings) -> None:
    chosen = replace(at_parallelism(settings, parallelism), lane=lane)
    judge_stateless(*run(stateless, names, chosen), names)


# In short, the windows of `test_state_and_tables_are_shown_by_every_name`.
@pytest.mark.slow
@CASE
def test_state_is_kept_by_every_name(names: tuple[str, ...], lane: Any, parallelism: int, settings: Settings) -> None:
    chosen = replace(at_parallelism(settings, parallelism), lane=lane)
    judge_stateful(*run(stateful, names, chosen), names)


@pytest.mark.slow
def test_updates_are_kept_by_every_name(settings: Settings) -> None:
    def build(source: ps.Stream, names: tuple[str, ...]) -> dict[str, ps.Stream]:
        counted = source.key_by(*KEYS).aggregate(n_="count(*)")
        return {
            "counted": counted.select(*map(backticked, KEYS), "n_"),
            "sums": source.key_by("k").aggregate(sums(names)),
            "reduced": source.key_by(*KEYS).reduce(first).named("reduced"),
            "python": source.key_by(*KEYS).aggregate({"größte.": Largest("`größe`")}).named("python"),
            "windows": source.rename(window_start="ts").key_by("window_start", "k").aggregate(n_="count(*)").named("w"),
        }

    found, rows = run(build, FEW, settings)
    by_k = groups(rows)
    assert max(row["n_"] for row in found["counted"]) == 3
    assert {row["größe"]: row["größte."] for row in found["python"]} == {n["größe"]: n["größe"] for n in rows}
    assert {row["k"] for row in found["reduced"]} == set(by_k)
    assert in_order(found["windows"]) == in_order([{"window_start": r["ts"], "k": r["k"], "n_": 1} for r in rows])
    newest = {row["k"]: row for row in found["sums"]}
    assert newest["a"]["a.b"] == sum(row["a.b"] for row in by_k["a"])


@pytest.mark.parametrize(("names", "lane"), [(FEW, "auto"), (NAMES, "spark")])
@pytest.mark.slow
def test_late_and_rejected_rows_keep_every_name(names: tuple[str, ...], lane: Any, settings: Settings) -> None:
    schema = {"k": "string", **dict.fromkeys(names, "bigint"), "ts": "timestamp"}
    source = ps.from_items([], schema).named("src")
    windows = source.event_time("ts", "0s").key_by(*KEYS).window(ps.tumbling("10s"), late_to=ps.topic("late"))
    divided = source.with_columns({"a.b": "100 div `größe`"}).select("k", "`a.b`")
    counted = windows.aggregate({"größe.n": "count(*)"})
    pipeline = ps.Pipeline(
        "odd", counted.to(ps.topic("src")), divided.to(ps.topic("divided")), rejected_to=ps.topic("bad")
    )
    late, *rows = rows_of(names)
    given = [*rows, AdvanceTime(at(60)), late]
    found = run_to_end(pipeline, {"src": given}, settings=replace(settings, lane=lane))
    assert in_order(found["late"]) == in_order([late])
    # The first column is 0 in rows of `a`, of which one came late.
    assert [(row["node"], json.loads(row["row"])) for row in found["bad"]] == [
        ("with_columns", {**row, "ts": row["ts"].isoformat().replace("+00:00", "Z")}) for row in rows if row["k"] == "a"
    ] + [("with_columns", {**late, "ts": late["ts"].isoformat().replace("+00:00", "Z")})]
    assert found.counts["aggregate"].late == 1
    assert sorted(row["größe.n"] for row in found["src"]) == [2, 3]


@pytest.mark.slow
def test_state_and_tables_are_shown_by_every_name(settings: Settings, tmp_path: Path) -> None:
    rows, schema = rows_of(FEW), {"k": "string", **dict.fromkeys(FEW, "bigint"), "ts": "timestamp"}
    with closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        database.execute('CREATE TABLE odd ("größe" INTEGER, "a.b" INTEGER, "select" TEXT)')
        database.executemany("INSERT INTO odd VALUES (?, ?, ?)", [(0, 7, "zero"), (1, 8, "one")])
    shape = {"größe": "bigint", "a.b": "bigint", "select": "string"}
    table = ps.read_table("odd", connection=f"sqlite:///{tmp_path}/x.db", key="größe", schema=shape)
    joined = ps.from_items(rows, schema).event_time("ts", "1s").join(table, on="größe", suffix=".t")
    counted = joined.key_by(*KEYS, "select.t").window(ps.tumbling("1m")).aggregate(n_="count(*)", t="max(`a.b.t`)")
    pipeline = ps.Pipeline("shown", counted.to(ps.files(str(tmp_path / "out"), partition_by=("größe", "a.b"))))
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    state = read_state(folder(tmp_path / "c"), settings)
    assert {*state.columns} >= {*KEYS, "select.t", "window_start", "window_end"}
    assert sorted((row["größe"], row["select.t"]) for row in state.rows) == [(0, "zero"), (1, "one")]
    pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
    files = f"read_parquet('{tmp_path}/out/*/*/*.parquet', hive_partitioning = false)"
    found = duckdb.sql(f'SELECT "größe", "window", "select.t", n_, t FROM {files} ORDER BY ALL').fetchall()
    window = {row["größe"]: row["window"] for row in rows}
    assert found == [(0, window[0], "zero", 3, 7), (1, window[1], "one", 3, 8)]


# --- random names: all build; a few run -------------------------------------------------------------

SIGNS = st.characters(exclude_categories=("Cc", "Cs"))
RANDOM = st.lists(st.text(SIGNS, min_size=1, max_size=12), min_size=2, max_size=5, unique_by=str.casefold).filter(
    lambda names: not any(name.lower().startswith("__penstock_") for name in names)
)


def random_branches(source: ps.Stream, names: tuple[str, ...]) -> dict[str, ps.Stream]:
    timed = source.event_time("ts", "1s")
    return {
        "select": source.select("k", *map(backticked, names), "ts"),
        "counts": timed.key_by(*names).window(ps.tumbling("1m")).aggregate(n_n="count(*)"),
        "sums": timed.key_by("k").window(ps.tumbling("1m")).aggregate(sums(names)),
        "unique": timed.deduplicate(names, within="1h"),
    }


def _free(names: list[str]) -> bool:
    taken = {"k", "ts", "n_n", "window_start", "window_end", "window_number"}
    return not taken & {name.casefold() for name in names}


@limits(deadline=None, max_examples=12)
@given(names=RANDOM.filter(_free))
def test_any_names_can_be_built_and_survive_json(names: list[str]) -> None:
    build_and_survive_json(names)


@pytest.mark.slow
@limits(deadline=None, max_examples=200)
@given(names=RANDOM.filter(_free))
def test_many_names_can_be_built_and_survive_json(names: list[str]) -> None:
    build_and_survive_json(names)


def build_and_survive_json(names: list[str]) -> None:
    source = ps.from_items([], {"k": "string", **dict.fromkeys(names, "bigint"), "ts": "timestamp"})
    made = random_branches(source, tuple(names))
    pipeline = ps.Pipeline("p", *(stream.to(ps.files(name)) for name, stream in made.items()))
    again = ps.Pipeline.from_json(pipeline.to_json())
    assert again.explain() == pipeline.explain()
    assert again.graph.reads[0].schema.names == ("k", *names, "ts")


@pytest.mark.slow
@limits(deadline=None, max_examples=4, derandomize=True)
@given(names=RANDOM.filter(_free))
def test_any_names_can_be_run(settings: Settings, names: list[str]) -> None:
    found, rows = run(random_branches, tuple(names), settings)
    by_k = groups(rows)
    assert in_order(found["select"]) == in_order(rows)
    ones = [mine[0] for mine in by_k.values()]
    assert in_order(found["unique"]) == in_order(ones)
    assert in_order([_without_window(row) for row in found["counts"]]) == in_order(
        [{**{name: one[name] for name in names}, "n_n": 3} for one in ones]
    )
    expected = [{"k": k, **{n: sum(row[n] for row in mine) for n in names}} for k, mine in by_k.items()]
    assert in_order([_without_window(row) for row in found["sums"]]) == in_order(expected)
