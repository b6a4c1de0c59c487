"""Copies of a checkpoint as it was after an epoch, taken while its job runs.

Spark never changes a file, it only deletes old ones: files are linked or copied, and the copy starts over if one was
deleted meanwhile. Penstock's own small files change, so they are copied by content, after the epoch is chosen: then the
files of sources cover at least that epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import CheckpointDamaged, CheckpointMismatch, CheckpointMissing
from penstock.spark.checkpoints.history import History, is_checksum, query_names
from penstock.spark.checkpoints.identity import ACTIVATED, IDENTITY, Identity, read_identity, write_identity
from penstock.spark.checkpoints.layout import Layout, read_layout
from penstock.spark.checkpoints.runs import KEYED, copy_runs
from penstock.spark.epochs.journal_compaction import entries_read
from penstock.spark.tasks.control_journal import TIMERS
from penstock.spark.tasks.control_journal import TIMES_JOURNAL as TICKS
from penstock.storage.folders import Folder
from penstock.storage.journals import copy_journal

LEASES = ("lease", "lease.jvm")
# Files of running epochs, of this machine, or of older generations: not needed to resume.
_NOT_COPIED = ("staged", KEYED, "set-aside", "generations", "current", ACTIVATED, *LEASES, "suspect")
_PLANNING_FILE = re.compile(r"(offsets|planned-[^/]+)\.json")
_JOURNAL = re.compile(r"(?P<name>.+?)(/(base-)?\d{9,})?\.jsonl")
_TRIES = 20


@dataclass(frozen=True)
class CopyResult:
    """The last epoch of each query in a copy, and the number and size of its files."""

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
) -> CopyResult:
    """Copy a checkpoint to a new folder, each of its queries as it was after its last committed epoch.

    `source` and `target` are data folders. `epoch` selects an earlier one. Without `links` no file is shared with the
    original. `identity` replaces that of the original: a copy that will run needs a lineage of its own.
    """
    for _ in range(_TRIES):
        try:
            return _copy(source, target, epoch, identity, links)
        except FileNotFoundError as error:
            # Spark deleted files that it no longer needs, so there is a newer epoch to copy.
            deleted = error
            remove_data(target)
    for name in query_names(source):
        if missing := History(source / "queries" / name).missing_offsets:
            message = f"{source}: queries/{name}/{missing[0]} is missing"
            raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what is left")
    message = f"{source} changes faster than it can be copied: {deleted.args[-1]} was deleted meanwhile"
    hint = "retain more epochs (setting `checkpoint_retention`), or try again under less load"
    raise CheckpointMismatch(message, hint=hint, transient=True)


def remove_data(checkpoint: Folder) -> None:
    """Remove everything from a checkpoint but its lease; first what makes the rest a checkpoint."""
    for name in sorted(checkpoint.names(), key=lambda name: name != IDENTITY):
        if name not in LEASES:
            checkpoint.remove(name)


def _copy(source: Folder, target: Folder, epoch: int | None, identity: Identity | None, links: bool) -> CopyResult:
    identity = identity or read_identity(source)
    if identity is None:
        message = f"{source} is not a checkpoint: it has no {IDENTITY}"
        raise CheckpointMissing(message, hint="give the folder that `penstock run --checkpoint` was given")
    layout = read_layout(source)
    histories = {name: History(source / "queries" / name, layout.operators(name)) for name in query_names(source)}
    epochs = {name: newest for name, history in histories.items() if (newest := _newest(history, epoch)) is not None}
    for name, last in epochs.items():
        _copy_records(source / "epochs" / name, target / "epochs" / name, last)
        _copy_query(histories[name], target / "queries" / name, last, links)
        _copy_keyed_state(source, target, name, last)
    _copy_own_files(source, target, _journal_ends(layout, histories, epochs))
    # Last: with its identity the copy is a checkpoint.
    write_identity(target, identity)
    files = target.files()
    return CopyResult(epochs, len(files), sum(files.values()))


def _newest(history: History, epoch: int | None) -> int | None:
    """Return the last committed epoch up to `epoch`; None if the query has not committed any."""
    committed = [one for one in history.committed if epoch is None or one <= epoch]
    if not committed and history.committed:
        message = f"{history.folder}: epoch {epoch} is no longer retained"
        hint = f"epochs {history.committed[0]} to {history.committed[-1]} are"
        raise CheckpointMissing(message, hint=hint)
    return max(committed, default=None)


def _copy_query(history: History, target: Folder, epoch: int, links: bool) -> None:
    names = history.files_to_resume(epoch)
    for name in (f"commits/{epoch}", f"offsets/{epoch}", *([f"offsets/{epoch - 1}"] if epoch else [])):
        # Spark cannot continue without it; a running job may have deleted it before it was listed.
        if name not in names:
            message = f"{history.folder.url}/{name}"
            raise FileNotFoundError(message)
    wanted = history.with_checksums(names) if target.local else names
    if links:
        history.folder.copy(wanted, target)
        return
    for name in wanted:
        target.write(name, history.read(name), sync=False)


def _copy_keyed_state(source: Folder, target: Folder, query: str, epoch: int) -> None:
    """Copy the runs of a query: linked where the disk allows it, since they never change."""
    copy_runs(source / KEYED / query, target / KEYED / query, epoch)
    if f"{epoch}" not in (source / "queries" / query / "commits").names():
        # While the epoch is retained, so are its runs.
        message = f"{source.url}/queries/{query}/commits/{epoch}"
        raise FileNotFoundError(message)


def _copy_records(source: Folder, target: Folder, epoch: int) -> None:
    """Copy the totals after an epoch, and those after the epoch before it, whose commit is copied too."""
    numbers = [int(name.removesuffix(".json")) for name in source.names() if re.fullmatch(r"\d+\.json", name)]
    last = max((number for number in numbers if number <= epoch), default=epoch)
    for number in sorted({last, epoch - 1} & {*numbers}):
        _copy_file(source, target, f"{number}.json")


def _copy_own_files(source: Folder, target: Folder, ends: Mapping[str, int]) -> None:
    for name in source.names():
        if name not in (*_NOT_COPIED, IDENTITY, "queries", "epochs"):
            _copy_files(source, target, name, list((source / name).files()), ends)


def _copy_files(source: Folder, target: Folder, name: str, files: list[str], ends: Mapping[str, int]) -> None:
    paths = [f"{name}/{path}" for path in files] or [name]
    journals = {match["name"] for path in paths if (match := _JOURNAL.fullmatch(path))}
    for path in journals:
        folder, _, last = path.rpartition("/")
        # Entries after the epoch belong to the original job only, above all the end of its input.
        copy_journal(source / folder, target / folder, last, ends.get(path))
    for path in paths:
        file = path.rpartition("/")[2]
        planning = name == "sources" and _PLANNING_FILE.fullmatch(file)
        if not (_JOURNAL.fullmatch(path) or planning or is_checksum(path) or file.startswith(".")):
            _copy_file(source, target, path)


def _copy_file(source: Folder, target: Folder, name: str) -> None:
    data = source.read(name)
    if data is None:
        message = f"{source.url}/{name}"
        raise FileNotFoundError(message)
    target.write(name, data)


def _journal_ends(layout: Layout, histories: Mapping[str, History], epochs: Mapping[str, int]) -> dict[str, int]:
    """Return the position in each journal that these epochs have read; empty if the order of sources is unknown."""
    if not all(name in layout.queries for name in epochs):
        return {}
    ends = {TICKS: 0, TIMERS: 0}
    for name, epoch in epochs.items():
        for source, offset in zip(layout.queries[name].sources, histories[name].offsets(epoch), strict=True):
            ends = {journal: max(end, entries_read(journal, source, offset)) for journal, end in ends.items()}
    return ends
