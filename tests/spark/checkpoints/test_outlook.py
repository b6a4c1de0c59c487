"""Promise: what `penstock checkpoints` says about the next run is what that run does, also for two damaged files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints import repair
from penstock.spark.checkpoints.inspect import inspect
from penstock.storage.folders import folder
from tests.spark.checkpoints.damaged_jobs import Made, as_it_was, cut, delete, garble, newest_record
from tests.spark.checkpoints.test_damaged_runs import preflight


def said(checkpoint: Path) -> str:
    """What `penstock checkpoints` says about the only query."""
    return inspect(folder(checkpoint)).queries["final"].next_run


@pytest.mark.parametrize("name", ["replay.json", "bounds.json"])
def test_a_damaged_file_that_is_read_before_any_repair_stops_the_run(name: str, stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    (checkpoint / "queries" / "final" / name).write_bytes(b'{"values": \xfe')
    outcome = preflight(checkpoint)
    assert isinstance(outcome, CheckpointDamaged)
    assert said(checkpoint) == f"the next run stops: {outcome.message}\n  {outcome.hint}"


def test_offsets_that_are_damaged_in_both_files_stop_the_run(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    garble(checkpoint / "queries" / "final" / "offsets" / newest_record(checkpoint).stem)
    garble(checkpoint / "sources" / "values" / "planned-final.json")
    outcome = preflight(checkpoint)
    assert isinstance(outcome, CheckpointDamaged)
    assert said(checkpoint) == f"the next run stops: {outcome.message}\n  {outcome.hint}"
    assert "the next run stops" in inspect(folder(checkpoint)).next_run["sources/values/planned-final.json"]


def test_a_damaged_commit_with_a_damaged_seal_stops_the_run(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("unfinished")) / "checkpoint"
    (checkpoint / "queries" / "final" / "commits" / "1").write_bytes(b"v1")
    garble(checkpoint / "staged" / "final" / "outbox" / "1" / "sealed")
    assert "outbox/1/sealed cannot be read" in said(checkpoint)
    assert said(checkpoint).startswith("the next run stops")


def test_damage_that_only_a_full_check_finds_is_repaired_after_a_run_that_fails(
    stopped_job: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    store = checkpoint / "queries" / "final" / "state" / "0" / "0"
    for path in store.glob("*.snapshot"):
        delete(path)
    cut(store / "2.delta")
    assert said(checkpoint).startswith("the next run repairs it: ")
    monkeypatch.setattr(repair, "FULL_CHECK_BYTES", 1)
    assert "fails if Spark reads it, and the one after that repairs it: " in said(checkpoint)
    assert preflight(checkpoint) is None
    assert not (checkpoint / "set-aside").exists()
    repair.request_full_check(folder(checkpoint))
    assert said(checkpoint).startswith("the next run repairs it: ")
    assert preflight(checkpoint) is None
    assert (checkpoint / "set-aside").exists()


def test_a_query_without_its_id_gets_another_one(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    delete(checkpoint / "queries" / "final" / "metadata")
    assert said(checkpoint) == "the next run gives the query a new id"
    assert preflight(checkpoint) is None
    assert (checkpoint / "queries" / "final" / "metadata").exists()


def test_offsets_of_epochs_that_have_run_again_are_deleted(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    replay = checkpoint / "queries" / "final" / "replay.json"
    newest = newest_record(checkpoint).stem
    replay.write_text(f'{{"values": {{"{newest}": {{"0": 1}}}}}}')
    delete(checkpoint / "queries" / "final" / "commits" / newest)
    state = checkpoint / "queries" / "final" / "state"
    shutil.copytree(state, checkpoint.parent / "state")
    assert preflight(checkpoint) is None
    assert replay.exists(), "the epoch has not run again"
    shutil.copytree(checkpoint.parent / "state", state, dirs_exist_ok=True)
    (checkpoint / "queries" / "final" / "commits" / newest).write_text('v1\n{"nextBatchWatermarkMs":0}')
    delete(checkpoint / "queries" / "final" / "commits" / f".{newest}.crc")
    assert preflight(checkpoint) is None
    assert not replay.exists()
