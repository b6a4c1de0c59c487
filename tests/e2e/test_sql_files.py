"""An SQL file on Spark: tables of a topic and of files, a view, and its rows in a table and a topic."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.entry_points import load_entry
from penstock.settings import Settings
from tests.connectors.kafka_topics import Topic, fresh
from tests.crash.driver import Driver
from tests.crash.views_job import auctions, bids
from tests.spark.view_oracle import Bag, Feed, Row, bag, recomputed

PATIENCE_SECONDS = 400
FILE = """
CREATE TABLE bid (bid BIGINT NOT NULL, auction BIGINT, price BIGINT, gone BOOLEAN, PRIMARY KEY (bid))
  WITH (connector = 'topic', name = '{bids}', connection = '{log}', remove = 'gone');
CREATE TABLE auction (id BIGINT NOT NULL PRIMARY KEY, category BIGINT, gone BOOLEAN)
  WITH (connector = 'files', path = '{folder}/auctions', format = 'json', remove = 'gone');

CREATE VIEW final AS
  SELECT id, category, max(price) AS final FROM auction JOIN bid ON id = auction GROUP BY id, category;

CREATE SINK average WITH (connector = 'table', connection = 'sqlite:///{folder}/out.db', mode = 'upsert');
CREATE SINK averages WITH (connector = 'topic', name = '{out}', connection = '{log}');
INSERT INTO average SELECT category, avg(final) AS price, count(*) AS n FROM final GROUP BY category;
INSERT INTO averages SELECT category, avg(final) AS price, count(*) AS n FROM final GROUP BY category;
"""
AVERAGE = """SELECT category, avg(final) AS price, count(*) AS n FROM (
    SELECT id, category, max(price) AS final FROM auctions JOIN bids ON id = auction GROUP BY id, category
) GROUP BY category"""


class Auctions:
    """The file, what it reads, and what it wrote."""

    def __init__(self, folder: Path, log: str) -> None:
        self.folder, self.path = folder, folder / "averages.sql"
        self.bids, self.out = fresh(log).create(2), fresh(log)
        (folder / "auctions").mkdir()
        self.path.write_text(FILE.format(folder=folder, log=log, bids=self.bids.name, out=self.out.name))
        self.feeds = [
            Feed("bids", "bid bigint, auction bigint, price bigint, gone boolean", ("bid",)),
            Feed("auctions", "id bigint, category bigint, gone boolean", ("id",)),
        ]

    def add(self, bids: Sequence[Row], auctions: Sequence[Row]) -> None:
        """Send rows; those of a bid go to one partition, which keeps their order."""
        for part in (0, 1):
            self.bids.produce([json.dumps(row) for row in bids if row["bid"] % 2 == part], partition=part)
        path = self.folder / "auctions" / f".{len(self.feeds[1].epochs)}"
        path.write_text("".join(json.dumps(row) + "\n" for row in auctions))
        path.rename(path.with_name(f"{path.name[1:]}.json"))
        self.feeds[0].epochs.append([*bids])
        self.feeds[1].epochs.append([*auctions])

    @property
    def expected(self) -> Bag:
        return recomputed(AVERAGE, self.feeds, len(self.feeds[0].epochs))

    def in_table(self) -> Bag:
        with sqlite3.connect(self.folder / "out.db") as db:
            rows = db.execute("SELECT category, price, n FROM average").fetchall()
        return bag([dict(zip(("category", "price", "n"), row, strict=True)) for row in rows])

    def in_topic(self) -> Bag:
        """Return the last record of each key. A record that equals the one before it would be written twice."""
        last: dict[bytes, Any] = {}
        for record in Topic(self.out.bootstrap, self.out.name).consume():
            assert record.value() != last.get(record.key(), b""), f"{record.key()} has {record.value()} twice"
            last[record.key()] = record.value()
        return bag([json.loads(value) for value in last.values() if value is not None])


def parts(rows: Sequence[Row], count: int) -> list[Sequence[Row]]:
    size = -(-len(rows) // count)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def test_a_file_follows_a_topic_and_files_and_continues_after_a_restart(
    event_log: str, settings: Settings, tmp_path: Path
) -> None:
    job = Auctions(tmp_path, event_log)
    for bid, auction in zip(parts(bids()[:600], 2), parts(auctions()[:90], 2), strict=True):
        job.add(bid, auction)
        load_entry(str(job.path)).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
        assert job.in_table() == job.expected
        assert job.in_topic() == job.expected


@pytest.mark.slow
def test_a_file_is_exactly_once_under_kill_9(event_log: str, tmp_path: Path) -> None:
    job, chance = Auctions(tmp_path, event_log), random.Random(3)
    job.add(bids(), auctions())
    command = ["run", str(job.path), "--until", "drained", "--checkpoint", str(tmp_path / "c")]
    env = {"PENSTOCK_EPOCH_ROWS": "250"}
    driver = Driver(command, env, tmp_path, time.monotonic() + PATIENCE_SECONDS)
    try:
        for how in ("python", "both"):
            driver.start()
            driver.wait_for_epochs(2)
            driver.rest(chance.random())
            assert driver.runs, driver.said
            driver.kill(chance, how)
        driver.start()
        driver.wait()
        assert driver.succeeded, driver.said
    finally:
        driver.end()
    assert job.in_table() == job.expected
    assert job.in_topic() == job.expected
