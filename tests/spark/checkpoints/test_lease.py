"""The lease: one driver on a checkpoint, as long as its JVM lives."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged, CheckpointInUse, CheckpointMismatch, SettingsError
from penstock.pipeline import Pipeline
from penstock.settings import Settings
from penstock.spark.checkpoints import lease as module
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.lease import DiskLease, StoreLease
from penstock.storage.folders import folder

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "ab")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def pipeline(name: str = "p") -> Pipeline:
    return Pipeline(name, ps.from_items([{"a": 1}], "a bigint").to(ps.collect()))


def test_a_second_driver_is_refused_with_the_name_of_the_holder(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path, "p", pipeline().graph)
    with pytest.raises(CheckpointInUse, match="pipeline 'p', process"):
        Checkpoint(tmp_path, "p", pipeline().graph)
    first.close()
    Checkpoint(tmp_path, "p", pipeline().graph).close()


def test_the_next_driver_waits_for_a_jvm_that_outlives_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ORPHAN_SECONDS", 0.2)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lease.jvm")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None
        assert orphan.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointInUse, match="killed driver"):
            DiskLease(tmp_path).take("p")
        assert orphan.stdin is not None
        orphan.stdin.close()
    lease = DiskLease(tmp_path)
    lease.take("p")
    lease.release()


def test_the_jvm_holds_the_lease_while_a_job_runs(tmp_path: Path, settings: Settings) -> None:
    rows = ps.datagen("a bigint", rate=10)
    run = Pipeline("p", rows.to(ps.collect())).start(checkpoint=tmp_path, settings=settings)
    try:
        with (tmp_path / "lease.jvm").open("ab") as file, pytest.raises(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        run.stop()
        run.wait()
    with (tmp_path / "lease.jvm").open("ab") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


KILLED_HOLDER = """
import sys
from pathlib import Path
from penstock.spark.checkpoints.lease import DiskLease, StoreLease
from penstock.storage.folders import folder
lease = DiskLease(Path(sys.argv[1]))
lease.take("p", 3)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_driver_that_is_started_right_after_a_kill_is_not_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointInUse, match=f"process {holder.pid}"):
            DiskLease(tmp_path).take("p", 3)
        holder.kill()
        lease = DiskLease(tmp_path)
        lease.take("p", 3)
        lease.release()


def test_the_next_driver_waits_for_the_lock_of_a_process_that_is_gone(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lease", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "lease").write_text(json.dumps({"pipeline": "p", "pid": gone.pid, "machine": module._machine()}))
    released = threading.Timer(0.2, os.close, [lock])
    released.start()
    lease = DiskLease(tmp_path)
    lease.take("p")
    lease.release()
    released.join()


def test_a_lease_refuses_a_token_that_is_smaller_than_one_it_has_seen(tmp_path: Path) -> None:
    for token in (3, 5, 5, None):
        lease = DiskLease(tmp_path)
        lease.take("p", token)
        lease.release()
    with pytest.raises(CheckpointInUse, match="fencing token 5, and this driver has the older token 4") as refused:
        DiskLease(tmp_path).take("p", 4)
    assert "another job manager has taken over" in str(refused.value)
    assert not refused.value.transient


def test_a_token_that_grows_while_the_lease_is_held_is_recorded(tmp_path: Path) -> None:
    lease = DiskLease(tmp_path)
    lease.take("a pipeline with a long name", 3)
    lease.fence(8)
    lease.fence(7)
    lease.release()
    with pytest.raises(CheckpointInUse, match="token 8"):
        DiskLease(tmp_path).take("p", 7)
    again = DiskLease(tmp_path)
    again.take("p", 8)
    assert json.loads((tmp_path / "lease").read_text())["pipeline"] == "p"
    again.release()


def test_a_lease_in_a_store_refuses_a_smaller_token(tmp_path: Path) -> None:
    for token in (3, 5, None):
        lease = StoreLease(folder(tmp_path))
        lease.take("p", token)
        lease.fence(token or 6)
        lease.release()
    with pytest.raises(CheckpointInUse, match="token 6"):
        StoreLease(folder(tmp_path)).take("p", 5)


def test_a_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "p", pipeline().graph).close()
    with pytest.raises(CheckpointMismatch, match="belongs to pipeline 'p', not to 'q'") as refused:
        Checkpoint(tmp_path, "q", pipeline("q").graph)
    assert f"penstock savepoint create {tmp_path} --name p-fork" in str(refused.value)
    assert f"penstock savepoint restore p-fork --checkpoint {tmp_path}-q --name q" in str(refused.value)
    (tmp_path / "penstock.json").write_text("{")
    with pytest.raises(CheckpointDamaged):
        Checkpoint(tmp_path, "p", pipeline().graph)


def test_a_folder_that_cannot_be_created_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot write"):
        Checkpoint(tmp_path / "file" / "c", "p", pipeline().graph)
