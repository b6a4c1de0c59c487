"""Promise: after kill -9 views and the tables that follow them are what a recomputation of all rows gives."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from penstock.settings import Settings
from penstock.spark.checkpoints.state.reader import read_state
from penstock.storage.folders import folder
from tests.crash import outputs
from tests.crash.driver import Driver, is_java
from tests.crash.last_life import LastLifeHere
from tests.crash.lease import outlived_by
from tests.crash.views_job import BIDS, auctions, bids
from tests.spark.view_oracle import Bag, Feed, bag, recomputed

PATIENCE_SECONDS = 300
AVERAGE = """SELECT category, avg(final) AS price, count(*) AS n FROM (
    SELECT id, category, max(price) AS final FROM auctions JOIN bids ON id = auction GROUP BY id, category
) GROUP BY category"""
BEST = """SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid DESC)::INT AS place FROM bids
) WHERE place <= 3"""


# After one kill the next life has another parallelism, and is in this process. In `make test`, views crash in
# tests/spark/lowering/test_views.py, and drivers are killed in test_kill.py and tests/driver/test_driver.py.
@pytest.mark.slow
@pytest.mark.parametrize(("deadly", "epoch_rows"), [((1,), 1_600), ((1, 3), 800)], ids=["1", "2"])
def test_views_equal_a_recomputation_after_kills(
    deadly: tuple[int, ...], epoch_rows: int, tmp_path: Path, settings: Settings
) -> None:
    job = Path(__file__).with_name("views_job.py")
    command = ["run", f"{job}:job", f"--set=folder={tmp_path}", "--until", "ended"]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]
    env = {"PENSTOCK_EPOCH_ROWS": str(epoch_rows), "KEYED_TAIL_BYTES": "2000"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    short = len(deadly) == 1
    driver = (
        LastLifeHere(settings, command, env, tmp_path, deadline) if short else Driver(command, env, tmp_path, deadline)
    )
    jvms: set[psutil.Process] = set()
    try:
        for life, epoch in enumerate([*deadly, None]):
            driver.env |= {"PENSTOCK_PARALLELISM": ("2", "3")[life % 2], "DEADLY_EPOCHS": str(epoch or "")}
            driver.start()
            assert not outlived_by(jvms, tmp_path / "checkpoint", driver.pid)
            jvms = jvms_of(driver)
            assert driver.code == (0 if epoch is None else -9), driver.said
    finally:
        driver.end()
    feeds = [
        Feed("bids", "bid bigint, auction bigint, price bigint, gone boolean", ("bid",), [bids()]),
        Feed("auctions", "id bigint, category bigint, gone boolean", ("id",), [auctions()]),
    ]
    average, best = recomputed(AVERAGE, feeds, 0), recomputed(BEST, feeds, 0)
    assert in_table(tmp_path / "views.db", "average", ("category", "price", "n")) == average
    assert in_table(tmp_path / "views.db", "best", ("bid", "auction", "price", "place")) == best
    assert bag(pq.read_table(tmp_path / "best" / "view.parquet").to_pylist()) == best
    for name, expected in (("average", average), ("best", best)):
        state = read_state(folder(tmp_path / "checkpoint"), Settings(), node=name, limit=10_000)
        assert bag(state.rows) == expected
    assert len(outputs.of_files(tmp_path / "raw")) == BIDS


def jvms_of(driver: Driver) -> set[psutil.Process]:
    """Wait for the end of a life, and return the JVMs that it had."""
    found: set[psutil.Process] = set()
    while driver.runs:
        found |= {one for one in driver.family if is_java(one)}
        driver.rest(0.2)
    return found


def in_table(path: Path, table: str, names: tuple[str, ...]) -> Bag:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
    return bag([dict(zip(names, row, strict=True)) for row in rows])
