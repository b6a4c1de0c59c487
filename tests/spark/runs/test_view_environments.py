"""Views with state in RocksDB, a checkpoint in S3, topics of Apache Kafka, large epochs, and an older checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import LedgerAhead
from penstock.settings import Settings
from penstock.spark.session.jars import jar_sets
from tests.connectors.kafka_topics import Topic, fresh
from tests.connectors.table_sinks import TargetTable, sqlite_table
from tests.s3 import BUCKET
from tests.spark.lowering.test_views import bids
from tests.spark.runs.test_views import BEST, best, put, stream
from tests.spark.stateful_jobs import on
from tests.spark.view_oracle import Bag, bag, recomputed

NAMES = ("auction", "best", "n")


def in_table(table: TargetTable) -> Bag:
    rows = table.sql("SELECT auction, best, n FROM best")
    return bag([dict(zip(NAMES, row, strict=True)) for row in rows])


def in_file(folder: Path) -> Bag:
    return bag(pq.read_table(folder / "view.parquet").to_pylist())


def in_topic(topic: Topic) -> Bag:
    last = {record.key(): record.value() for record in topic.consume()}
    return bag([json.loads(value) for value in last.values() if value is not None])


@pytest.mark.parametrize("sink", ["table", *(pytest.param(one, marks=pytest.mark.slow) for one in ("file", "topic"))])
def test_in_rocksdb_a_view_follows_and_an_older_checkpoint_is_refused(
    sink: str, event_log: str, settings: Settings, tmp_path: Path
) -> None:
    """Promise: a job with an older copy of its checkpoint stops, and what follows the view stays as it is."""
    feed, lite, topic = bids(epochs=3), sqlite_table(tmp_path / "lite.db", "best"), fresh(event_log)
    outputs: dict[str, Any] = {
        "table": (ps.table("best", connection=lite.url, mode="upsert"), lambda: in_table(lite)),
        "file": (ps.files(str(tmp_path / "out")), lambda: in_file(tmp_path / "out")),
        "topic": (ps.topic(topic.name, connection=event_log), lambda: in_topic(topic)),
    }
    written, found = outputs[sink]
    pipeline = ps.Pipeline("p", best(tmp_path, feed).to(written, whole=sink == "file"))

    def run(number: int) -> None:
        put(tmp_path, feed, number)
        pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=on(settings, "rocksdb"))

    run(0)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    run(1)
    assert found() == recomputed(BEST, [feed], 1)
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "copy").rename(tmp_path / "c")
    with pytest.raises(LedgerAhead, match="does not know"):
        run(2)
    assert found() == recomputed(BEST, [feed], 1)


@pytest.mark.slow
def test_two_jobs_chained_by_a_view_in_a_topic_of_apache_kafka(kafka: str, settings: Settings, tmp_path: Path) -> None:
    feed, source, between = bids(epochs=3), fresh(kafka).create(2), fresh(kafka)
    lite = sqlite_table(tmp_path / "lite.db", "top")
    rows = ps.read_topic(source.name, schema=feed.ddl, connection=kafka)
    view = rows.view("bid", ["auction", "price"], remove="gone").group_by("auction")
    first = ps.Pipeline(
        "first", view.aggregate(best="max(price)", n="count(*)").to(ps.topic(between.name, connection=kafka))
    )
    for number, epoch in enumerate(feed.epochs):
        for part in (0, 1):
            source.produce([json.dumps(row) for row in epoch if row["bid"] % 2 == part], partition=part)
        first.run(until="drained", checkpoint=tmp_path / "c1", settings=settings)
        assert in_topic(between) == recomputed(BEST, [feed], number)
        dearest = ps.read_view(between.name, connection=kafka).top(2, by=["best", "auction"])
        second = ps.Pipeline("second", dearest.to(ps.table("top", connection=lite.url, mode="upsert")))
        second.run(until="drained", checkpoint=tmp_path / "c2", settings=settings)
        found = [dict(zip(NAMES, row, strict=True)) for row in lite.sql("SELECT auction, best, n FROM top")]
        query = f"SELECT * FROM ({BEST}) ORDER BY best DESC, auction DESC LIMIT 2"
        assert bag(found) == recomputed(query, [feed], number)


@pytest.mark.slow
def test_an_epoch_of_more_rows_than_an_arrow_batch(settings: Settings, tmp_path: Path) -> None:
    """Batches have up to 65,536 rows. Every row of a key comes several times, far from each other."""
    feed = bids(epochs=0)
    view = stream(tmp_path, feed).view("bid", ["auction", "price"], remove="gone").named("all")
    sink = ps.files(str(tmp_path / "out"))
    pipeline = ps.Pipeline("p", view.to(sink, whole=True))
    for number, (size, keys) in enumerate(((200_000, 80_000), (150_000, 75_000))):
        feed.epochs.append(
            [{"bid": n % keys, "auction": n % 7, "price": n, "gone": n % 10 == number} for n in range(size)]
        )
        put(tmp_path, feed, number)
        pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
        assert in_file(tmp_path / "out") == recomputed("SELECT * FROM bids", [feed], number)


JOB = """
import penstock as ps

rows = ps.read_files("bids", schema="{ddl}", format="json").named("bids")
view = rows.view("bid", ["auction", "price"], remove="gone")
best = view.group_by("auction").aggregate(best="max(price)", n="count(*)").named("best")
pipeline = ps.Pipeline("p", best.to(ps.files("out"), whole=True))
"""


@pytest.mark.slow
def test_a_view_with_its_checkpoint_in_s3(s3: dict[str, str], tmp_path: Path) -> None:
    if not jar_sets()["s3"].fetched:
        pytest.skip("Hadoop's S3A is not here: penstock jars fetch s3")
    feed, checkpoint = bids(epochs=3), f"s3://{BUCKET}/{uuid.uuid4().hex}"
    (tmp_path / "bids").mkdir()
    (tmp_path / "job.py").write_text(JOB.format(ddl=feed.ddl))

    def penstock(*arguments: str) -> str:
        command = [sys.executable, "-m", "penstock", *arguments]
        env = os.environ | s3 | {"KEYED_TAIL_BYTES": "64"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for number in range(2):
        put(tmp_path, feed, number)
        penstock("run", "job.py", "--until", "drained", "--checkpoint", checkpoint)
        assert in_file(tmp_path / "out") == recomputed(BEST, [feed], number)
    for epoch in range(2):
        shown = json.loads(penstock("view", checkpoint, "--as-of", str(epoch), "--json"))
        assert bag(shown["rows"]) == recomputed(BEST, [feed], epoch)
