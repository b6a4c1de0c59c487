"""Copies of a checkpoint as it was after an epoch, taken while its job runs.

What Spark wrote never changes, only vanishes: it is linked or copied, and all begins again if a file went. Our own
small files change, so they are copied by content, and after the epoch is known: notes of sources cover it and more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import CheckpointDamaged, CheckpointMismatch, CheckpointMissing
from penstock.folders import Folder
from penstock.folders.journal import copy_journal
from penstock.spark.checkpoints.checkpoint import IDENTITY, Identity, read_identity, write_identity
from penstock.spark.checkpoints.generations import COUNTED
from penstock.spark.checkpoints.history import History, Store, is_checksum
from penstock.spark.checkpoints.layout import Layout, read_layout
from penstock.spark.epochs.clock import JOURNAL as TICKS
from penstock.spark.epochs.compaction import seen
from penstock.spark.epochs.declared import WAKEUPS

# Of epochs under way, of this machine, or of the past: no part of what a job has come to.
_NOT_COPIED = ("staged", "set-aside", "generations", "current", COUNTED, "lease", "lease.jvm", "suspect")
_OF_PLANNING = re.compile(r"(offsets|planned-[^/]+)\.json")
_JOURNAL = re.compile(r"(?P<name>.+?)(/(base-)?\d{9,})?\.jsonl")
_TRIES = 20


@dataclass(frozen=True)
class Copied:
    """What was copied: the last epoch of each query, and how much."""

    epochs: Mapping[str, int]
    files: int
    bytes: int


def copy_checkpoint(
    source: Folder,
    target: Folder,
    epoch: int | None = None,
    *,
    identity: Identity | None = None,
    links: bool = True,
) -> Copied:
    """Copy a checkpoint to a new place, each of its queries as it was after its last epoch that is done.

    Both are folders of data. `epoch` asks for an earlier one. Without `links` no file is shared with the original.
    `identity` is the copy's, if it gets another: one that is run needs a lineage of its own.
    """
    for _ in range(_TRIES):
        try:
            return _copied(source, target, epoch, identity, links)
        except FileNotFoundError as error:
            # Spark removed what it no longer needs, so there is a newer epoch to copy.
            gone = error
            for name in target.names():
                target.remove(name)
    for name in query_names(source):
        if missing := History(source / "queries" / name).missing:
            message = f"{source}: queries/{name}/{missing[0]} is gone"
            raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what is left")
    message = f"{source} changes faster than it can be copied: {gone.args[-1]} vanished"
    hint = "keep more epochs (setting `checkpoint_retention`), or try again when there is less to do"
    raise CheckpointMismatch(message, hint=hint, transient=True)


def query_names(source: Folder) -> list[str]:
    """Return the queries that a checkpoint has state or offsets of."""
    return [name for name in (source / "queries").names() if not name.startswith(".")]


def _copied(source: Folder, target: Folder, epoch: int | None, identity: Identity | None, links: bool) -> Copied:
    identity = identity or read_identity(source)
    if identity is None:
        message = f"{source} is no checkpoint: it has no {IDENTITY}"
        raise CheckpointMissing(message, hint="give the folder that `penstock run --checkpoint` was given")
    layout = read_layout(source)
    histories = {name: History(source / "queries" / name, layout.operators(name)) for name in query_names(source)}
    epochs = {name: newest for name, history in histories.items() if (newest := _newest(history, epoch)) is not None}
    for name, last in epochs.items():
        _copy_records(source / "epochs" / name, target / "epochs" / name, last)
        _copy_query(histories[name], target / "queries" / name, last, links)
    _copy_notes(source, target, _seen(layout, histories, epochs))
    # Last of all: with it the copy is a checkpoint.
    write_identity(target, identity)
    files = target.files()
    return Copied(epochs, len(files), sum(files.values()))


def _newest(history: History, epoch: int | None) -> int | None:
    """Return the last epoch that is done and wanted; None if the query has not finished any."""
    done = [one for one in history.committed if epoch is None or one <= epoch]
    if not done and history.committed:
        message = f"{history.folder}: epoch {epoch} is no longer kept"
        hint = f"kept are {history.committed[0]} to {history.committed[-1]}"
        raise CheckpointMissing(message, hint=hint)
    return max(done, default=None)


def needed(history: History, epoch: int) -> list[str]:
    """Return the files that Spark needs to go on after an epoch: its bounds and those before it, and the state."""
    logs = [f"{log}/{one}" for log in ("offsets", "commits") for one in (epoch - 1, epoch)]
    names = [name for name in (*logs, "metadata", *history.about_state) if name in history.files]
    for store in history.stores:
        names += _state(history, store, epoch)
    return names


def _copy_query(history: History, target: Folder, epoch: int, links: bool) -> None:
    names = needed(history, epoch)
    for name in (f"commits/{epoch}", f"offsets/{epoch}", *([f"offsets/{epoch - 1}"] if epoch else [])):
        # Spark would not go on without; of a job that runs it may have been listed too late.
        if name not in names:
            message = f"{history.folder.url}/{name}"
            raise FileNotFoundError(message)
    wanted = history.with_checksums(names) if target.local else names
    if links:
        history.folder.copy(wanted, target)
        return
    for name in wanted:
        target.write(name, history.read(name), sync=False)


def _state(history: History, store: Store, epoch: int) -> list[str]:
    names = next(store.chains(epoch + 1), None)
    if names is None:
        message = f"{history.folder}: the state after epoch {epoch} is not there in state/{store.path}"
        raise CheckpointDamaged(message, hint="`penstock checkpoints` shows the epochs that have theirs")
    tables = [table for name in names if name.endswith(".zip") for table in history.tables(name)]
    return names + tables


def _copy_records(source: Folder, target: Folder, epoch: int) -> None:
    """Copy the totals up to an epoch, and those of the epoch before it, whose commit is copied too."""
    numbers = [int(name.removesuffix(".json")) for name in source.names() if re.fullmatch(r"\d+\.json", name)]
    last = max((number for number in numbers if number <= epoch), default=epoch)
    for number in sorted({last, epoch - 1} & {*numbers}):
        _copy_file(source, target, f"{number}.json")


def _copy_notes(source: Folder, target: Folder, ends: Mapping[str, int]) -> None:
    for name in source.names():
        if name not in (*_NOT_COPIED, IDENTITY, "queries", "epochs"):
            _copy_below(source, target, name, list((source / name).files()), ends)


def _copy_below(source: Folder, target: Folder, name: str, below: list[str], ends: Mapping[str, int]) -> None:
    paths = [f"{name}/{path}" for path in below] or [name]
    journals = {match["name"] for path in paths if (match := _JOURNAL.fullmatch(path))}
    for path in journals:
        folder, _, last = path.rpartition("/")
        # What was declared after the epoch is the first job's own, above all the end of time.
        copy_journal(source / folder, target / folder, last, ends.get(path))
    for path in paths:
        file = path.rpartition("/")[2]
        planning = name == "sources" and _OF_PLANNING.fullmatch(file)
        if not (_JOURNAL.fullmatch(path) or planning or is_checksum(path) or file.startswith(".")):
            _copy_file(source, target, path)


def _copy_file(source: Folder, target: Folder, name: str) -> None:
    data = source.read(name)
    if data is None:
        message = f"{source.url}/{name}"
        raise FileNotFoundError(message)
    target.write(name, data)


def _seen(layout: Layout, histories: Mapping[str, History], epochs: Mapping[str, int]) -> dict[str, int]:
    """Return how many declared entries these epochs had seen; nothing if no run has noted which offset is whose."""
    if not all(name in layout.queries for name in epochs):
        return {}
    ends = {TICKS: 0, WAKEUPS: 0}
    for name, epoch in epochs.items():
        for of, offset in zip(layout.queries[name].sources, histories[name].offsets(epoch), strict=True):
            ends = {journal: max(end, seen(journal, of, offset)) for journal, end in ends.items()}
    return ends
