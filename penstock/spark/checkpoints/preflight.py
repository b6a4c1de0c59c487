"""Preflight check: before Spark starts, a run checks all of Penstock's own files that it will read.

Files that every run overwrites are deleted if they are damaged. If the record of the newest epoch is damaged, that
epoch runs again and writes it. Any other damage stops the run with an error that names the file.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.plan.graph import Graph, late_output_of
from penstock.plan.physical.determinism import nondeterministic_upstream
from penstock.spark.checkpoints.checkpoint import Checkpoint, Prepare
from penstock.spark.checkpoints.history import History, checksum_of, query_names
from penstock.spark.checkpoints.identity import read_identity
from penstock.spark.checkpoints.integrity import (
    RECORD,
    CheckpointFiles,
    checkpoint_files,
    find_damage,
    is_rewritten_by_every_run,
    lost_epochs,
    remedy,
)
from penstock.spark.checkpoints.layout import FILE as LAYOUT
from penstock.spark.checkpoints.repair import repair
from penstock.spark.checkpoints.spark_files import MISSING, damage_in
from penstock.spark.epochs.bounds import BOUNDS, read_bounds
from penstock.spark.lowering.job_storage import START_OVER, as_new_lineage
from penstock.spark.tasks.offset_files import REPLAY, planned_end, replayed_ends
from penstock.spark.tasks.totals import TotalsLog
from penstock.storage.folders import Folder

METADATA = "metadata"
PACE = "pace"
_log = logging.getLogger(__name__)
Kind = Literal["epochs", "connected", "realtime"]
_PACES: dict[Kind, str] = {
    "epochs": 'pace="throughput" or "fast"',
    "connected": 'pace="fast"',
    "realtime": 'pace="realtime"',
}


def preflight(graph: Graph) -> Prepare:
    """Return what a run in epochs does with a checkpoint before it decides how to go on: it checks and repairs it."""

    def prepare(root: Folder, data: Folder, changed: bool) -> None:
        _refuse_other_kind(data, "epochs")
        check_before_repair(root, data)
        replayable = all(read.source.replayable for read in graph.reads)
        processing_time = any(node.is_processing_time for node in graph.nodes)
        outputs = [write for write in graph.writes if late_output_of(write) is None]
        varying = {graph.own_name(write) for write in outputs if nondeterministic_upstream(write)}
        repair(data, replayable=replayable, processing_time=processing_time, sealed_for=varying, changed=changed)
        check_before_run(root, data)

    return prepare


def check_before_repair(root: Folder, data: Folder) -> None:
    """Check the files of Penstock that the repair of Spark's files reads."""
    for _, error in find_unrepairable(root, data):
        raise error


Unrepairable = Iterator[tuple[str, CheckpointDamaged]]


def find_unrepairable(root: Folder, data: Folder) -> Unrepairable:
    """Yield the damaged files that the repair of Spark's files reads, each with the error that stops a run."""
    try:
        run_kind(data)
    except CheckpointDamaged as error:
        yield PACE, error
    names = query_names(data)
    if data.read(LAYOUT) is None and len(names) > 1 and data.url != root.url:
        message = f"{data}/{LAYOUT} {MISSING}, and without it the queries of the pipeline cannot be matched"
        yield LAYOUT, CheckpointDamaged(message, hint=f"put the file back from a copy, or {START_OVER}")
    yield from _lost_epochs(root, data)
    for name in names:
        query = data / "queries" / name
        yield from _unreadable(data, f"queries/{name}/{REPLAY}", partial(replayed_ends, query))
        yield from _unreadable_bounds(data, name)
        if not _newest_offsets_are_intact(query):
            for source in (data / "sources").names():
                read = partial(planned_end, data / "sources" / source, name)
                yield from _unreadable(data, f"sources/{source}/planned-{name}.json", read)


def _lost_epochs(root: Folder, data: Folder) -> Unrepairable:
    """Yield lost newest epochs of a query: the next one would have the number of one that sinks may have."""
    identity = read_identity(data)
    files = checkpoint_files(data, identity, migrated=data.url != root.url) if identity else None
    for path, reason in lost_epochs(files).items() if files else ():
        left = files.newest_committed if files else {}
        message = f"{data}/{path} {reason}"
        other = f"; or {as_new_lineage(root, left.get(path.split('/')[1], -1))}" if left else ""
        yield path, CheckpointDamaged(message, hint=remedy(path) + other)


def _unreadable(data: Folder, path: str, read: Callable[[], object]) -> Unrepairable:
    """Yield a file with offsets of epochs if it cannot be read."""
    try:
        read()
    except ValueError:
        message = f"{data}/{path} cannot be read, and it may have the offsets of epochs that have to run again"
        yield path, CheckpointDamaged(message, hint=f"put the file back from a copy, or {START_OVER}")


def _unreadable_bounds(data: Folder, query: str) -> Unrepairable:
    try:
        read_bounds(data / "queries" / query)
    except ValueError:
        message = f"{data}/queries/{query}/{BOUNDS} cannot be read, and sinks may know an epoch by it"
        hint = "put the file back from a copy; or remove it: a run that needs it stops with LedgerAhead"
        yield f"queries/{query}/{BOUNDS}", CheckpointDamaged(message, hint=hint)


def _newest_offsets_are_intact(query: Folder) -> bool:
    history = History(query)
    return history.last < 0 or damage_in(history, f"offsets/{history.last}") is None


def check_before_run(root: Folder, data: Folder) -> None:
    """Check, after the repair of Spark's files, all files of Penstock that this run will read; repair what it can."""
    identity = read_identity(data)
    if identity is None:
        return
    for name in query_names(data):
        _restore_query_id(data / "queries" / name)
    files = checkpoint_files(data, identity, migrated=data.url != root.url)
    for path, reason in find_damage(files, newest_only=True).items():
        if is_overwritten(files, path, reason):
            _discard(data, path, reason)
        elif found := epoch_of_lost_record(files, path):
            _run_again(files, *found, reason)
        else:
            message = f"{data}/{path} {reason}"
            raise CheckpointDamaged(message, hint=remedy(path))


def is_overwritten(files: CheckpointFiles, path: str, reason: str) -> bool:
    """Return whether the next run writes a damaged file again."""
    is_lost_kind = path == PACE and reason == MISSING
    return is_rewritten_by_every_run(path) or _is_of_open_epoch(files, path) or is_lost_kind


def epoch_of_lost_record(files: CheckpointFiles, path: str) -> tuple[str, int] | None:
    """Return the query and the epoch whose record a damaged file is, if the epoch can run again and write it."""
    match = RECORD.fullmatch(path)
    query, epoch = (match["query"], int(match["epoch"])) if match else ("", -1)
    can_run_again = files.newest_committed.get(query) == epoch == files.histories[query].last if match else False
    return (query, epoch) if can_run_again and _has_record(files, query, epoch - 1) else None


def _restore_query_id(query: Folder) -> None:
    """Give a query a new id if its own is lost: nothing depends on it, but Spark does not start without one."""
    if query.read(METADATA) is None and (query / "offsets").names():
        _log.warning("checkpoint %s: %s %s; the query gets a new id", query, METADATA, MISSING)
        query.remove(checksum_of(METADATA))
        query.write(METADATA, json.dumps({"id": str(uuid.uuid4())}).encode())


def _discard(data: Folder, path: str, reason: str) -> None:
    if reason != MISSING:
        _log.warning("checkpoint %s: %s %s; this run overwrites it", data, path, reason)
        data.remove(path)


def _is_of_open_epoch(files: CheckpointFiles, path: str) -> bool:
    """Return whether a file is the record of an epoch that is not committed and so will run."""
    match = RECORD.fullmatch(path)
    return match is not None and int(match["epoch"]) > files.newest_committed.get(match["query"], -1)


def _run_again(files: CheckpointFiles, query: str, epoch: int, reason: str) -> None:
    """Make the newest epoch run again if only its record is damaged; sinks that have the epoch skip it."""
    history, path = files.histories[query], f"epochs/{query}/{epoch}.json"
    aside = f"set-aside/{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    moved = history.with_checksums([f"commits/{epoch}"])
    history.folder.copy(moved, files.data / aside / "queries" / query)
    for name in moved:
        history.folder.remove(name)
    files.data.remove(path)
    done = f"epoch {epoch} will run again with the same offsets; its commit is in {aside}"
    _log.warning("checkpoint %s: %s %s; %s", files.data, path, reason, done)


def _has_record(files: CheckpointFiles, query: str, epoch: int) -> bool:
    try:
        return epoch < 0 or TotalsLog(files.data / "epochs" / query).at(epoch) is not None
    except CheckpointDamaged:
        return False


def check_run_kind(checkpoint: Checkpoint, mine: Kind) -> None:
    """Refuse a checkpoint of another kind of run: its offsets and state have another form."""
    _refuse_other_kind(checkpoint.folder, mine)
    checkpoint.folder.write(PACE, mine.encode(), sync=False)


def _refuse_other_kind(data: Folder, mine: Kind) -> None:
    found = run_kind(data) or mine
    if found != mine:
        message = f"checkpoint {data} was written at {_PACES[found]}, which has other offsets and state"
        raise CheckpointMismatch(message, hint="keep that pace, or choose another --checkpoint folder")


def run_kind(data: Folder) -> Kind | None:
    """Return the kind of the runs that wrote a checkpoint; None for a new one."""
    found = data.read(PACE)
    for kind in _PACES:
        if found == kind.encode():
            return kind
    if found is None and not (data / "queries").names():
        return None
    # Only micro-batch runs write a layout.
    if found is None and "layout.json" in data.names():
        return "epochs"
    message = f"{data}/{PACE} " + (MISSING if found is None else f"cannot be read: it holds {found[:40]!r}")
    hint = "write the kind of the run that wrote this checkpoint into it, without a line end"
    raise CheckpointDamaged(message, hint=f"{hint}: {', '.join(f'{kind} ({pace})' for kind, pace in _PACES.items())}")
