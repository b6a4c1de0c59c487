"""Promise: a savepoint is created while a job runs, moved anywhere, and another job continues from it."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import BadValue, CheckpointDamaged, CheckpointExists, CheckpointMissing
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.savepoints import (
    create_savepoint,
    delete_savepoint,
    read_savepoint,
    restore_savepoint,
)
from penstock.storage.folders import folder
from penstock.storage.object_folders import ObjectFolder
from tests.s3 import BUCKET
from tests.spark.stateful_jobs import expected, feed, job, on, written

FED = 4


def _penstock(*arguments: str | Path) -> str:
    found = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def _files_after(out: Path, epoch: int) -> list[Path]:
    """Return the files that a sink wrote after an epoch."""
    files = [path for path in out.rglob("*.parquet") if "_penstock" not in path.parts]
    return [path for path in files if int(re.findall(r"-(\d{8})-", path.name)[-1]) > epoch]


@pytest.mark.parametrize("state", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_a_savepoint_under_load_forks_a_job_whose_output_equals_the_firsts(
    state: Any, settings: Settings, tmp_path: Path
) -> None:
    settings = on(settings, state)
    run = job(tmp_path).start(checkpoint=tmp_path / "checkpoint", settings=settings)
    feed(tmp_path / "in", 0)
    run.process_available()
    load = threading.Thread(target=lambda: [feed(tmp_path / "in", number) for number in range(1, FED)])
    load.start()
    _penstock("savepoint", "create", tmp_path / "checkpoint", "--to", tmp_path / "savepoints", "--name", "a")
    load.join()
    run.end()
    run.wait()
    assert written(tmp_path / "out") == expected(FED)

    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    (tmp_path / "savepoints" / "a").rename(moved)
    shown = json.loads(_penstock("savepoint", "show", moved, "--json"))
    epoch = shown["queries"]["final"]["epoch"]
    assert shown["queries"]["final"]["ledger"] == {"out": [shown["lineage"], epoch]}
    assert "aggregate 'sums'" in shown["explain"]
    _penstock("savepoint", "restore", moved, "--checkpoint", tmp_path / "forked", "--name", "fork")
    fork = job(tmp_path, "fork", "out-of-fork").start(until="ended", checkpoint=tmp_path / "forked", settings=settings)
    fork.wait()
    assert fork.checkpoint.identity.lineage != shown["lineage"]
    assert _files_after(tmp_path / "out", epoch)
    for path in [
        one for one in (tmp_path / "out").rglob("*.parquet") if one not in _files_after(tmp_path / "out", epoch)
    ]:
        if "_penstock" not in path.parts:
            path.unlink()
    assert written(tmp_path / "out-of-fork") == written(tmp_path / "out")


@pytest.fixture(scope="module")
def checkpoint(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a job that has run."""
    data: Path = tmp_path_factory.mktemp("job")
    feed(data / "in", 0)
    job(data).run(until="drained", checkpoint=data / "checkpoint", settings=settings)
    return data / "checkpoint"


def test_savepoints_are_listed_and_deleted(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _penstock("savepoint", "create", checkpoint)
    _penstock("savepoint", "create", checkpoint, "--name", "second")
    (torn := tmp_path / ".penstock" / "savepoints" / "torn" / "checkpoint").mkdir(parents=True)
    (torn / "penstock.json").write_text("{}")
    listed = {one["name"]: one["whole"] for one in json.loads(_penstock("savepoint", "list", "--json"))}
    assert sorted(listed.values()) == [False, True, True]
    shown = _penstock("savepoint", "show", "second")
    assert "query final: after epoch 1, watermark 2026-01-01T00:00:09.750Z\n  read values up to 0: 3605\n" in shown
    assert "aggregate 'sums'" in shown
    assert "epochs planned 0-1, done 0-1" in _penstock("checkpoints", checkpoint)
    for name in listed:
        _penstock("savepoint", "delete", name)
    assert json.loads(_penstock("savepoint", "list", "--json")) == []


def test_a_savepoint_goes_to_an_object_store_and_back(checkpoint: Path, s3: dict[str, str], tmp_path: Path) -> None:
    there = ObjectFolder.at(f"s3://{BUCKET}/savepoints", s3)
    create_savepoint(folder(checkpoint), there, "a")
    restore_savepoint(there / "a", folder(tmp_path / "back"))
    was, now = (inspect(folder(where)).queries["final"] for where in (checkpoint, tmp_path / "back"))
    assert (now.offsets, now.watermark, now.damaged) == (was.offsets, was.watermark, {})
    assert [held.rows for held in now.state] == [held.rows for held in was.state]
    found = "sources/values/files.jsonl"
    assert (tmp_path / "back" / found).read_bytes() == (checkpoint / found).read_bytes()


def test_what_cannot_be_saved_or_restored_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    there = folder(tmp_path / "savepoints")
    create_savepoint(folder(checkpoint), there, "a")
    with pytest.raises(CheckpointExists, match="savepoint 'a'"):
        create_savepoint(folder(checkpoint), there, "a")
    with pytest.raises(CheckpointMissing, match="no checkpoint"):
        create_savepoint(folder(tmp_path / "nothing"), there)
    with pytest.raises(CheckpointExists):
        restore_savepoint(there / "a", folder(checkpoint))
    with pytest.raises(BadValue, match="'my fork' cannot be a pipeline's name"):
        restore_savepoint(there / "a", folder(tmp_path / "fork"), "my fork")
    with pytest.raises(CheckpointMissing):
        read_savepoint(there / "b")
    with pytest.raises(BadValue, match="is the checkpoint of a job"):
        delete_savepoint(there, folder(checkpoint.parent))
    (there / "a").remove("savepoint.json")
    with pytest.raises(CheckpointDamaged, match="is incomplete"):
        restore_savepoint(there / "a", folder(tmp_path / "new"))


def test_a_damaged_checkpoint_is_not_saved(checkpoint: Path, tmp_path: Path) -> None:
    create_savepoint(folder(checkpoint), folder(tmp_path), "a")
    restore_savepoint(folder(tmp_path / "a"), folder(tmp_path / "copy"))
    newest = max((tmp_path / "copy" / "queries" / "final" / "state" / "0" / "0").glob("*.delta"))
    newest.write_bytes(b"\0" + newest.read_bytes()[1:])
    with pytest.raises(CheckpointDamaged, match=newest.name):
        create_savepoint(folder(tmp_path / "copy"), folder(tmp_path), "b")
    assert not (tmp_path / "b" / "checkpoint").exists()
