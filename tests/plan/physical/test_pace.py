"""What a pace asks of a pipeline is said when it is built: the node that stands in the way, and the choices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock.errors import BadValue, PaceRefused
from penstock.plan.physical.pace import runs_without_python

SCHEMA = "k string, n bigint, ts timestamp not null"
OUT = ps.topic("out", key="k")


def events(**options: object) -> ps.Stream:
    return ps.read_topic("events", schema=SCHEMA, **options)  # type: ignore[arg-type]


def windowed(**options: object) -> ps.Stream:
    keyed = events().event_time("ts", "5s").key_by("k")
    return keyed.window(ps.tumbling("10s"), **options).aggregate(c="count(*)")  # type: ignore[arg-type]


def test_an_unknown_pace_names_those_that_there_are() -> None:
    with pytest.raises(BadValue, match="did you mean 'realtime'"):
        ps.Pipeline("p", events().to(OUT), pace="realtim")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stream",
    [
        lambda: events().filter("n > 0").with_columns(m="n + 1").drop("n").rename(key="k").select("m", k="key"),
        lambda: events().key_by("k").aggregate(c="count(*)"),
        lambda: windowed(emit="updates"),
        lambda: ps.read_topic("lines", format="raw").select(k="value"),
    ],
)
def test_topics_and_sql_with_updates_run_at_realtime(stream: Callable[[], ps.Stream]) -> None:
    assert ps.Pipeline("p", stream().to(OUT), pace="realtime").pace == "realtime"


@pytest.mark.parametrize(
    ("build", "node", "why", "choice"),
    [
        (lambda: events().map(dict).to(OUT), "map 'map'", "calls no Python", "write it in SQL"),
        (lambda: events().to(ps.files("f")), "write 'f'", "FileSink is not a topic", "write a topic"),
        (lambda: ps.read_files("f", schema=SCHEMA, format="json").to(OUT), "read 'f'", "not a topic", "read a topic"),
        (lambda: events(format="csv").to(OUT), "read 'events'", "'csv'", "send json or raw"),
        (lambda: events(on_loss="continue").to(OUT), "read 'events'", "lost", 'on_loss="fail"'),
        (lambda: windowed().to(OUT), "aggregate 'aggregate'", "final window", 'emit="updates"'),
        (lambda: windowed(emit="updates", late_to=ps.topic("l")).to(OUT), "'aggregate'", "late rows", "late_to out"),
        (lambda: ps.read_topic("t", schema="k string, a array<int>").to(OUT), "read 't'", "column 'a'", "bigint"),
        (
            lambda: events().with_columns(t="try_cast(k as timestamp)").event_time("t", "5s").to(OUT),
            *("event_time 'event_time'", "'t' may be null", "timestamp not null"),
        ),
        (
            lambda: events().event_time("ts", "5s").deduplicate("k", "1m").to(OUT),
            *("deduplicate 'deduplicate'", "compares rows with the watermark", "where the topic is read"),
        ),
        (lambda: events().union(events().filter("n > 1")).to(OUT), "union 'union'", "no union", "leave it out"),
    ],
)
def test_what_stands_in_the_way_is_named_with_the_choice(
    build: Callable[[], ps.Output], node: str, why: str, choice: str
) -> None:
    with pytest.raises(PaceRefused) as refused:
        ps.Pipeline("p", build(), pace="realtime")
    assert str(refused.value).startswith("p / ")
    assert node in str(refused.value.node)
    assert why in refused.value.message
    assert choice in str(refused.value.hint)
    assert 'pace="fast"' in str(refused.value.hint)
    assert ps.Pipeline("p", build(), pace="fast").pace == "fast"


def test_a_sink_that_asks_for_exactly_once_is_refused_at_realtime() -> None:
    with pytest.raises(PaceRefused, match="at least once, not exactly once"):
        ps.Pipeline("p", events().to(ps.topic("out", guarantee="exactly_once")), pace="realtime")
    with pytest.raises(PaceRefused, match="at least once, not at most once"):
        ps.Pipeline("p", events().to(OUT), rejected_to=ps.topic("bad", guarantee="at_most_once"), pace="realtime")
    fast = ps.Pipeline("p", events().to(ps.topic("out", guarantee="exactly_once")), pace="fast")
    assert "sink 'out': exactly_once" in fast.explain()


def test_rejected_rows_go_to_a_topic_at_realtime() -> None:
    with pytest.raises(PaceRefused, match="'bad' is not a topic") as refused:
        ps.Pipeline("p", events().to(OUT), rejected_to=ps.files("bad"), pace="realtime")
    assert refused.value.node == "p / rejected_to"


def test_the_pace_stays_with_the_plan_and_can_be_changed() -> None:
    fast = ps.Pipeline("p", events().to(OUT), pace="fast")
    assert ps.Pipeline.from_json(fast.to_json()).pace == "fast"
    assert fast.paced("realtime").pace == "realtime"
    with pytest.raises(PaceRefused):
        ps.Pipeline("p", windowed().to(OUT)).paced("realtime")


def test_explain_says_what_a_pace_promises() -> None:
    text = ps.Pipeline("p", events().to(OUT), pace="realtime").explain()
    assert "pace realtime: no epochs, rows leave at once; at least once" in text
    assert "in Spark alone" in text
    assert "sink 'out': at_least_once, Spark's own connector writes it without a ledger" in text
    assert "pace throughput: epochs as large as pays" in ps.Pipeline("p", events().to(OUT)).explain()


def test_short_epochs_leave_python_out_where_no_row_can_be_late() -> None:
    assert runs_without_python(ps.Pipeline("p", events().key_by("k").aggregate(c="count(*)").to(OUT)).graph)
    assert not runs_without_python(ps.Pipeline("p", windowed(emit="updates").to(OUT)).graph)
    assert not runs_without_python(ps.Pipeline("p", events().map(dict).to(OUT)).graph)
