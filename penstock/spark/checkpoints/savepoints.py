"""Savepoints: named, self-contained copies of a job's checkpoint.

savepoint.json   its metadata, written last: without it the savepoint is incomplete
checkpoint/      the checkpoint as it was after an epoch: offsets, state, files of sources, plan and fingerprints
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.errors import (
    BadValue,
    CheckpointDamaged,
    CheckpointExists,
    CheckpointMissing,
    DiskFull,
    SettingsError,
    choices,
)
from penstock.spark.checkpoints.copying import copy_checkpoint, remove_data
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.identity import Identity, read_identity
from penstock.spark.checkpoints.inspect import checkpoint_at, watermark
from penstock.spark.checkpoints.integrity import checkpoint_files, damaged_runs
from penstock.spark.checkpoints.layout import UNKNOWN, read_layout
from penstock.spark.checkpoints.spark_files import damage_in
from penstock.storage.folders import Folder

FILE = "savepoint.json"
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class SavedQuery:
    """One query: its last epoch and offsets, and the lineage and epoch in the ledger of each sink."""

    epoch: int
    watermark: str | None
    offsets: dict[str, Any]
    ledger: dict[str, list[str | int]]


@dataclass(frozen=True)
class Savepoint:
    """What `savepoint.json` holds."""

    name: str
    taken: str
    pipeline: str
    lineage: str
    fingerprint: str
    nodes: dict[str, str]
    queries: dict[str, SavedQuery]
    files: int
    bytes: int


def create_savepoint(checkpoint: Folder, savepoints: Folder, name: str | None = None) -> Savepoint:
    """Copy a checkpoint into a folder of savepoints, while its job runs or not."""
    data = checkpoint_at(checkpoint)
    name = _new_name(savepoints, name)
    target = savepoints / name
    with _storage_errors(target):
        copied = copy_checkpoint(data, target / "checkpoint", links=False)
        identity = read_identity(target / "checkpoint")
        assert identity is not None
        if not copied.epochs:
            savepoints.remove(name)
            message = f"{checkpoint}: no epoch is committed yet, so there is nothing to save"
            raise CheckpointMissing(message, hint="wait for the first epoch of the job", transient=True)
        _refuse_damage(target, copied.epochs)
        _refuse_damaged_runs(target, identity, migrated=data.url != checkpoint.url)
        savepoint = _metadata(name, target / "checkpoint", identity, copied.files, copied.bytes)
        target.write(FILE, json.dumps(asdict(savepoint), indent=2).encode())
    return savepoint


def read_savepoint(where: Folder) -> Savepoint:
    """Return the metadata of a savepoint; raises if there is none, or it is incomplete."""
    data = where.read(FILE)
    if data is None:
        # Some stores still list folders whose files are all deleted.
        incomplete = bool((where / "checkpoint").files())
        message = (
            f"savepoint {where} is incomplete: creating it was interrupted"
            if incomplete
            else f"no savepoint at {where}"
        )
        hint = "delete it and create another" if incomplete else "`penstock savepoint list` shows all savepoints"
        raise CheckpointDamaged(message, hint=hint) if incomplete else CheckpointMissing(message, hint=hint)
    try:
        found = json.loads(data)
        queries = {name: SavedQuery(**query) for name, query in found.pop("queries").items()}
        return Savepoint(**found, queries=queries)
    except (ValueError, TypeError, KeyError) as error:
        message = f"{where}/{FILE} cannot be read: {error!r}"
        raise CheckpointDamaged(message, hint="create another savepoint") from error


def find_savepoint(text: str, savepoints: Folder, at: Folder) -> Folder:
    """Return the folder of a savepoint that a user named: a name among the savepoints, or a path or URL."""
    if "/" in text or FILE in at.names():
        return at
    known = savepoints.names()
    if text not in known or not (savepoints / text).files():
        message = f"there is no savepoint '{text}' in {savepoints}"
        raise CheckpointMissing(message, hint=choices("savepoints there", known, text))
    return savepoints / text


def list_savepoints(savepoints: Folder) -> dict[str, Savepoint | None]:
    """Return the savepoints of a folder by name, oldest first; None for an incomplete one."""
    found: dict[str, Savepoint | None] = {}
    for name in savepoints.names():
        try:
            found[name] = read_savepoint(savepoints / name)
        except CheckpointDamaged:
            found[name] = None
        except CheckpointMissing:
            continue
    return dict(sorted(found.items(), key=lambda one: one[1].taken if one[1] else ""))


def restore_savepoint(
    where: Folder, checkpoint: Folder, pipeline: str | None = None, *, replaces: bool = False
) -> Identity:
    """Create a checkpoint from a savepoint, with a new lineage; another pipeline's name forks the job.

    `replaces` deletes the checkpoint that is there, whose lease the caller holds.
    """
    read_savepoint(where)
    if pipeline is not None:
        _refuse_name(pipeline, "a pipeline")
    if not replaces and checkpoint.files():
        message = f"{checkpoint} exists already"
        raise CheckpointExists(message, hint="restore to a new folder, and run the job with that --checkpoint")
    with _storage_errors(checkpoint):
        found = read_identity(where / "checkpoint")
        if found is None:
            message = f"savepoint {where} has no penstock.json"
            raise CheckpointDamaged(message, hint="use another savepoint")
        identity = replace(found, pipeline=pipeline or found.pipeline, lineage=uuid.uuid4().hex[:12])
        remove_data(checkpoint)
        copy_checkpoint(where / "checkpoint", checkpoint, identity=identity, links=False)
    return identity


def delete_savepoint(savepoints: Folder, where: Folder) -> None:
    """Delete a savepoint, complete or not."""
    if not {FILE, "checkpoint"} & {name.partition("/")[0] for name in where.files()}:
        message = f"no savepoint at {where}"
        raise CheckpointMissing(message, hint=choices("savepoints there", savepoints.names()))
    if {"lease", "staged", "current"} & {*(where / "checkpoint").names()}:
        message = f"{where}/checkpoint is the checkpoint of a job, not of a savepoint"
        raise BadValue(message, hint=choices("savepoints", savepoints.names()))
    # The metadata first: an interrupted deletion must not leave a savepoint that seems complete.
    where.remove(FILE)
    where.remove("checkpoint")
    if where.local is not None and not where.names():
        where.local.rmdir()


def _new_name(savepoints: Folder, name: str | None) -> str:
    if name is None:
        name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    _refuse_name(name, "a savepoint")
    if (savepoints / name).files():
        message = f"savepoint '{name}' exists already in {savepoints}"
        raise CheckpointExists(message, hint=f"choose another --name, or `penstock savepoint delete {name}` first")
    return name


def _refuse_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        message = f"{name!r} cannot be {what}'s name"
        raise BadValue(message, hint="use letters, digits, '-', '_' and '.'")


def _refuse_damage(target: Folder, epochs: Any) -> None:
    for query in epochs:
        history = History(target / "checkpoint" / "queries" / query)
        for name in history.files:
            if reason := damage_in(history, name):
                target.remove("checkpoint")
                message = f"no savepoint was created: {query}/{name} of the checkpoint {reason}"
                raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what is left of the checkpoint")


def _refuse_damaged_runs(target: Folder, identity: Identity, *, migrated: bool) -> None:
    """Refuse a copy whose keyed state is damaged or not all there."""
    copy = target / "checkpoint"
    found = damaged_runs(checkpoint_files(copy, identity, migrated=migrated))
    for name, reason in found.items():
        target.remove("checkpoint")
        message = f"no savepoint was created: {name} of the checkpoint {reason}"
        raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what is left of the checkpoint")


def _metadata(name: str, copy: Folder, identity: Identity, files: int, size: int) -> Savepoint:
    layout = read_layout(copy)
    queries = {}
    for query in (copy / "queries").names():
        history = History(copy / "queries" / query)
        epoch, known = max(history.committed), layout.queries.get(query, UNKNOWN)
        offsets = known.by_source(history.offsets(epoch))
        sinks = [*known.sinks, *([known.rejected] if known.rejected else [])]
        ledger: dict[str, list[str | int]] = {sink: [identity.lineage, epoch] for sink in sinks}
        time = watermark(history, copy / "epochs" / query, epoch, known.mark)
        queries[query] = SavedQuery(epoch, time, offsets, ledger)
    taken = datetime.now(UTC).isoformat(timespec="milliseconds")
    about = (identity.pipeline, identity.lineage, identity.skeleton, identity.nodes)
    return Savepoint(name, taken, *about, queries, files, size)


@contextmanager
def _storage_errors(where: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == 28:  # ENOSPC
            message = f"no space left for {where}"
            raise DiskFull(message, hint="free some space, and try again", transient=True) from error
        message = f"cannot read or write {error.filename or where}: {error.strerror or error}"
        raise SettingsError(message, hint="choose a folder that you may read and write") from error
