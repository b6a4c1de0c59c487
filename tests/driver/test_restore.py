"""A savepoint that a job starts from: restored once, however often its driver is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.driver.assignment import read_assignment
from penstock.driver.restore import restore_once
from penstock.errors import CheckpointInUse, CheckpointMissing
from penstock.settings import Settings
from penstock.spark.checkpoints.lease import DiskLease
from penstock.spark.checkpoints.savepoints import create_savepoint
from penstock.storage.folders import folder


def pipeline(out: Path) -> ps.Pipeline:
    return ps.Pipeline("p", ps.datagen("n bigint", rows=100).to(ps.files(str(out), format="json")))


def lineage(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "penstock.json").read_text())["lineage"])


def test_a_savepoint_replaces_the_checkpoint_once(tmp_path: Path, settings: Settings) -> None:
    checkpoint, savepoints = tmp_path / "c", folder(tmp_path / "s")
    pipeline(tmp_path / "out").run(until="ended", checkpoint=checkpoint, settings=settings)
    first = lineage(checkpoint)
    create_savepoint(folder(checkpoint), savepoints, "a")
    (checkpoint / "later").write_text("of an epoch after the savepoint")
    content = {"job": "j", "target": "t.py", "checkpoint": str(checkpoint), "token": 4}
    assert restore_once(read_assignment(content), "p", savepoints) is None
    assignment = read_assignment({**content, "restore_from": str(tmp_path / "s" / "a")})
    assert "restored from savepoint" in (restore_once(assignment, "p", savepoints) or "")
    assert not (checkpoint / "later").exists()
    restored = lineage(checkpoint)
    assert restored != first
    assert restore_once(assignment, "p", savepoints) is None
    assert lineage(checkpoint) == restored
    report = pipeline(tmp_path / "out").run(until="ended", checkpoint=checkpoint, settings=settings)
    assert report.rows == {"out": 100}

    again = read_assignment({**content, "restore_from": "a", "restore_id": "second"})
    assert restore_once(again, "p", savepoints) is not None
    with pytest.raises(CheckpointInUse, match="token 4"):
        restore_once(read_assignment({**content, "token": 3, "restore_from": "a"}), "p", savepoints)


def test_a_checkpoint_is_not_touched_if_the_savepoint_does_not_exist_or_another_driver_uses_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    content = {"job": "j", "target": "t.py", "checkpoint": str(checkpoint), "restore_from": "gone"}
    lease = DiskLease(checkpoint)
    (checkpoint / "penstock.json").write_text("{}")
    with pytest.raises(CheckpointMissing):
        restore_once(read_assignment(content), "p", folder(tmp_path / "s"))
    lease.take("p")
    (tmp_path / "s" / "gone").mkdir(parents=True)
    (tmp_path / "s" / "gone" / "savepoint.json").write_text("{}")
    with pytest.raises(CheckpointInUse):
        restore_once(read_assignment(content), "p", folder(tmp_path / "s"))
    assert (checkpoint / "penstock.json").exists()
    lease.release()
