"""Views to tables, topics and files, in savepoints and changed plans, and read by another job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import BadSchema, BadValue, CheckpointMismatch, CheckpointMissing
from penstock.settings import Settings
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.checkpoints.state.file_reader import FileReader
from penstock.spark.checkpoints.state.reader import read_state
from penstock.spark.checkpoints.state.store_files import read_schema
from penstock.spark.checkpoints.state.tables import find_state
from penstock.spark.lowering.buckets import TAIL_VARIABLE
from penstock.storage.folders import folder
from tests.connectors.kafka_topics import SECONDS, Topic, fresh
from tests.connectors.table_sinks import sqlite_table
from tests.spark.lowering.test_views import bids
from tests.spark.view_oracle import Feed, bag, recomputed

BEST = "SELECT auction, max(price) AS best, count(*) AS n FROM bids GROUP BY auction"


def stream(data: Path, feed: Feed) -> ps.Stream:
    (data / feed.name).mkdir(parents=True, exist_ok=True)
    return ps.read_files(str(data / feed.name), schema=feed.ddl, format="json").named(feed.name)


def put(data: Path, feed: Feed, number: int) -> None:
    """Put the rows of an epoch in place, at once."""
    path = data / feed.name / f".{number}"
    path.write_text("".join(json.dumps(row) + "\n" for row in feed.epochs[number]))
    path.rename(path.with_name(f"{number:03}.json"))


def best(data: Path, feed: Feed, aggregate: str = "max(price)") -> ps.View:
    view = stream(data, feed).view("bid", ["auction", "price"], remove="gone")
    return view.group_by("auction").aggregate(best=aggregate, n="count(*)").named("best")


def test_a_table_a_topic_and_a_file_follow_a_view_epoch_by_epoch(
    event_log: str, settings: Settings, tmp_path: Path
) -> None:
    feed, lite = bids(epochs=3), sqlite_table(tmp_path / "lite.db", "best")
    topic = fresh(event_log)
    view = best(tmp_path, feed)
    pipeline = ps.Pipeline(
        "p",
        view.to(ps.table("best", connection=lite.url, mode="upsert")),
        view.to(ps.topic(topic.name, connection=event_log)),
        view.to(ps.files(str(tmp_path / "whole")), whole=True),
    )
    assert len(pipeline.graph.stateful) == 1
    run = pipeline.start(checkpoint=tmp_path / "c", settings=settings)
    for number in range(len(feed.epochs)):
        put(tmp_path, feed, number)
        run.process_available()
        expected = recomputed(BEST, [feed], number)
        assert bag(pq.read_table(tmp_path / "whole" / "view.parquet").to_pylist()) == expected
        rows = lite.sql("SELECT auction, best, n FROM best")
        assert bag([dict(zip(("auction", "best", "n"), row, strict=True)) for row in rows]) == expected
    run.stop()
    run.wait()
    last = {record.key(): record.value() for record in topic.consume()}
    assert bag([json.loads(value) for value in last.values() if value is not None]) == expected
    assert all(json.loads(key).keys() == {"auction"} for key in last)


# With a small tail all of the state is in runs.
IN_RUNS = pytest.mark.parametrize("ran", ["64"], indirect=True)


# What a stopped job has read, and what it reads once it goes on.
READ, MORE = 3, 1


@pytest.fixture(scope="module")
def stopped(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A job that has read some epochs and was stopped, by the size of its tail; it is made once."""

    @cache
    def job_with(tail: str) -> Path:
        data: Path = tmp_path_factory.mktemp(f"tail-{tail}")
        feed = bids(epochs=READ)
        run = job(data, feed).start(checkpoint=data / "c", settings=settings)
        for number in range(READ):
            put(data, feed, number)
            run.process_available()
        run.stop()
        run.wait()
        shutil.copytree(data, data.with_name(f"{data.name}-whole"))
        return data

    return job_with


@pytest.fixture
def ran(
    request: pytest.FixtureRequest, stopped: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Feed]:
    """The stopped job as it was, in the same place: its plan has the paths in it."""
    tail = getattr(request, "param", "")
    if tail:
        monkeypatch.setenv(TAIL_VARIABLE, tail)
    data = stopped(tail)
    shutil.rmtree(data)
    shutil.copytree(data.with_name(f"{data.name}-whole"), data)
    return data, bids(epochs=READ + MORE)


def job(data: Path, feed: Feed, aggregate: str = "max(price)", out: str = "whole") -> ps.Pipeline:
    return ps.Pipeline("p", best(data, feed, aggregate).to(ps.files(str(data / out)), whole=True))


def rest(pipeline: ps.Pipeline, data: Path, feed: Feed, settings: Settings, checkpoint: str = "c") -> None:
    run = pipeline.start(checkpoint=data / checkpoint, settings=settings)
    for number in range(READ, len(feed.epochs)):
        put(data, feed, number)
        run.process_available()
    run.stop()
    run.wait()


def shown(*arguments: Any) -> Any:
    done = CliRunner().invoke(app, ["view", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@IN_RUNS
def test_the_contents_are_read_from_the_checkpoint_now_and_as_of_an_epoch(ran: tuple[Path, Feed]) -> None:
    data, feed = ran
    assert list((data / "c" / "keyed").rglob("*.run"))
    for epoch in range(READ):
        found = shown(data / "c", "--as-of", epoch)
        assert (found["node"], found["epoch"], found["columns"]) == ("best", epoch, ["auction", "best", "n"])
        assert bag(found["rows"]) == recomputed(BEST, [feed], epoch)
    (row,) = shown(data / "c", "--key", 3)["rows"]
    assert bag([row]) == recomputed(f"SELECT * FROM ({BEST}) WHERE auction = 3", [feed], READ - 1)
    assert shown(data / "c", "--key", 77)["rows"] == []
    assert "(no row with auction = 77)" in CliRunner().invoke(app, ["view", str(data / "c"), "--key", "77"]).output
    with pytest.raises(CheckpointMissing, match=r"epoch 9 is not retained\n  retained: epoch 0 to 2"):
        read_state(folder(data / "c"), Settings(), at=9)


@IN_RUNS
def test_a_savepoint_continues_as_another_job(ran: tuple[Path, Feed], settings: Settings) -> None:
    data, feed = ran
    create_savepoint(folder(data / "c"), folder(data / "saved"), "a")
    restore_savepoint(folder(data / "saved") / "a", folder(data / "forked"))
    (data / "forked-out").mkdir()
    (data / "forked-out" / "view.parquet").write_bytes((data / "whole" / "view.parquet").read_bytes())
    rest(job(data, feed, out="forked-out"), data, feed, settings, "forked")
    expected = recomputed(BEST, [feed], READ)
    assert bag(shown(data / "forked")["rows"]) == expected
    assert bag(pq.read_table(data / "forked-out" / "view.parquet").to_pylist()) == expected


def test_a_changed_view_is_refused_and_an_unchanged_one_continues(ran: tuple[Path, Feed], settings: Settings) -> None:
    data, feed = ran
    with pytest.raises(CheckpointMismatch, match=r"max\(price\) as best.*min\(price\) as best"):
        job(data, feed, "min(price)").run(until="drained", checkpoint=data / "c", settings=settings)
    rest(job(data, feed), data, feed, settings)
    assert bag(pq.read_table(data / "whole" / "view.parquet").to_pylist()) == recomputed(BEST, [feed], READ)


def test_retractions_down_to_empty_leave_no_state(ran: tuple[Path, Feed], settings: Settings) -> None:
    data, feed = ran
    keys = {row["bid"] for rows in feed.epochs[:READ] for row in rows}
    feed.epochs[READ:] = [[{"bid": key, "auction": 0, "price": 0, "gone": True} for key in keys]]
    rest(job(data, feed), data, feed, settings)
    assert pq.read_table(data / "whole" / "view.parquet").num_rows == 0
    version = find_state(folder(data / "c"))
    assert list(FileReader(version)._states(read_schema(version.history, version.number))) == []


def test_another_job_follows_a_view_through_a_topic(event_log: str, settings: Settings, tmp_path: Path) -> None:
    feed, topic, lite = bids(epochs=2), fresh(event_log), sqlite_table(tmp_path / "lite.db", "top")
    first = ps.Pipeline("first", best(tmp_path, feed).to(ps.topic(topic.name, connection=event_log)))
    one = first.start(checkpoint=tmp_path / "c1", settings=settings)
    put(tmp_path, feed, 0)
    one.process_available()
    dearest = ps.read_view(topic.name, connection=event_log).top(2, by=["best", "auction"])
    second = ps.Pipeline("second", dearest.to(ps.table("top", connection=lite.url, mode="upsert")))
    query = f"SELECT * FROM ({BEST}) ORDER BY best DESC, auction DESC LIMIT 2"
    for number in range(len(feed.epochs)):
        if number:
            put(tmp_path, feed, number)
            one.process_available()
        second.run(until="drained", checkpoint=tmp_path / "c2", settings=settings)
        rows = lite.sql("SELECT auction, best, n FROM top")
        found = bag([dict(zip(("auction", "best", "n"), row, strict=True)) for row in rows])
        assert found == recomputed(query, [feed], number)
    one.stop()
    one.wait()


def test_sinks_that_cannot_follow_a_view_are_refused() -> None:
    items = ps.from_items([], "a bigint, b bigint").named("items")
    view = items.view("a")
    with pytest.raises(BadValue, match="cannot delete rows"):
        view.to(ps.files("out"))
    with pytest.raises(BadValue, match="mode='append'"):
        view.to(ps.table("t", connection="sqlite:///x.db"))
    with pytest.raises(BadSchema, match="known to be unique"):
        items.view().to(ps.topic("t"))
    with pytest.raises(BadValue, match="whole"):
        view.to(ps.collect(), whole=True)


@pytest.mark.slow
def test_a_whole_view_without_a_key_counts_equal_rows(settings: Settings, tmp_path: Path) -> None:
    feed = Feed("rows", "a bigint, gone boolean")
    feed.epochs = [[{"a": 1}, {"a": 1}, {"a": 2}], [{"a": 1, "gone": True}], [{"a": 1, "gone": True}, {"a": 3}]]
    view = stream(tmp_path, feed).view((), "a", remove="gone")
    run = ps.Pipeline("p", view.to(ps.files(str(tmp_path / "out")), whole=True)).start(
        checkpoint=tmp_path / "c", settings=settings
    )
    for number in range(3):
        put(tmp_path, feed, number)
        run.process_available()
        found = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/view.parquet'").to_arrow_table().to_pylist()
        assert bag(found) == recomputed("SELECT a FROM rows", [feed], number)
    run.stop()
    run.wait()


def send(topic: Topic, records: list[tuple[int, int | None]], partition: int = 0) -> None:
    """Send records as one batch: a job that runs reads them in one epoch."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "linger.ms": 10_000})
    for key, n in records:
        value = None if n is None else json.dumps({"id": key, "n": n}).encode()
        producer.produce(topic.name, value, json.dumps({"id": key}).encode(), partition=partition)
    assert producer.flush(SECONDS) == 0


@pytest.mark.slow
def test_a_view_of_a_topic_is_right_again_after_a_gap(event_log: str, settings: Settings, tmp_path: Path) -> None:
    """Records 2 and 3 are deleted unread: what the topic no longer has leaves the view, the rest of it stays."""
    topic, lite = fresh(event_log).create(2), sqlite_table(tmp_path / "lite.db", "copy")

    view = ps.read_view(topic.name, connection=event_log, schema="id bigint, n bigint", key="id", on_loss="resync")
    pipeline = ps.Pipeline("copy", view.to(ps.table("copy", connection=lite.url, mode="upsert")))

    def copied() -> list[Any]:
        return lite.sql("SELECT id, n FROM copy ORDER BY id")

    send(topic, [(1, 10), (2, 20)])
    send(topic, [(7, 70)], partition=1)
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    assert copied() == [(1, 10), (2, 20), (7, 70)]
    send(topic, [(1, None), (3, 30)])
    send(topic, [(2, 21)])
    topic.forget(0, 4)
    run = pipeline.start(checkpoint=tmp_path / "c", settings=settings)
    run.process_available()
    assert copied() == [(2, 21), (7, 70)]
    send(topic, [(2, None), (4, 40)])
    run.process_available()
    run.stop()
    run.wait()
    assert copied() == [(4, 40), (7, 70)]


@pytest.mark.parametrize("on_loss", ["resync", pytest.param("fail", marks=pytest.mark.slow)])
def test_records_of_a_view_that_are_sent_twice_change_nothing(
    on_loss: Any, event_log: str, settings: Settings, tmp_path: Path
) -> None:
    """A job that is at least once sends the records of an epoch again after a crash: read together, or later."""
    topic, sink = fresh(event_log).create(1), ps.collect()

    view = ps.read_view(topic.name, connection=event_log, schema="id bigint, n bigint", key="id", on_loss=on_loss)
    run = ps.Pipeline("p", view.to(sink)).start(checkpoint=tmp_path / "c", settings=settings)
    for records in ([(1, 10), (2, 20)], [(1, None), (2, 21), (3, 30)], [(3, None), (1, 11), (1, 12)]):
        send(topic, records * 2)
        run.process_available()
        before = len(sink.rows)
        send(topic, records)
        run.process_available()
        assert len(sink.rows) == before
    run.stop()
    run.wait()
    found = [(row["id"], row["n"], row["_change"]) for row in sink.rows]
    assert sorted(found[:2]) == [(1, 10, "insert"), (2, 20, "insert")]
    assert sorted(found[2:5]) == [(1, 10, "delete"), (2, 21, "update"), (3, 30, "insert")]
    assert sorted(found[5:]) == [(1, 12, "insert"), (3, 30, "delete")]
