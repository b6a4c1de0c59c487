"""Promise: a checkpoint is checked and repaired before a run plans how to go on, also with a changed plan.

No epoch runs again with other rows, or with another plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.preflight import preflight
from penstock.storage.folders import Folder
from tests.spark.checkpoints.damaged_jobs import Made, as_it_was, cut, delete, garble, newest_record, reported
from tests.spark.stateful_jobs import job, on


def changed(data: Path) -> ps.Pipeline:
    """The job with a filter, which keeps its state."""
    values = ps.read_files(str(data / "in"), schema="k string, v bigint, ts timestamp", format="json").named("values")
    windows = values.filter("v >= 0").event_time("ts", "5s").key_by("k").window(ps.tumbling("10s"))
    sums = windows.aggregate(total="sum(v)", n="count(*)", mean="avg(v)").named("sums")
    return ps.Pipeline("sums", sums.to(ps.files(str(data / "out"), format="parquet")))


def opened(data: Path, pipeline: ps.Pipeline, settings: Settings) -> Folder:
    """Prepare the checkpoint as a run does; return the folder of its data then."""
    graph = pipeline.graph
    checkpoint = Checkpoint(data / "checkpoint", "sums", graph, settings, prepare=preflight(graph))
    checkpoint.close()
    return checkpoint.folder


def newest_offsets(data: Path) -> Path:
    return data / "checkpoint/queries/final/offsets" / newest_record(data / "checkpoint").stem


def replay(data: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((data / "checkpoint/queries/final/replay.json").read_text())
    return found


def cut_state_of_several_epochs(offsets: Path) -> None:
    for path in offsets.parents[1].glob("state/0/1/*.delta"):
        if int(path.stem) > 3:
            cut(path)


@pytest.mark.parametrize("damage", [garble, delete, cut_state_of_several_epochs])
def test_epochs_that_have_to_run_again_are_refused_to_a_changed_plan_and_left_to_the_old_one(
    damage: Callable[[Path], None], stopped_job: Made, shared_settings: Settings
) -> None:
    data = as_it_was(stopped_job("memory"))
    damage(newest_offsets(data))
    for _ in range(2):
        with pytest.raises(CheckpointDamaged, match="rolled back have not run again yet") as error:
            opened(data, changed(data), shared_settings)
        assert "run the old version" in str(error.value.hint)
    assert not (data / "checkpoint" / "current").exists()
    # The old version may have to refuse the repair, so it must find everything in place.
    assert not (data / "checkpoint" / "set-aside").exists()
    assert opened(data, job(data), shared_settings).local == data / "checkpoint"
    assert newest_offsets(data).name in replay(data)["values"]


def test_a_damaged_hint_is_not_in_the_way_of_a_changed_plan(stopped_job: Made, shared_settings: Settings) -> None:
    data = as_it_was(stopped_job("memory"))
    garble(data / "checkpoint" / "parted-final.json")
    assert opened(data, changed(data), shared_settings).local == data / "checkpoint" / "generations" / "2"


def test_a_damaged_record_is_repaired_before_a_changed_plan_copies_it(
    stopped_job: Made, shared_settings: Settings
) -> None:
    data = as_it_was(stopped_job("memory"))
    record = newest_record(data / "checkpoint")
    garble(record)
    copy = opened(data, changed(data), shared_settings)
    assert f"{record.name}" not in (copy / "epochs" / "final").names()
    assert reported(data / "checkpoint") == ""


@pytest.mark.parametrize(
    ("name", "hint"), [("pace", "without a line end"), ("layout.json", "run the old version once")]
)
def test_damage_is_reported_where_it_is_and_not_in_a_copy(
    name: str, hint: str, stopped_job: Made, shared_settings: Settings
) -> None:
    data = as_it_was(stopped_job("memory"))
    garble(data / "checkpoint" / name)
    with pytest.raises(CheckpointDamaged, match=rf"checkpoint/{name} cannot be read") as error:
        opened(data, changed(data), shared_settings)
    assert hint in str(error.value.hint)
    assert len(error.value.message) < len(str(data)) + 200


@pytest.mark.parametrize("damage", [cut, delete])
def test_offsets_are_repaired_before_the_number_of_partitions_is_compared(
    damage: Callable[[Path], None], stopped_job: Made, shared_settings: Settings
) -> None:
    data = as_it_was(stopped_job("rocksdb"))
    damage(newest_offsets(data))
    opened(data, job(data), replace(on(shared_settings, "rocksdb"), state_partitions=shared_settings.parallelism))
    assert newest_offsets(data).name in replay(data)["values"]


def plan(data: Path, epoch: int, end: dict[str, int]) -> None:
    (data / "checkpoint/sources/values/planned-final.json").write_text(json.dumps([epoch, end, None, []]))


LOST: dict[str, Callable[[Path], None]] = {
    "with the offsets of epoch": lambda data: delete(data / "checkpoint/sources/values/planned-final.json"),
    "has the offsets of epoch 99": lambda data: plan(data, 99, {"0": 1}),
}


@pytest.mark.parametrize("why", LOST)
def test_an_epoch_whose_offsets_are_stored_nowhere_does_not_run_again_without_rows(
    why: str, stopped_job: Made, shared_settings: Settings
) -> None:
    data = as_it_was(stopped_job("memory"))
    delete(newest_offsets(data))
    LOST[why](data)
    with pytest.raises(CheckpointDamaged, match=rf"sources/values/planned-final\.json {why}.* lost") as error:
        opened(data, job(data), shared_settings)
    assert "savepoint" in str(error.value.hint)
    # Nothing was moved: with the file put back the repair can be done.
    assert not (data / "checkpoint" / "set-aside").exists()


def test_the_empty_offset_of_a_source_is_one(stopped_job: Made, shared_settings: Settings) -> None:
    data = as_it_was(stopped_job("memory"))
    newest = newest_offsets(data)
    plan(data, int(newest.name), {})
    garble(newest)
    opened(data, job(data), shared_settings)
    assert replay(data)["values"][newest.name] == {}
