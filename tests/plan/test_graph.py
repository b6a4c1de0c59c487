"""Pipelines are checked while they are built."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock as ps
from penstock import errors
from penstock.plan.fingerprint import fingerprints

SCHEMA = "symbol string, price double, size bigint, ts timestamp, at string"


def trades() -> ps.Stream:
    return ps.from_items([], SCHEMA).named("trades")


def timed() -> ps.Stream:
    return trades().event_time("ts", "5s")


def vwap(window: str = "60s") -> ps.Stream:
    windowed = timed().key_by("symbol").window(ps.tumbling(window))
    return windowed.aggregate(vwap="sum(price * size) / sum(size)")


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: trades().filter("pirce > 1"), errors.UnknownColumn, ["filter", "pirce", "did you mean 'price'?"]),
        (lambda: trades().select(x="summ(size)"), errors.UnknownFunction, ["select 'x'", "summ", "sum"]),
        (lambda: trades().filter("sum(size) > 1"), errors.AggregateNotAllowed, ["filter", "sum"]),
        (lambda: trades().key_by("symbol").aggregate(x="size"), errors.AggregateNotAllowed, ["aggregate 'x'"]),
        (lambda: trades().filter("size >"), errors.BadExpression, ["filter"]),
        (lambda: trades().filter("size"), errors.BadExpression, ["bigint"]),
        (lambda: ps.sliding("1s", "2s"), errors.BadWindow, ["slide"]),
        (lambda: ps.tumbling("0s"), errors.BadWindow, ["size"]),
        (lambda: ps.tumbling("one"), errors.BadValue, ["'one'"]),
        (lambda: trades().window(ps.tumbling("1s")).aggregate(n="count(*)"), errors.MissingEventTime, ["ts"]),
        (lambda: trades().deduplicate("symbol", "1m"), errors.MissingEventTime, ["deduplicate"]),
        (lambda: trades().event_time("at", "5s"), errors.BadSchema, ["to_timestamp(at)"]),
        (lambda: timed().event_time("ts", "5s"), errors.BadValue, ["already"]),
        (lambda: trades().key_by("sym"), errors.UnknownColumn, ["sym", "symbol"]),
        (lambda: trades().drop("x"), errors.UnknownColumn, ["drop"]),
        (lambda: trades().union(trades().drop("at")), errors.BadSchema, ["union", "first:"]),
        (lambda: trades().map("upper(symbol)"), errors.BadFunction, ["map"]),
        (lambda: trades().side("late"), errors.DanglingBranch, ["late"]),
        (lambda: trades().to("out"), errors.BadValue, ["is not a sink"]),
        (lambda: trades().key_by("symbol").aggregate(x="first(price)"), errors.AggregateNotAllowed, ["min_by"]),
        (lambda: ps.Pipeline("p"), errors.MissingSink, ["p", ".to(sink)"]),
        (lambda: ps.Pipeline("a b", trades().to(ps.collect())), errors.BadValue, ["a b"]),
        (lambda: ps.read_files("x.csv"), errors.BadSchema, ["schema"]),
        (lambda: ps.Schema("a strng"), errors.BadSchema, ["strng"]),
    ],
)
def test_a_mistake_has_its_own_error_with_the_node_and_the_choices(
    build: Any, error: type[errors.PenstockError], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        build()
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert [word for word in words if word not in text] == [], text


def test_only_stateless_nodes_may_follow_updates() -> None:
    updating = trades().key_by("symbol").aggregate(n="count(*)")
    for build in (
        lambda: updating.key_by("symbol").aggregate(m="sum(n)"),
        lambda: updating.map(dict),
        lambda: updating.drop("symbol"),
        lambda: updating.to(ps.files("out")),
    ):
        with pytest.raises(errors.UpdatingStream):
            build()
    assert updating.filter("n > 1").select("symbol", "n").to(ps.collect()).node.updating


def test_names_must_be_unique_where_state_or_data_hangs_on_them() -> None:
    one, two = vwap(), vwap("10s")
    with pytest.raises(errors.DuplicateName, match="'aggregate' is used 2 times"):
        ps.Pipeline("p", one.union(two).to(_sink("a")))
    graph = ps.Pipeline("p", one.to(_sink("a")), two.named("short").to(_sink("b"))).graph
    assert sorted(graph.names.values()).count("short") == 1
    with pytest.raises(errors.DuplicateName):
        ps.Pipeline("p", one.to(_sink("a")), one.filter("vwap > 1").to(_sink("a")))


def test_sources_come_first_sinks_last_and_equal_nodes_are_one() -> None:
    left, right = timed().filter("size > 0"), timed().filter("size > 0").select("symbol")
    graph = ps.Pipeline("p", left.to(_sink("a")), right.to(_sink("b"))).graph
    kinds = [node.kind for node in graph.nodes]
    assert kinds == ["read", "event_time", "filter", "select", "write", "write"]


def test_schemas_are_known_at_every_node() -> None:
    stream = vwap()
    assert stream.schema == ps.Schema(
        "symbol string, window_start timestamp not null, window_end timestamp not null, vwap double"
    )
    assert trades().rename(ticker="symbol").schema.names[0] == "ticker"


def test_a_plan_survives_json() -> None:
    late = vwap().side("late").filter("size > 1").to(ps.files("late"))
    pipeline = ps.Pipeline("p", vwap().to(ps.files("out")), late, rejected_to=ps.console())
    again = ps.Pipeline.from_json(pipeline.to_json())
    assert json.loads(again.to_json()) == json.loads(pipeline.to_json())
    assert fingerprints(again.graph) == fingerprints(pipeline.graph)
    assert again.explain() == pipeline.explain()


def test_python_cannot_be_written_as_json() -> None:
    with pytest.raises(errors.NotSerializable, match="map"):
        ps.Pipeline("p", trades().map(dict).to(ps.console())).to_json()
    with pytest.raises(errors.BadValue):
        ps.Pipeline.from_json('{"nodes": 3}')


def test_a_fingerprint_changes_with_what_state_means_and_with_nothing_else() -> None:
    def of(stream: ps.Stream) -> str:
        return fingerprints(ps.Pipeline("p", stream.to(_sink("a"))).graph)["aggregate"]

    same = timed().filter("size > 3").with_columns(extra="1").key_by("symbol").window(ps.tumbling("60s"))
    assert of(vwap()) == of(same.aggregate(vwap="sum(price * size) / sum(size)"))
    assert of(vwap("61s")) != of(vwap())
    assert of(same.aggregate(vwap="sum(size)")) != of(vwap())
    slower = trades().event_time("ts", "6s").key_by("symbol").window(ps.tumbling("60s"))
    assert of(slower.aggregate(vwap="sum(price * size) / sum(size)")) != of(vwap())


def test_explain_and_pictures_show_nodes_lanes_and_guarantees() -> None:
    shouted = timed().map(dict).filter("upper(symbol) = 'A'")
    pipeline = ps.Pipeline("p", vwap().to(ps.files("out")), shouted.to(ps.console()))
    text = pipeline.explain()
    for words in ("sum(price * size) / sum(size) as vwap", "exactly_once", "at_least_once", "lane spark", "state "):
        assert words in text
    assert "native partial" in ps.Pipeline("p", vwap().to(ps.files("out"))).explain()
    assert pipeline.to_dot().startswith('digraph "p" {')
    assert "flowchart LR" in pipeline.to_mermaid()
    assert "-->" in pipeline.to_mermaid()


def test_explain_says_where_rows_go_and_no_password() -> None:
    shop = "postgresql://ada:secret@db/shop"
    outputs = [
        trades().to(ps.files("out/")),
        trades().to(ps.topic("all")),
        trades().to(ps.topic("abroad", connection="kafka://ada:secret@a:1")),
        trades().to(ps.table("sold", connection=shop)),
        trades().to(ps.table("known", connection="crm")),
        trades().to(ps.webhook("https://ada:secret@hooks.example/orders")),
    ]
    text = ps.Pipeline("p", *outputs, rejected_to=ps.topic("bad")).explain()
    for place in (
        "from trades; to files 'out/'\n",
        "; to topic 'all'\n",
        "; to topic 'abroad' at kafka://ada:***@a:1\n",
        "; to table 'sold' at postgresql://ada:***@db/shop\n",
        "; to table 'known' of connection 'crm'\n",
        "; to webhook at https://hooks.example\n",
        "rejected rows: to topic 'bad', exactly_once",
    ):
        assert place in text
    assert "secret" not in text


def test_sql_refuses_what_it_cannot_stream() -> None:
    for query, words in {
        "SELECT * FROM t ORDER BY size": "ORDER BY",
        "SELECT * FROM t JOIN u": "JOIN",
        "SELECT * FROM nope": "unknown table 'nope'",
        "SELECT size, count(*) FROM t GROUP BY symbol": "neither an aggregate nor in GROUP BY",
        "DELETE FROM t": "cannot be streamed",
        "SELEC 1": "not Spark SQL",
    }.items():
        with pytest.raises(errors.BadExpression, match=words.replace("(", r"\(")):
            ps.sql(query, t=trades())
    stream = ps.sql("SELECT * FROM t UNION ALL SELECT * FROM t WHERE size > 1", t=trades())
    assert stream.schema == trades().schema


def _sink(name: str) -> Any:
    sink = ps.files(name)
    return sink
