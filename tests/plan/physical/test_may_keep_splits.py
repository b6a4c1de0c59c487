"""Which queries may have the splits of their source as partitions of their sink, so that no shuffle is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan.physical.planner import physical_plan
from penstock.spark.lowering.kept_splits import keeps_splits
from penstock.storage.folders import folder

SCHEMA = "n bigint, k string"
APPENDED = ps.table("out", connection="postgresql://127.0.0.1/shop")


def _planned(*outputs: ps.Output, kafka_reader: Any = "penstock") -> list[bool]:
    graph = ps.Pipeline("p", *outputs).graph
    return [query.may_keep_splits for query in physical_plan("p", graph, kafka_reader=kafka_reader).queries]


class Own(ps.Source):
    name, schema = "own", ps.Schema(SCHEMA)


def _shapes() -> Iterator[tuple[str, bool, Callable[[ps.Stream], ps.Stream]]]:
    yield "filter and columns", True, lambda rows: rows.filter("n > 1").select("n", up="upper(k)")
    yield "a function", True, lambda rows: rows.map(lambda row: row)
    yield "several rows of one", True, lambda rows: rows.flat_map(lambda row: [row, row])
    yield "a function with other answers each time", False, lambda rows: rows.map(lambda row: row, deterministic=False)
    yield "two ways to one sink", False, lambda rows: rows.filter("n > 1").union(rows.filter("n < 1"))
    yield "state", False, lambda rows: rows.event_time("ts", "1s").deduplicate("k", "1m")


@pytest.mark.parametrize(("keeps", "shape"), [pytest.param(*one[1:], id=one[0]) for one in _shapes()])
def test_only_what_runs_in_the_tasks_of_one_source_and_is_repeated_keeps_splits(
    keeps: bool, shape: Callable[[ps.Stream], ps.Stream]
) -> None:
    rows = ps.from_items([], f"{SCHEMA}, ts timestamp").named("rows")
    assert _planned(shape(rows).to(APPENDED)) == [keeps]


def test_two_sinks_another_reader_and_a_source_of_a_user_do_not_keep_splits() -> None:
    rows = ps.from_items([], SCHEMA).named("rows")
    assert _planned(rows.to(APPENDED), rows.to(ps.files("out")).named("second")) == [False]
    topic = ps.read_topic("t", schema=SCHEMA)
    assert _planned(topic.to(APPENDED)) == [True]
    assert _planned(topic.to(APPENDED), kafka_reader="spark") == [False]
    assert _planned(ps.read(Own()).to(APPENDED)) == [False]


def test_only_a_table_that_is_appended_to_by_several_tasks_takes_splits(tmp_path: Path) -> None:
    takes = {
        "append": APPENDED,
        "upsert": ps.table("out", connection="postgresql://127.0.0.1/shop", mode="upsert", key="k"),
        "no ledger": ps.table("out", connection="postgresql://127.0.0.1/shop", guarantee="at_least_once"),
        "one writer": ps.table("out", connection=f"sqlite:///{tmp_path}/out.db"),
        "files": ps.files("out"),
    }
    assert {name for name, sink in takes.items() if sink.takes_splits} == {"append"}


class Keyed(ps.Sink):
    name, key, partitions, takes_splits = "keyed", ("k",), 2, True


def test_a_keyed_sink_never_gets_splits(tmp_path: Path) -> None:
    """Rows of one key come in one partition, whatever the sink declares."""
    rows = ps.from_items([], SCHEMA).named("rows")
    for sink, keeps in ((Keyed(), False), (APPENDED, True)):
        graph = ps.Pipeline("p", rows.to(sink)).graph
        (query,) = physical_plan("p", graph).queries
        assert keeps_splits(query, graph.writes, folder(tmp_path)) is keeps
