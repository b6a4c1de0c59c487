"""What a run checks before Spark starts, besides Spark's own files: everything of Penstock's that it will read.

Hints that each run writes for itself are removed if they cannot be read. A newest record that is damaged is written
again by its epoch, which runs once more. Anything else stops the run with an error that names the file.
"""

from __future__ import annotations

import json
import logging
import uuid
from datetime import UTC, datetime

from penstock.errors import CheckpointDamaged
from penstock.folders import Folder
from penstock.spark.checkpoints.checkpoint import ANEW, read_identity
from penstock.spark.checkpoints.copying import query_names
from penstock.spark.checkpoints.history import History, checksum_of
from penstock.spark.checkpoints.integrity import GONE, RECORD, Kept, is_passing, kept_in, own_problems, way_out
from penstock.spark.checkpoints.layout import FILE as LAYOUT
from penstock.spark.checkpoints.wholeness import broken
from penstock.spark.epochs.notes import REPLAY

METADATA = "metadata"
_log = logging.getLogger(__name__)


def check_notes(root: Folder, data: Folder) -> None:
    """Before the repair of Spark's files: check what that repair reads of ours."""
    names = query_names(data)
    if data.read(LAYOUT) is None and len(names) > 1 and data.url != root.url:
        message = f"{data}/{LAYOUT} {GONE}, and which query is whose cannot be told without it"
        raise CheckpointDamaged(message, hint=f"put the file back from a copy, or {ANEW}")
    for name in names:
        _refuse_if(data, f"queries/{name}/{REPLAY}")
        for source in (data / "sources").names():
            _refuse_if(data, f"sources/{source}/planned-{name}.json", needed_by=name)


def _refuse_if(data: Folder, path: str, needed_by: str | None = None) -> None:
    """Raise if a file cannot be read; one that only a query with damaged bounds needs, if these are damaged."""
    content = data.read(path)
    try:
        if content is not None:
            json.loads(content)
    except ValueError as error:
        if needed_by is None or not _bounds_are_whole(data, needed_by):
            message = f"{data}/{path} cannot be read, and the bounds of epochs that have to run again are in it"
            raise CheckpointDamaged(message, hint=f"put the file back from a copy, or {ANEW}") from error


def _bounds_are_whole(data: Folder, query: str) -> bool:
    history = History(data / "queries" / query)
    return history.last < 0 or broken(history, f"offsets/{history.last}") is None


def check_before_run(root: Folder, data: Folder) -> None:
    """After the repair of Spark's files: check all that this run will read of ours, and repair what can be."""
    identity = read_identity(data)
    if identity is None:
        return
    for name in query_names(data):
        _identify(data / "queries" / name)
    kept = kept_in(data, identity, migrated=data.url != root.url)
    for path, reason in own_problems(kept, newest_only=True).items():
        if is_passing(path) or _of_open_epoch(kept, path) or (path == "pace" and reason == GONE):
            _discard(data, path, reason)
        elif not _runs_again(kept, path, reason):
            message = f"{data}/{path} {reason}"
            raise CheckpointDamaged(message, hint=way_out(path))


def _identify(query: Folder) -> None:
    """Give a query a new id if its own is lost: nothing depends on it, but Spark refuses to start without."""
    if query.read(METADATA) is None and (query / "offsets").names():
        _log.warning("checkpoint %s: %s %s; the query gets a new id", query, METADATA, GONE)
        query.remove(checksum_of(METADATA))
        query.write(METADATA, json.dumps({"id": str(uuid.uuid4())}).encode())


def _discard(data: Folder, path: str, reason: str) -> None:
    if reason != GONE:
        _log.warning("checkpoint %s: %s %s; this run writes it again", data, path, reason)
        data.remove(path)


def _of_open_epoch(kept: Kept, path: str) -> bool:
    """Say whether it is the record of an epoch that is not committed, and so will be run."""
    match = RECORD.fullmatch(path)
    return match is not None and int(match["epoch"]) > kept.done.get(match["query"], -1)


def _runs_again(kept: Kept, path: str, reason: str) -> bool:
    """Have the newest epoch run again if only its record is damaged: sinks that have it skip it."""
    for query, epoch in kept.done.items():
        if path == f"epochs/{query}/{epoch}.json" and _has_record(kept, query, epoch - 1):
            history = kept.histories[query]
            aside = f"set-aside/{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
            if epoch != history.last:
                return False
            moved = history.with_checksums([f"commits/{epoch}"])
            history.folder.copy(moved, kept.data / aside / "queries" / query)
            for name in moved:
                history.folder.remove(name)
            kept.data.remove(path)
            done = f"epoch {epoch} will run again with the same bounds; its commit is in {aside}"
            _log.warning("checkpoint %s: %s %s; %s", kept.data, path, reason, done)
            return True
    return False


def _has_record(kept: Kept, query: str, epoch: int) -> bool:
    content = kept.data.read(f"epochs/{query}/{epoch}.json")
    try:
        return epoch < 0 or isinstance(json.loads(content or b""), dict)
    except ValueError:
        return False
