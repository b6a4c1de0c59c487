"""Topics in pipelines on Spark: the same rows by either reader, from either broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.errors import CheckpointMismatch, MissingPart, SourceFailed, UnknownColumn
from penstock.settings import Settings
from penstock.testing import AdvanceTime, Crash, run_to_end
from tests.conftest import at_parallelism
from tests.connectors.kafka_topics import Topic, fresh

# In short, each broker and each reader once.
BOTH_ONCE = pytest.mark.parametrize(
    ("broker", "reader"),
    [
        ("event_log", "penstock"),
        ("event_log", "spark"),
        pytest.param("kafka", "spark", marks=pytest.mark.slow),
        pytest.param("kafka", "penstock", marks=pytest.mark.slow),
    ],
    indirect=True,
)
TRADES = "symbol string not null, price double, size bigint, ts timestamp"


@pytest.fixture(params=["penstock", "spark"])
def reader(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Both readers: ours, and Spark's connector where its jars are to be had."""
    if request.param == "spark":
        from penstock.spark.session.jars import fetch

        try:
            fetch("kafka")
        except MissingPart as error:
            pytest.skip(f"Spark's Kafka connector cannot be fetched: {error}")
    return replace(settings, kafka_reader=request.param, epoch_rows=4)


def trade(second: int, symbol: str = "A", size: int = 1) -> bytes:
    time = f"2026-01-01T10:{second // 60:02}:{second % 60:02}Z"
    return f'{{"symbol":"{symbol}","price":{second}.5,"size":{size},"ts":"{time}"}}'.encode()


def vwap(topic: Topic, **sinks: Any) -> ps.Pipeline:
    trades = ps.read_topic(topic.name, schema=TRADES, connection=topic.bootstrap).named("trades")
    out = (
        trades.filter("size > 0")
        .event_time("ts", "5s")
        .key_by("symbol")
        .window(ps.tumbling("60s"), late_to=sinks.get("late"))
        .aggregate(total="sum(price * size)", n="count(*)")
    )
    return ps.Pipeline("vwap", out.to(sinks["prices"]), rejected_to=sinks.get("bad"))


@BOTH_ONCE
def test_windows_late_and_bad_rows_are_the_same_whoever_reads(broker: str, reader: Settings, tmp_path: Any) -> None:
    topic = fresh(broker).create(1)
    out, late, bad = ps.collect(), ps.collect(), ps.collect()
    late.name, bad.name = "late", "bad"
    topic.produce([trade(1), trade(2, "B"), b"{", trade(3, size=0), trade(200), trade(201, "B"), trade(202), None])
    pipeline = vwap(topic, prices=out, late=late, bad=bad)
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=reader)
    topic.produce([trade(4), trade(203)])
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=reader)
    assert sorted((row["symbol"], row["total"], row["n"]) for row in out.rows) == [
        ("A", 1.5, 1),
        ("A", 200.5 + 202.5 + 203.5, 3),
        ("B", 2.5, 1),
        ("B", 201.5, 1),
    ]
    assert [row["price"] for row in late.rows] == [4.5]
    assert [row["position"] for row in bad.rows] == [f"{topic.name}/0@2", f"{topic.name}/0@7"]
    counts = report.counts["trades"]
    assert (counts.rows_in, counts.rejected) == (10, 2)
    assert topic.committed("penstock-vwap") == {0: 10}


@BOTH_ONCE
def test_what_is_included_is_the_same_whoever_reads(broker: str, reader: Settings, tmp_path: Any) -> None:
    topic = fresh(broker).create(2)
    topic.produce([b"x"], partition=1, key=b"k", headers=[("h", b"1")], timestamp=1_767_225_600_123)
    topic.produce([b"y"], timestamp=1_767_225_600_000)
    included = ["key", "headers", "partition", "offset", "timestamp"]
    rows = ps.read_topic(topic.name, format="raw", include=included, connection=broker)
    out = ps.collect()
    ps.Pipeline("p", rows.to(out)).run(until="drained", checkpoint=tmp_path / "c", settings=reader)
    found = sorted(out.rows, key=lambda row: row["value"])
    assert [row["_key"] for row in found] == [b"k", None]
    assert [row["_headers"] for row in found] == [[{"key": "h", "value": b"1"}], None]
    assert [(row["_partition"], row["_offset"]) for row in found] == [(1, 0), (0, 0)]
    assert [row["_timestamp"].microsecond for row in found] == [123_000, 0]


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_keyed_topic_takes_rows_late_rows_and_bad_rows(
    restarts: bool, event_log: str, settings: Settings, tmp_path: Any
) -> None:
    topic, names = fresh(event_log).create(1), {name: fresh(event_log, name) for name in ("prices", "late", "bad")}
    keys = {"prices": "lower(symbol)", "late": "symbol", "bad": "node"}
    sinks = {name: ps.topic(one.name, key=keys[name], connection=event_log) for name, one in names.items()}
    topic.produce([trade(1), trade(200), b"{"])
    pipeline, on = vwap(topic, **sinks), settings if restarts else at_parallelism(settings, 1)
    run = pipeline.start(checkpoint=tmp_path / "c", settings=on)
    run.process_available()
    if restarts:
        run.stop()
        run.wait()
        run = pipeline.start(checkpoint=tmp_path / "c", settings=on)
    topic.produce([trade(2)])
    run.process_available()
    run.end()
    run.wait()
    found = {name: one.consume() for name, one in names.items()}
    assert [message.key() for message in found["prices"]] == [b"a", b"a"]
    assert b"__penstock" not in found["prices"][0].value()
    assert [message.key() for message in found["late"]] == [b"A"]
    assert [message.key() for message in found["bad"]] == [b"trades"]


def test_a_loss_stops_the_job_and_says_what_to_do(event_log: str, settings: Settings, tmp_path: Any) -> None:
    topic, out = fresh(event_log).create(1), ps.collect()
    topic.produce([trade(1), trade(2)])
    pipeline = vwap(topic, prices=out)
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    topic.delete().create(1).produce([trade(3)])
    with pytest.raises(SourceFailed, match="deleted and recreated") as caught:
        pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    assert caught.value.node == "read 'trades'"
    assert 'on_loss="continue"' in str(caught.value)


def test_a_checkpoint_stays_with_its_reader(event_log: str, settings: Settings, tmp_path: Any) -> None:
    topic = fresh(event_log).create(1)
    pipeline = vwap(topic, prices=ps.collect())
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    with pytest.raises(CheckpointMismatch, match="kafka_reader = 'penstock', not 'spark'"):
        pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=replace(settings, kafka_reader="spark"))


@pytest.mark.slow
def test_the_test_kit_needs_no_broker(settings: Settings) -> None:
    pipeline = vwap(Topic("127.0.0.1:1", "trades"), prices=ps.topic("prices"), late=ps.topic("l"), bad=ps.topic("bad"))
    first = {"symbol": "A", "price": 1.0, "size": 1, "ts": "2026-01-01T10:00:05Z"}
    items = [first, Crash(), AdvanceTime("2026-01-01T10:02Z"), first | {"price": 2.0}, b"{", trade(300)]
    out = run_to_end(pipeline, {"trades": items}, settings=settings)
    assert [row["total"] for row in out["prices"]] == [1.0, 300.5]
    assert len(out["l"]) == len(out["bad"]) == 1


def test_raw_payloads_reach_the_test_kit_as_they_are(settings: Settings) -> None:
    lines = ps.read_topic("lines", format="raw", schema="line string", include="key")
    pipeline = ps.Pipeline("p", lines.to(ps.topic("out")), rejected_to=ps.topic("bad"))
    out = run_to_end(pipeline, {"lines": [b"{", {"line": "x", "_key": b"k"}, b"\xff"]}, settings=settings)
    assert [(row["line"], row["_key"]) for row in out["out"]] == [("{", None), ("x", b"k")]
    assert [row["raw"] for row in out["bad"]] == [b"\xff"]


def test_a_topic_may_have_the_name_of_a_format_of_sparks(event_log: str, settings: Settings, tmp_path: Any) -> None:
    topic, out = Topic(event_log, "json").create(1), ps.collect()
    topic.produce([trade(1)])
    rows = ps.read_topic("json", schema=TRADES, connection=event_log)
    ps.Pipeline("p", rows.to(out)).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    assert len(out.rows) == 1


def test_a_key_is_checked_when_the_pipeline_is_built() -> None:
    rows = ps.read_topic("t", schema="a bigint")
    with pytest.raises(UnknownColumn, match="unknown column 'b'"):
        rows.to(ps.topic("out", key="b"))
    with pytest.raises(UnknownColumn, match="unknown column 'a'"):
        ps.Pipeline("p", rows.to(ps.topic("out")), rejected_to=ps.topic("bad", key="a"))
