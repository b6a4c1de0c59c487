"""Promise: whatever file of a checkpoint is deleted, cut or garbled, it is reported by its name.

What a run does about it is tested in test_damaged_runs.py.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import CheckpointDamaged, PenstockError
from penstock.settings import Settings
from penstock.spark.checkpoints.copying import copy_checkpoint
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.tasks.control_journal import DeclaredTimes
from penstock.storage.folders import folder
from penstock.storage.object_folders import ObjectFolder
from tests.s3 import BUCKET
from tests.spark.checkpoints.damaged_jobs import (
    DAMAGES,
    WALKS,
    Made,
    as_it_was,
    cut,
    data_file,
    delete,
    files_of,
    garble,
    newest_record,
    reported,
)
from tests.spark.stateful_jobs import feed, job, on

# Without these nothing is lost: Hadoop's checksums, snapshots of state whose changes are there, and hints. An epoch
# without its seal and record is computed again, unless a sink has it: a run asks them (test_damaged_runs.py). Which
# version of a table an epoch saw is stored twice.
NOT_MISSED = (
    r"plan\.json|.*\.crc|.*/SSTs/.*|.*\.(snapshot|zip)|sources/[^/]+/(offsets|(pace|planned)-.*)\.json"
    r"|staged/.*/(sealed|newest\.json|epochs/\d+)"
)


def newest_commits(checkpoint: Path) -> list[str]:
    """A crash leaves the newest epoch without a commit, too: the next run runs it again."""
    newest = {}
    for path in sorted(checkpoint.glob("queries/*/commits/[0-9]*"), key=lambda path: int(path.name)):
        newest[path.parent] = str(path.relative_to(checkpoint))
    return list(newest.values())


@pytest.mark.parametrize(("kind", "damage"), WALKS)
def test_every_file_that_is_damaged_is_reported_by_name(kind: str, damage: str, stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job(kind)) / "checkpoint"
    assert reported(checkpoint) == ""
    silent = []
    for name in files_of(checkpoint, kind):
        if damage == "deleted" and (re.fullmatch(NOT_MISSED, name) or name in newest_commits(checkpoint)):
            continue
        was = (checkpoint / name).read_bytes()
        DAMAGES[damage](checkpoint / name)
        if data_file(name) not in reported(checkpoint):
            silent.append(name)
        (checkpoint / name).write_bytes(was)
    assert silent == []


def test_checkpoints_exits_with_2_and_names_the_files_and_what_the_next_run_does(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint)])
    assert (shown.exit_code, "damaged" in shown.output) == (0, False)
    cut(newest_record(checkpoint))
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint)])
    assert shown.exit_code == 2
    newest = r"epochs/final/(\d+)\.json cannot be read"
    assert re.search(rf"damaged: {newest}.*\n  the next run repairs it: epoch \1 will run again", shown.output)
    delete(checkpoint / "queries" / "final" / "state")
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint)])
    assert re.search(rf"damaged: {newest}.*\n  the next run writes it again", shown.output)
    assert re.search(r"damaged: \d+ files in queries/final/state/0, each of which is missing: ", shown.output)
    assert re.search(r"\n  the next run repairs it: epochs 0 to \d+ will run again with the same offsets", shown.output)
    assert shown.output.count("damaged:") == 2
    delete(checkpoint / "queries" / "final" / "offsets" / "0")
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint)])
    assert re.search(
        r"\n  the next run stops: .* no retained epoch has intact state\n  restore a savepoint", shown.output
    )


def test_a_garbled_number_of_the_current_generation_does_not_start_a_new_checkpoint(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    shutil.copytree(checkpoint, checkpoint / "generations" / "12")
    (checkpoint / "generations" / "12" / "counted").write_bytes(b"")
    for content in (b"1", b"x2", b"\xff\xfe"):
        (checkpoint / "current").write_bytes(content)
        with pytest.raises(CheckpointDamaged, match=r"/current holds .* not a generation") as error:
            inspect(folder(checkpoint))
        assert "write 12 into it" in str(error.value.hint)


@pytest.mark.parametrize("content", [None, b"", b"2"])
def test_a_lost_or_old_number_of_the_current_generation_is_reported(
    content: bytes | None, stopped_job: Made, tmp_path: Path
) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    for number in ("2", "3"):
        shutil.copytree(checkpoint, tmp_path / number)
        shutil.copytree(tmp_path / number, checkpoint / "generations" / number)
        (checkpoint / "generations" / number / "counted").write_bytes(b"")
    if content is not None:
        (checkpoint / "current").write_bytes(content)
    for use in (inspect, lambda root: create_savepoint(root, folder(tmp_path), "a")):
        with pytest.raises(CheckpointDamaged, match="current is lost or old: generation 3 has run") as error:
            use(folder(checkpoint))
        assert "write 3 into" in str(error.value.hint)


def test_a_checkpoint_without_its_identity_is_damaged_and_not_absent(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    (checkpoint / "penstock.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"penstock\.json is missing"):
        inspect(folder(checkpoint))


def test_an_ended_checkpoint_in_s3_is_saved_and_restored(
    stopped_job: Made, settings: Settings, s3: dict[str, str], tmp_path: Path
) -> None:
    """Its journals are in the root of the checkpoint: their keys once had two slashes."""
    data = as_it_was(stopped_job("memory"))
    job(data).run(until="ended", checkpoint=data / "checkpoint", settings=on(settings, "memory"))
    there = ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3)
    copy_checkpoint(folder(data / "checkpoint"), there / "job", links=False)
    create_savepoint(there / "job", there / "savepoints", "a")
    restore_savepoint(there / "savepoints" / "a", there / "restored")
    for at_store in (there / "job", there / "restored"):
        assert inspect(at_store).all_damaged == {}
        assert DeclaredTimes(at_store).is_over()
        assert DeclaredTimes(at_store).end() == DeclaredTimes(folder(data / "checkpoint")).end()


def test_a_checkpoint_is_checked_while_its_job_runs(settings: Settings, tmp_path: Path) -> None:
    """Spark removes and adds files meanwhile: none of that is damage."""
    run = job(tmp_path).start(checkpoint=tmp_path / "checkpoint", settings=settings)
    feeding = threading.Thread(target=lambda: [(feed(tmp_path / "in", n), run.process_available()) for n in range(2)])
    feeding.start()
    found: set[str] = set()
    while feeding.is_alive():
        try:
            found |= {*inspect(folder(tmp_path / "checkpoint")).all_damaged}
        except PenstockError as error:
            found.add(str(error))
        feeding.join(0.05)
    run.stop()
    run.wait()
    assert found == set()


def test_no_savepoint_is_created_of_a_checkpoint_without_its_state(stopped_job: Made, tmp_path: Path) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    delete(checkpoint / "queries" / "final" / "state")
    with pytest.raises(CheckpointDamaged, match=r"the state after epoch \d+ is incomplete in state/0/0"):
        create_savepoint(folder(checkpoint), folder(tmp_path), "a")


def test_json_of_a_damaged_checkpoint_holds_every_damaged_file(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    garble(checkpoint / "sources" / "values" / "files.jsonl")
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint), "--json"])
    assert shown.exit_code == 2
    assert [*json.loads(shown.stdout)["damaged"]] == ["sources/values/files.jsonl"]
