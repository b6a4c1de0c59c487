"""Checkpoints in object stores: the lease, and a job with its checkpoint in S3."""

from __future__ import annotations

import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged, CheckpointInUse, CheckpointMismatch
from penstock.pipeline import Pipeline
from penstock.settings import Settings
from penstock.spark.checkpoints import lease as store_lease
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.lease import StoreLease
from penstock.spark.session.jars import jar_sets
from penstock.storage.object_folders import ObjectFolder
from tests.s3 import BUCKET, SpoilingProxy
from tests.waiting import wait_for

JOB = """
import penstock as ps

rows = [{"k": f"k{n % 7}", "v": n, "ts": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"} for n in range(3000)]
items = ps.from_items(rows, "k string, v bigint, ts timestamp")
sums = items.event_time("ts", max_delay="5s").key_by("k").window(ps.tumbling("60s"))
pipeline = ps.Pipeline("sums", sums.aggregate(n="count(*)", total="sum(v)").to(ps.files("out", format="json")))
"""


def graph() -> Pipeline:
    return Pipeline("p", ps.from_items([{"a": 1}], "a bigint").to(ps.collect()))


@pytest.fixture
def there(s3: dict[str, str]) -> ObjectFolder:
    """An empty folder of a bucket."""
    return ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3)


@pytest.fixture
def quick_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that end soon."""
    monkeypatch.setattr(store_lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(store_lease, "TERM_SECONDS", 0.5)
    monkeypatch.setattr(store_lease, "_POLL_SECONDS", 0.02)


@pytest.mark.usefixtures("quick_lease")
def test_a_second_driver_is_kept_out_of_a_store_until_the_first_is_done(there: ObjectFolder) -> None:
    first = Checkpoint(there, "p", graph().graph)
    with pytest.raises(CheckpointInUse, match=rf"pipeline 'p', process {os.getpid()}"):
        Checkpoint(there, "p", graph().graph)
    first.confirm()
    first.close()
    again = Checkpoint(there, "p", graph().graph)
    assert again.identity == first.identity
    again.close()


@pytest.mark.usefixtures("quick_lease")
def test_a_driver_that_was_cut_off_is_followed_by_another_and_writes_nothing_more(there: ObjectFolder) -> None:
    first, second = StoreLease(there), StoreLease(there)
    first.take("p")
    stop_renewing(first)
    second.take("p")
    second.confirm()
    with pytest.raises(CheckpointInUse, match="taken over by another driver"):
        first.confirm()
    first.release()
    second.confirm()
    second.release()


def test_on_the_machine_of_a_killed_driver_the_next_one_need_not_wait(there: ObjectFolder) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        killed = StoreLease(there)
        killed.take("p")
        stop_renewing(killed)
        killed._write(processes=store_lease._running([process.pid]))
        process.kill()
    begun = time.monotonic()
    lease = StoreLease(there)
    lease.take("p")
    lease.release()
    assert time.monotonic() - begun < store_lease.TERM_SECONDS


@pytest.mark.usefixtures("quick_lease")
def test_a_deleted_checkpoint_in_a_store_is_noticed(there: ObjectFolder) -> None:
    checkpoint = Checkpoint(there, "p", graph().graph)
    stop_renewing(checkpoint.lease)
    there.remove("lease")
    with pytest.raises(CheckpointDamaged, match="was deleted while the job ran"):
        checkpoint.confirm()
    checkpoint.close()


def stop_renewing(lease: object) -> None:
    assert isinstance(lease, StoreLease)
    assert lease._renewer is not None
    lease._ending.set()
    lease._renewer.join()


def test_a_checkpoint_folder_deleted_in_mid_run_is_a_clear_error(tmp_path: Path, settings: Settings) -> None:
    folder = tmp_path / "gone"
    rows = ps.datagen("a bigint", rate=200)
    run = Pipeline("p", rows.to(ps.files(str(tmp_path / "out")))).start(checkpoint=folder, settings=settings)
    wait_for(lambda: run.progress().epoch >= 1)
    shutil.rmtree(folder, ignore_errors=True)
    with pytest.raises(CheckpointDamaged, match=rf"checkpoint {folder} was deleted") as failed:
        run.wait(60)
    assert failed.value.hint is not None


def test_data_is_in_the_current_generation(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "p", graph().graph).close()
    (tmp_path / "generations" / "2").mkdir(parents=True)
    (tmp_path / "penstock.json").rename(tmp_path / "generations" / "2" / "penstock.json")
    (tmp_path / "current").write_text("2")
    checkpoint = Checkpoint(tmp_path, "p", graph().graph)
    assert (checkpoint.root.local, checkpoint.folder.local) == (tmp_path, tmp_path / "generations" / "2")
    assert checkpoint.query("final").local == tmp_path / "generations" / "2" / "queries" / "final"
    checkpoint.close()
    with pytest.raises(CheckpointMismatch):
        Checkpoint(tmp_path, "q", Pipeline("q", ps.from_items([{"a": 1}], "a bigint").to(ps.collect())).graph)


class Driver:
    """`penstock run` in a process of its own, its checkpoint behind a proxy to S3."""

    def __init__(self, folder: Path, there: ObjectFolder, variables: dict[str, str]) -> None:
        (folder / "job.py").write_text(JOB)
        self.folder, self.there = folder, there
        self.variables = os.environ | variables | {"PENSTOCK_EPOCH_ROWS": "400", "PENSTOCK_PARALLELISM": "2"}

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "penstock",
            "run",
            "job.py",
            "--until",
            "ended",
            "--checkpoint",
            str(self.there),
        ]
        with (self.folder / "said").open("wb") as said:
            return subprocess.Popen(command, cwd=self.folder, env=self.variables, stdout=said, stderr=said)

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def wait_for_epochs(self, more: int, run: subprocess.Popen[bytes]) -> None:
        """Wait until some more epochs are done, or the process has ended."""
        commits = self.there / "queries" / "final" / "commits"
        before = len(commits.names())
        wait_for(lambda: len(commits.names()) >= before + more or run.poll() is not None, seconds=180)

    def refuse_all_but_a_clear_error(self) -> None:
        assert "StoreFailed" in self.said
        assert "Traceback" not in self.said
        assert "penstock-secret" not in self.said

    def rows(self) -> collections.Counter[tuple[str, int, int]]:
        lines = [line for file in (self.folder / "out").glob("*.json*") for line in file.read_text().splitlines()]
        return collections.Counter((row["k"], row["n"], row["total"]) for row in map(json.loads, lines))


@pytest.fixture
def proxy(s3: dict[str, str]) -> Iterator[SpoilingProxy]:
    made = SpoilingProxy(int(s3["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    yield made
    made.close()


@pytest.fixture
def driver(tmp_path: Path, there: ObjectFolder, s3: dict[str, str], proxy: SpoilingProxy) -> Driver:
    """A job whose store is behind the proxy; skipped where Spark cannot reach S3."""
    if not jar_sets()["s3"].fetched:
        pytest.skip("Hadoop's S3A is not here: penstock jars fetch s3")
    behind = s3 | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_MAX_ATTEMPTS": "4"}
    return Driver(tmp_path, there, behind)


@pytest.mark.slow
def test_a_job_on_s3_outlives_kill_9_and_a_store_that_fails_for_a_while(driver: Driver, proxy: SpoilingProxy) -> None:
    first = driver.start()
    driver.wait_for_epochs(1, first)
    proxy.spoil("500")
    wait_for(lambda: proxy.spoiled >= 2 or first.poll() is not None)
    proxy.spoil("pass")
    driver.wait_for_epochs(2, first)
    first.kill()
    assert first.wait(60) == -signal.SIGKILL, driver.said

    proxy.spoil("500")
    assert driver.start().wait(60) == 1
    driver.refuse_all_but_a_clear_error()

    proxy.spoil("pass")
    assert driver.start().wait(180) == 0, driver.said
    assert driver.rows() == batch(), "something was lost, or came twice"


def test_a_job_on_s3_reports_a_lasting_outage_and_continues_later(
    driver: Driver, proxy: SpoilingProxy, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--crash-runs") < 2:
        pytest.skip("long: it is run with --crash-runs=2")
    for mode in ("500", "stall"):
        run = driver.start()
        driver.wait_for_epochs(1, run)
        proxy.spoil(mode)
        assert run.wait(400) == 1, driver.said
        driver.refuse_all_but_a_clear_error()
        proxy.spoil("pass")
    assert driver.start().wait(180) == 0, driver.said
    assert driver.rows() == batch(), "something was lost, or came twice"


def batch() -> collections.Counter[tuple[str, int, int]]:
    """The same sums, computed at once."""
    found: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
    for number in range(3000):
        found[f"k{number % 7}", number // 60].append(number)
    return collections.Counter((key, len(group), sum(group)) for (key, _), group in found.items())
