"""Promise: no run gives wrong results after a file of its checkpoint is damaged.

A run repairs it, or stops with an error that names the file and a way out.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import CheckpointDamaged
from penstock.settings import Settings
from penstock.spark.checkpoints.identity import FORMAT, Identity, data_folder, read_identity, write_identity
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.preflight import check_before_repair, check_before_run, run_kind
from penstock.spark.checkpoints.repair import repair
from penstock.spark.checkpoints.runs import RUN
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.epochs.spark_errors import translate
from penstock.spark.tasks.staging import Staging
from penstock.storage.folders import folder
from tests.spark.checkpoints.damaged_jobs import (
    DAMAGES,
    FED,
    WALKS,
    Made,
    as_it_was,
    asking,
    cut,
    data_file,
    delete,
    files_of,
    garble,
    newest_record,
    reminders,
    reported,
)
from tests.spark.stateful_jobs import expected, feed, job, on, written

# What a run may go on without, as it repairs it or does not need it: Spark's files (judged by tests below and in
# test_repair.py), records of earlier epochs, and hints. Everything else has to stop it.
GOES_ON = (
    r"""plan\.json|queries/.*|.*\.crc|epochs/.*|parted-.*|sources/[^/]+/(offsets|(pace|planned)-.*)\.json|staged/.*"""
)
GOES_ON_WITHOUT = r"layout\.json|pace"
# What it needs of an epoch that is sealed. One without its seal is computed again, unless a sink has it, which only a
# run can ask; a damaged offset is repaired.
NEEDED = {
    "deleted": r"queries/final/offsets/1|staged/.*\.arrow",
    "cut": r"staged/.*(\.arrow|/1/sealed|/epochs/1|/newest\.json)",
}
NEEDED["garbled"] = NEEDED["cut"]


@pytest.mark.parametrize(("kind", "damage"), WALKS)
def test_a_run_is_stopped_by_every_file_that_it_needs_and_cannot_repair_as_checkpoints_says(
    kind: str, damage: str, stopped_job: Made, tmp_path: Path
) -> None:
    whole = as_it_was(stopped_job(kind)) / "checkpoint"
    wrong: list[object] = []
    for number, name in enumerate(files_of(whole, kind)):
        copied = tmp_path / str(number)
        shutil.copytree(whole, copied)
        DAMAGES[damage](copied / name)
        goes_on = re.fullmatch(GOES_ON, name) or (damage == "deleted" and re.fullmatch(GOES_ON_WITHOUT, name))
        if kind == "unfinished" and re.fullmatch(NEEDED[damage], name):
            goes_on = None
        said = said_of_next_run(copied)
        outcome = preflight(copied)
        if said and said.startswith("the next run stops") != isinstance(outcome, CheckpointDamaged):
            wrong.append((name, said, outcome))
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


def said_of_next_run(checkpoint: Path) -> str:
    """What `penstock checkpoints` says that the next run does; empty if it says nothing, or stops itself."""
    try:
        found = inspect(folder(checkpoint))
    except CheckpointDamaged:
        return ""
    by_path = {path: said for path, said in found.next_run.items() if not RUN.fullmatch(path)}
    every = [*by_path.values(), *(one.next_run for one in found.queries.values() if one.next_run)]
    return max(every, key=lambda said: said.startswith("the next run stops"), default="")


def preflight(checkpoint: Path) -> Exception | None:
    """What a run does before Spark starts; returns how that ends."""
    root = folder(checkpoint)
    try:
        data = data_folder(root)
        if read_identity(data) is None:
            message = f"{data}/penstock.json: a run does not begin anew where queries are"
            return CheckpointDamaged(message, hint="test_repair.py tests it")
        run_kind(data)
        check_before_repair(root, data)
        repair(data, replayable=True)
        check_before_run(root, data)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("content", [b'{"1": "ab', b"\xfe\x00", b"[1]", b'{"x": "ab"}', b'{"1": 2}'])
def test_damaged_bounds_of_an_earlier_plan_are_reported_and_stop_a_run(content: bytes, tmp_path: Path) -> None:
    root = folder(tmp_path)
    write_identity(root, Identity(FORMAT, "clicks", "lineage", "skeleton", {}, {}))
    root.write("pace", b"epochs")
    (root / "queries" / "final").write("bounds.json", b'{"1": "ab"}')
    assert (reported(tmp_path), preflight(tmp_path)) == ("", None)
    (root / "queries" / "final").write("bounds.json", content)
    assert "queries/final/bounds.json cannot be read" in reported(tmp_path)
    outcome = preflight(tmp_path)
    assert isinstance(outcome, CheckpointDamaged)
    assert "queries/final/bounds.json cannot be read" in outcome.message
    assert "LedgerAhead" in str(outcome.hint)


def forget_newest(query: Path) -> None:
    newest = max(int(path.name) for path in (query / "offsets").glob("[0-9]*"))
    for path in [*query.glob(f"*/{newest}"), *query.glob(f"*/.{newest}.crc")]:
        path.unlink()


LOST: dict[str, Callable[[Path], object]] = {
    "the newest offsets and commit": forget_newest,
    "all offsets and commits": lambda query: [delete(query / name) for name in ("offsets", "commits")],
    "the whole query": delete,
    "the whole query and the layout": lambda query: [delete(query.parent), delete(query.parents[1] / "layout.json")],
}


SIGNS = [(what, sign) for what in LOST for sign in ("record", "begun")]
SIGNS += [(what, "state") for what in LOST if "query" not in what]


@pytest.mark.parametrize(("what", "sign"), SIGNS)
def test_epochs_of_which_spark_knows_nothing_any_more_are_reported_and_stop_a_run(
    what: str, sign: str, stopped_job: Made
) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    newest = int(newest_record(checkpoint).stem)
    LOST[what](checkpoint / "queries" / "final")
    if sign != "record":
        delete(checkpoint / "epochs")
    if sign == "begun":
        shutil.rmtree(checkpoint / "queries" / "final" / "state", ignore_errors=True)
        (checkpoint / "staged" / "final").mkdir(parents=True, exist_ok=True)
        (checkpoint / "staged" / "final" / "begun").write_text(str(newest))
    lost = f"queries/final/offsets/{newest}"
    assert f"{lost} is missing" in reported(checkpoint)
    outcome = preflight(checkpoint)
    assert isinstance(outcome, CheckpointDamaged)
    assert f"{lost} is missing" in outcome.message
    assert "savepoint" in str(outcome.hint)


def test_what_is_left_after_lost_epochs_can_be_restored_as_a_new_lineage(stopped_job: Made, tmp_path: Path) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    forget_newest(checkpoint / "queries" / "final")
    outcome = preflight(checkpoint)
    assert isinstance(outcome, CheckpointDamaged)
    assert "penstock savepoint restore checkpoint-older" in str(outcome.hint)
    create_savepoint(folder(checkpoint), folder(tmp_path), "older")
    restore_savepoint(folder(tmp_path / "older"), folder(tmp_path / "restored"))
    assert (reported(tmp_path / "restored"), preflight(tmp_path / "restored")) == ("", None)


def test_epochs_that_a_repair_has_rolled_back_are_not_lost(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("memory")) / "checkpoint"
    query = checkpoint / "queries" / "final"
    delete(query / "offsets" / newest_record(checkpoint).stem)
    assert preflight(checkpoint) is None
    assert "shows" not in reported(checkpoint)
    assert preflight(checkpoint) is None


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
# In short, Penstock's files, Spark's files and all state, and each backend; the walk above has every other file.
QUICK = {("memory", "the newest record is cut"), ("rocksdb", "all state is missing")}
QUICK |= {("memory", "Spark's metadata of the query is missing")}


@pytest.mark.parametrize(
    ("state", "what"),
    [
        pytest.param(state, what, marks=[] if (state, what) in QUICK else [pytest.mark.slow])
        for state in ("memory", "rocksdb")
        for what in REPAIRED
    ],
)
def test_a_run_repairs_what_it_can_and_its_results_are_complete(
    state: str, what: str, stopped_job: Made, settings: Settings
) -> None:
    data = as_it_was(stopped_job(state))
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
    name: str, damage: str, stopped_job: Made, settings: Settings
) -> None:
    data = as_it_was(stopped_job("reminders"))
    DAMAGES[damage](data / "checkpoint" / name)
    with pytest.raises(CheckpointDamaged, match=re.escape(name)) as error:
        reminders(data).run(until="drained", checkpoint=data / "checkpoint", settings=on(settings, "rocksdb"))
    assert re.search("copy|savepoint|writes it again|without a line end", str(error.value.hint))


def test_rows_that_are_sealed_and_then_damaged_are_not_computed_again(stopped_job: Made, settings: Settings) -> None:
    """As after a crash between the seal and the commit: sinks may have a part of the rows."""
    data = as_it_was(stopped_job("reminders"))
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


def test_a_sealed_epoch_goes_out_with_its_answers_or_not_at_all(stopped_job: Made, settings: Settings) -> None:
    data = as_it_was(stopped_job("unfinished"))
    checkpoint = data / "checkpoint"
    answers = [*checkpoint.glob("staged/final/answers/1/*.arrow")]
    kept = [path.read_bytes() for path in answers]
    answers[0].unlink()
    with pytest.raises(CheckpointDamaged, match=f"{answers[0].name} is missing") as error:
        asking(data).run(until="drained", checkpoint=checkpoint, settings=settings)
    assert "if no sink has rows of the epoch yet, remove staged/final/outbox/1" in str(error.value.hint)
    answers[0].write_bytes(kept[0])
    asking(data).run(until="drained", checkpoint=checkpoint, settings=settings)
    assert not reported(checkpoint)


@pytest.mark.parametrize("lost", ["outbox/1/sealed", "outbox"])
def test_an_epoch_that_a_sink_has_is_not_computed_again_without_its_seal(
    lost: str, stopped_job: Made, settings: Settings
) -> None:
    data = as_it_was(stopped_job("unfinished"))
    delete(data / "checkpoint" / "staged" / "final" / lost)
    with pytest.raises(CheckpointDamaged, match=r"outbox/1/sealed is missing, and sinks have rows") as error:
        asking(data).run(until="drained", checkpoint=data / "checkpoint", settings=settings)
    assert "put a newer copy of the checkpoint back" in str(error.value.hint)


def test_a_lost_seal_of_an_epoch_that_was_recorded_is_reported(stopped_job: Made) -> None:
    checkpoint = as_it_was(stopped_job("unfinished")) / "checkpoint"
    shutil.copy(checkpoint / "epochs" / "final" / "0.json", checkpoint / "epochs" / "final" / "1.json")
    (checkpoint / "staged" / "final" / "outbox" / "1" / "sealed").unlink()
    assert "staged/final/outbox/1/sealed is missing: sinks have the epoch" in reported(checkpoint)
    outcome = preflight(checkpoint)
    assert isinstance(outcome, CheckpointDamaged)
    assert "outbox/1/sealed is missing" in outcome.message


@pytest.mark.parametrize(
    "said",
    [
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] ... delta file 7.delta does not exist",
        "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location 7.delta should be empty on batch 0",
    ],
)
def test_an_error_of_spark_about_damaged_files_is_reported_as_checkpoint_damaged(said: str, tmp_path: Path) -> None:
    error = translate(Exception(said), job(tmp_path).graph, Staging(folder(tmp_path)), -1)
    assert isinstance(error, CheckpointDamaged)
    assert "7.delta" in error.message
    assert "penstock checkpoints" in str(error.hint)
