"""Faults that are no death: what fails says why, and goes on where it stopped, with no row lost or twice."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.connectors.generators.datagen import DataGen
from penstock.errors import DiskFull, PenstockError, RunError
from penstock.settings import Settings
from penstock.spark.runs.kafka_connector.run import KafkaConnectorRun
from penstock.spark.runs.micro_batch import MicroBatchRun
from tests.cluster.standalone import wait_for
from tests.databases import running_postgres

Row = tuple[Any, ...]
ROWS, EPOCHS = 40_000, 8
PATIENCE_SECONDS = 60


@pytest.fixture
def short(settings: Settings) -> Settings:
    """Many small epochs."""
    return replace(settings, epoch_rows=ROWS // EPOCHS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    ("full", "room"), [pytest.param("output", 180_000, marks=pytest.mark.slow), ("checkpoint", 60_000)]
)
def test_a_full_disk_stops_the_job_and_with_space_again_it_goes_on(
    full: str, room: int, small_disk: Path, tmp_path: Path, short: Settings
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(4 * 2**20 - room))
    output, checkpoint = ((small_disk if name == full else tmp_path) / name for name in ("output", "checkpoint"))
    pipeline = ps.Pipeline("filling", _trades().to(ps.files(str(output))))
    with pytest.raises(DiskFull, match="no space is left") as failed:
        pipeline.run(until="ended", checkpoint=checkpoint, settings=short)
    assert "free some space" in str(failed.value.hint)
    assert _of_files(output) < _expected(), "it had begun, and did not come to its end"
    ballast.unlink()
    pipeline.run(until="ended", checkpoint=checkpoint, settings=short)
    assert _of_files(output) == _expected()


@pytest.mark.slow
def test_a_database_that_is_restarted_has_every_row_once(tmp_path: Path, short: Settings) -> None:
    with running_postgres() as server:
        pipeline = ps.Pipeline("restarted", _trades().to(ps.table("bought", connection=server.url)))
        run = pipeline.start(until="ended", checkpoint=tmp_path, settings=short)
        _wait_for_an_epoch(run)
        server.stop()
        server.start()
        with contextlib.suppress(RunError):
            run.wait()
        if run.error is not None:
            assert run.error.transient, "who supervises the job may start it again"
            pipeline.run(until="ended", checkpoint=tmp_path, settings=short)
        assert Counter(server.sql("SELECT symbol, price, size, ts FROM bought")) == _expected()


def test_a_checkpoint_that_is_deleted_under_a_job_stops_it_with_its_name(tmp_path: Path, settings: Settings) -> None:
    rows = ps.datagen("trades", rate=1_000)
    run = ps.Pipeline("bereft", rows.to(ps.files(str(tmp_path / "output")))).start(
        checkpoint=tmp_path / "checkpoint", settings=settings
    )
    _wait_for_an_epoch(run)
    shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
    with pytest.raises(PenstockError, match=re.escape(str(tmp_path / "checkpoint"))) as failed:
        assert run.wait(PATIENCE_SECONDS), "it goes on without its checkpoint"
    assert failed.value.hint


def test_rows_by_rate_wait_for_a_clock_that_jumps_back(tmp_path: Path) -> None:
    source = DataGen("trades", rate=10)
    clock = iter([100.0, 110.0, 50.0, 111.0])
    source.now = lambda: next(clock)
    reached = source.initial()
    seen = []
    for _ in range(4):
        reached = source.latest(reached, None)
        seen.append(reached["0"])
    assert seen == [0, 100, 100, 110]


def _trades() -> ps.Stream:
    return ps.datagen("trades", rows=ROWS, seed=5)


def _expected() -> Counter[Row]:
    batches = [
        item for item in DataGen("trades", rows=ROWS, seed=5).read("0", 0, ROWS) if isinstance(item, pa.RecordBatch)
    ]
    return _counted(pa.Table.from_batches(batches))


def _of_files(folder: Path) -> Counter[Row]:
    if not list(folder.glob("*.parquet")):
        return Counter()
    return _counted(pa.parquet.read_table(sorted(folder.glob("*.parquet"))))


def _counted(table: pa.Table) -> Counter[Row]:
    columns = [table[name].to_pylist() for name in ("symbol", "price", "size", "ts")]
    return Counter(zip(*columns, strict=True))


def _wait_for_an_epoch(run: MicroBatchRun | KafkaConnectorRun) -> None:
    wait_for(lambda: run.progress().epoch >= 1 or run.error, "no epoch came to its end")
    assert run.error is None
