"""Promise: whatever file of a checkpoint is deleted, cut or garbled, it is reported, and no run gives wrong results.

A run repairs it, or stops with an error that names the file and a way out.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import CheckpointDamaged, CheckpointError, PenstockError
from penstock.settings import Settings
from penstock.spark.checkpoints.copying import copy_checkpoint
from penstock.spark.checkpoints.identity import data_folder, read_identity
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.preflight import check_before_repair, check_before_run
from penstock.spark.checkpoints.repair import repair
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.epochs.spark_errors import translate
from penstock.spark.runs.startup import _kind
from penstock.spark.tasks.control_journal import DeclaredTimes
from penstock.spark.tasks.staging import Staging
from penstock.storage.folders import folder
from penstock.storage.object_folders import ObjectFolder
from tests.conftest import at
from tests.s3 import BUCKET
from tests.spark.stateful_jobs import expected, feed, job, on, snapshots_soon, written

FED = 4
Made = Callable[[str], Path]
Row = dict[str, Any]


class Reminder(ps.Process):
    """Gives each row, and waits for a processing time that never comes in a test."""

    output = "k string, v bigint"

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Any]:
        ctx.set_timer(ctx.now + timedelta(days=30), "later", clock="processing")
        yield {**ctx.key, "v": row["v"]}

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[Any]:
        yield {**ctx.key, "v": -1}


def reminders(data: Path) -> ps.Pipeline:
    """A process function with timers, a join of two sources, and rows that a replay would compute otherwise."""
    (data / "in").mkdir(parents=True, exist_ok=True)
    schema = "k string, v bigint, ts timestamp"
    rows = [ps.read_files(str(data / "in"), schema=schema, format="json").named(name) for name in ("one", "two")]
    left, right = (one.event_time("ts", "5s") for one in rows)
    kept = left.key_by("k").process(Reminder).map(lambda row: row, deterministic=False)
    pairs = left.join(right, "v", within=("0s", "0s"))
    return ps.Pipeline(
        "reminders",
        kept.to(ps.files(str(data / "out"), format="json")).named("kept"),
        pairs.to(ps.files(str(data / "pairs"), format="json")).named("pairs"),
    )


@pytest.fixture(scope="module")
def stopped(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A job that read its files in epochs of their own and was stopped; by the kind of its state, or "reminders"."""

    @cache
    def job_on(state: str) -> Path:
        data: Path = tmp_path_factory.mktemp(state)
        made, kind = (reminders(data), "rocksdb") if state == "reminders" else (job(data), state)
        with snapshots_soon(settings):
            run = made.start(checkpoint=data / "checkpoint", settings=on(settings, kind))
            for number in range(FED):
                feed(data / "in", number)
                run.process_available()
            # It moves no watermark, and makes one more epoch, which has read a declared time.
            run.checkpoint.tick(at(1))
            run.process_available()
            run.stop()
            run.wait()
        shutil.copytree(data, data.with_name(f"{data.name}-whole"))
        return data

    return job_on


def as_it_was(data: Path) -> Path:
    """The same job as it was when it was stopped, in the same place: its plan has the paths in it."""
    shutil.rmtree(data)
    shutil.copytree(data.with_name(f"{data.name}-whole"), data)
    return data


def delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + b"\xfe\x00garbled\xff" + data[2 * third + 1 :])


DAMAGES = {"deleted": delete, "cut": cut, "garbled": garble}
# Locks, leftovers of epochs that are done, and messages between the processes of one run: no run reads them.
NOT_READ = r"lease(\.jvm)?|staged/[^/]+/\d+/.*|staged/[^/]+/outbox/.*\.arrow"
# Without these nothing is lost: Hadoop's checksums, snapshots of state whose changes are there, and hints.
NOT_MISSED = (
    r"plan\.json|.*\.crc|.*/SSTs/.*|.*\.(snapshot|zip)|sources/[^/]+/(offsets|(pace|planned)-.*)\.json|staged/.*"
)


def files_of(checkpoint: Path, kind: str) -> list[str]:
    """All files that a run may read; of "reminders" only Penstock's own: Spark's are those of the other kinds."""
    found = [str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()]
    found = [name for name in found if kind != "reminders" or not name.startswith("queries/")]
    return sorted(name for name in found if (checkpoint / name).stat().st_size and not re.fullmatch(NOT_READ, name))


def reported(checkpoint: Path) -> str:
    try:
        return "\n".join(f"{name} {reason}" for name, reason in inspect(folder(checkpoint)).all_damaged.items())
    except CheckpointError as error:
        return str(error)


def newest_commits(checkpoint: Path) -> list[str]:
    """A crash leaves the newest epoch without a commit, too: the next run runs it again."""
    newest = {}
    for path in sorted(checkpoint.glob("queries/*/commits/[0-9]*"), key=lambda path: int(path.name)):
        newest[path.parent] = str(path.relative_to(checkpoint))
    return list(newest.values())


def data_file(name: str) -> str:
    """The file that a checksum of Hadoop's is about; any other file itself."""
    return re.sub(r"(^|/)\.([^/]+)\.crc$", r"\1\2", name)


KINDS = ["memory", "rocksdb", "reminders"]
# In short, each backend and each damage once.
QUICK_WALKS = [("memory", "cut"), ("memory", "garbled"), ("rocksdb", "deleted")]
WALKS = [
    pytest.param(kind, damage, marks=[] if (kind, damage) in QUICK_WALKS else [pytest.mark.slow])
    for kind in KINDS
    for damage in DAMAGES
]


@pytest.mark.parametrize(("kind", "damage"), WALKS)
def test_every_file_that_is_damaged_is_reported_by_name(kind: str, damage: str, stopped: Made) -> None:
    checkpoint = as_it_was(stopped(kind)) / "checkpoint"
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


# What a run may go on without, as it repairs it or does not need it: Spark's files (judged by tests below and in
# test_repair.py), records of earlier epochs, and hints. Everything else has to stop it.
GOES_ON = (
    r"""plan\.json|queries/.*|.*\.crc|epochs/.*|parted-.*|sources/[^/]+/(offsets|(pace|planned)-.*)\.json|staged/.*"""
)
GOES_ON_WITHOUT = r"layout\.json|pace"


@pytest.mark.parametrize(("kind", "damage"), WALKS)
def test_a_run_is_stopped_by_every_file_that_it_needs_and_cannot_repair(
    kind: str, damage: str, stopped: Made, tmp_path: Path
) -> None:
    whole = as_it_was(stopped(kind)) / "checkpoint"
    wrong = []
    for number, name in enumerate(files_of(whole, kind)):
        copied = tmp_path / str(number)
        shutil.copytree(whole, copied)
        DAMAGES[damage](copied / name)
        goes_on = re.fullmatch(GOES_ON, name) or (damage == "deleted" and re.fullmatch(GOES_ON_WITHOUT, name))
        outcome = preflight(copied)
        if (
            isinstance(outcome, CheckpointDamaged)
            and outcome.hint
            and data_file(name).rpartition("/")[2] in outcome.message
        ):
            continue
        if outcome is not None or not goes_on:
            wrong.append((name, outcome))
        shutil.rmtree(copied)
    assert wrong == []


def preflight(checkpoint: Path) -> Exception | None:
    """What a run does before Spark starts; returns how that ends."""
    root = folder(checkpoint)
    try:
        data = data_folder(root)
        if read_identity(data) is None:
            message = f"{data}/penstock.json: a run does not begin anew where queries are"
            return CheckpointDamaged(message, hint="test_repair.py tests it")
        _kind(data)
        check_before_repair(root, data)
        repair(data, replayable=True)
        check_before_run(root, data)
    except Exception as error:
        return error
    return None


def newest_record(checkpoint: Path) -> Path:
    return max((checkpoint / "epochs" / "final").glob("*.json"), key=lambda path: int(path.stem))


def hints(checkpoint: Path) -> list[Path]:
    return [*checkpoint.glob("sources/*/*.json"), *checkpoint.glob("parted-*.json")]


REPAIRED: dict[str, Callable[[Path], object]] = {
    "all state is missing": lambda where: delete(where / "queries/final/state"),
    "the state of a partition is missing": lambda where: delete(where / "queries/final/state/0/1"),
    "the newest record is cut": lambda where: cut(newest_record(where)),
    "the newest record is missing": lambda where: delete(newest_record(where)),
    "what Spark wrote about the query is garbled": lambda where: [
        garble(where / "queries/final" / name)
        for name in ("metadata", "state/0/_metadata/metadata", "state/0/0/_metadata/schema")
    ],
    "Spark's metadata of the query is missing": lambda where: [
        delete(where / "queries/final" / name)
        for name in ("metadata", "state/0/_metadata/metadata", "state/0/0/_metadata/schema")
    ],
    "hints are garbled, and the layout is missing": lambda where: [
        delete(where / "layout.json"),
        *(garble(path) for path in hints(where)),
    ],
    "hints and pace are missing": lambda where: [delete(path) for path in [*hints(where), where / "pace"]],
}
QUICK = {("memory", "the newest record is cut"), ("rocksdb", "all state is missing")}
QUICK |= {("memory", what) for what in list(REPAIRED)[4:7]}


@pytest.mark.parametrize(
    ("state", "what"),
    [
        pytest.param(state, what, marks=[] if (state, what) in QUICK else [pytest.mark.slow])
        for state in ("memory", "rocksdb")
        for what in REPAIRED
    ],
)
def test_a_run_repairs_what_it_can_and_its_results_are_complete(
    state: str, what: str, stopped: Made, settings: Settings
) -> None:
    data = as_it_was(stopped(state))
    REPAIRED[what](data / "checkpoint")
    feed(data / "in", FED)
    job(data).run(until="ended", checkpoint=data / "checkpoint", settings=on(settings, state))
    assert written(data / "out") == expected(FED + 1)
    assert reported(data / "checkpoint") == ""


STOPS = [
    ("sources/one/files.jsonl", "garbled"),
    ("sources/two/files.jsonl", "deleted"),
    ("ticks.jsonl", "deleted"),
    ("rings-final-2.json", "cut"),
    ("rings-final-2.json", "deleted"),
    ("pace", "garbled"),
    ("layout.json", "cut"),
]


@pytest.mark.parametrize(("name", "damage"), STOPS)
def test_a_run_that_cannot_repair_a_file_stops_with_its_name_and_a_remedy(
    name: str, damage: str, stopped: Made, settings: Settings
) -> None:
    data = as_it_was(stopped("reminders"))
    DAMAGES[damage](data / "checkpoint" / name)
    with pytest.raises(CheckpointDamaged, match=re.escape(name)) as error:
        reminders(data).run(until="drained", checkpoint=data / "checkpoint", settings=on(settings, "rocksdb"))
    assert re.search("copy|savepoint|writes it again|without a line end", str(error.value.hint))


def test_checkpoints_exits_with_2_and_names_the_file_and_the_remedy(stopped: Made) -> None:
    checkpoint = as_it_was(stopped("memory")) / "checkpoint"
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint)])
    assert (shown.exit_code, "damaged" in shown.output) == (0, False)
    cut(newest_record(checkpoint))
    delete(checkpoint / "queries" / "final" / "state")
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint)])
    assert shown.exit_code == 2
    assert re.search(r"damaged: epochs/final/\d+\.json cannot be read", shown.output)
    assert re.search(r"damaged: queries/final/state/0/\d/\d+\.delta is missing", shown.output)
    assert "savepoint" in shown.output


def test_rows_that_are_sealed_and_then_damaged_are_not_computed_again(stopped: Made, settings: Settings) -> None:
    """As after a crash between the seal and the commit: sinks may have a part of the rows."""
    data = as_it_was(stopped("reminders"))
    checkpoint = data / "checkpoint"
    (sealed,) = checkpoint.glob("staged/*/outbox/*/sealed")
    epoch, query = sealed.parent.name, sealed.parents[2].name
    for path in checkpoint.glob(f"queries/{query}/commits/*{epoch}*"):
        if path.name in (epoch, f".{epoch}.crc"):
            path.unlink()
    garble(sealed)
    assert f"outbox/{epoch}/sealed" in reported(checkpoint)
    with pytest.raises(CheckpointDamaged, match=rf"outbox/{epoch}/sealed"):
        reminders(data).run(until="drained", checkpoint=checkpoint, settings=on(settings, "rocksdb"))


def test_a_garbled_number_of_the_current_generation_does_not_start_a_new_checkpoint(stopped: Made) -> None:
    checkpoint = as_it_was(stopped("memory")) / "checkpoint"
    shutil.copytree(checkpoint, checkpoint / "generations" / "12")
    (checkpoint / "generations" / "12" / "counted").write_bytes(b"")
    for content in (b"1", b"x2", b"\xff\xfe"):
        (checkpoint / "current").write_bytes(content)
        with pytest.raises(CheckpointDamaged, match=r"/current holds .* not a generation") as error:
            inspect(folder(checkpoint))
        assert "write 12 into it" in str(error.value.hint)


def test_a_checkpoint_without_its_identity_is_damaged_and_not_absent(stopped: Made) -> None:
    checkpoint = as_it_was(stopped("memory")) / "checkpoint"
    (checkpoint / "penstock.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"penstock\.json is missing"):
        inspect(folder(checkpoint))


def test_an_ended_checkpoint_in_s3_is_saved_and_restored(
    stopped: Made, settings: Settings, s3: dict[str, str], tmp_path: Path
) -> None:
    """Its journals are in the root of the checkpoint: their keys once had two slashes."""
    data = as_it_was(stopped("memory"))
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
    feeding = threading.Thread(target=lambda: [(feed(tmp_path / "in", n), run.process_available()) for n in range(3)])
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


def test_an_error_of_spark_about_damaged_files_is_reported_as_checkpoint_damaged(tmp_path: Path) -> None:
    said = Exception(
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] ... delta file 7.delta does not exist"
    )
    error = translate(said, job(tmp_path).graph, Staging(folder(tmp_path)), -1)
    assert isinstance(error, CheckpointDamaged)
    assert "7.delta" in error.message
    assert "penstock checkpoints" in str(error.hint)


def test_no_savepoint_is_created_of_a_checkpoint_without_its_state(stopped: Made, tmp_path: Path) -> None:
    checkpoint = as_it_was(stopped("memory")) / "checkpoint"
    delete(checkpoint / "queries" / "final" / "state")
    with pytest.raises(CheckpointDamaged, match=r"the state after epoch \d+ is incomplete in state/0/0"):
        create_savepoint(folder(checkpoint), folder(tmp_path), "a")


def test_json_of_a_damaged_checkpoint_holds_every_damaged_file(stopped: Made) -> None:
    checkpoint = as_it_was(stopped("memory")) / "checkpoint"
    garble(checkpoint / "sources" / "values" / "files.jsonl")
    shown = CliRunner().invoke(app, ["checkpoints", str(checkpoint), "--json"])
    assert shown.exit_code == 2
    assert [*json.loads(shown.stdout)["damaged"]] == ["sources/values/files.jsonl"]
