"""What a checkpoint holds, read without running its job: epochs, offsets, watermark, state, and what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import CheckpointDamaged, CheckpointMissing, PenstockError, choices
from penstock.folders import Folder, folder
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import ANEW, IDENTITY, Identity, data_folder, read_identity
from penstock.spark.checkpoints.history import History, Store
from penstock.spark.checkpoints.integrity import GONE, kept_in, own_problems
from penstock.spark.checkpoints.integrity import Kept as Found
from penstock.spark.checkpoints.layout import UNKNOWN
from penstock.spark.checkpoints.missing_files import missing_files, set_aside
from penstock.spark.checkpoints.wholeness import broken, rows_of
from penstock.spark.epochs.records import totals_before
from penstock.spark.lowering.marks import Mark

# Counting rows reads all of the state: up to here that is quick.
MOST_COUNTED = 64 * 2**20


@dataclass(frozen=True)
class Held:
    """The state of one operator: rows where they can be counted, and the epochs after which it is whole."""

    operator: int
    node: str
    stores: int
    rows: int | None
    bytes: int
    whole: list[int]


@dataclass(frozen=True)
class Kept:
    """What a checkpoint keeps of one query."""

    logged: list[int]
    committed: list[int]
    offsets: dict[str, Any]
    watermark: str | None
    state: list[Held]
    bytes: int
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspected:
    """A whole checkpoint."""

    checkpoint: str
    pipeline: str
    lineage: str
    fingerprint: str
    pace: str
    generation: str
    generations: list[str]
    bytes: int
    queries: dict[str, Kept]
    damaged: dict[str, str] = field(default_factory=dict)
    """Files of Penstock's own, by their path in the checkpoint."""

    @property
    def all_damaged(self) -> dict[str, str]:
        """Every damaged file, and what is wrong with it."""
        of_spark = {
            f"queries/{query}/{file}": why for query, kept in self.queries.items() for file, why in kept.damaged.items()
        }
        return self.damaged | of_spark


def find_checkpoint(text: str, settings: Settings) -> Folder:
    """Return the checkpoint that a user named: a path or URL, or a pipeline's name."""
    given, named = folder(text), folder(settings.checkpoints) / text
    for root in (given, *([] if "/" in text else [named])):
        if is_checkpoint(root):
            return root
    message = f"there is no checkpoint at {given}" + ("" if "/" in text else f", nor at {named}")
    known = choices("pipelines with a checkpoint there", folder(settings.checkpoints).names(), text)
    raise CheckpointMissing(message, hint=f"{known}\n  or give the folder that `penstock run --checkpoint` was given")


def checkpoint_at(root: Folder) -> Folder:
    """Return the folder of a checkpoint's data; raises if there is none."""
    if not is_checkpoint(root):
        message = f"there is no checkpoint at {root}"
        raise CheckpointMissing(message, hint="give the folder that `penstock run --checkpoint` was given")
    return data_folder(root)


def is_checkpoint(root: Folder) -> bool:
    """Say whether a folder is a checkpoint; raises if it was one, and has lost what says whose it is."""
    data = data_folder(root)
    if read_identity(data) is not None:
        return True
    if (data / "queries").names() and {"layout.json", "pace", "epochs"} & {*data.names()}:
        message = f"{data}/{IDENTITY} is gone: the pipeline of the other files is unknown"
        raise CheckpointDamaged(message, hint=f"put the file back from a copy, or {ANEW}")
    return False


def inspect(root: Folder) -> Inspected:
    """Look through a checkpoint, every file of it."""
    data = checkpoint_at(root)
    identity = read_identity(data)
    assert isinstance(identity, Identity)
    found = kept_in(data, identity, migrated=data.url != root.url)
    older = [name for name in (root / "generations").names() if not name.startswith(".")]
    return Inspected(
        root.url,
        identity.pipeline,
        identity.lineage,
        identity.skeleton,
        (data.read("pace") or b"epochs").decode(errors="replace"),
        (root.read("current") or b"").decode(errors="replace").strip() or "first",
        ["first", *older],
        sum(data.files().values()),
        {name: _kept(found, name) for name in found.histories},
        own_problems(found),
    )


def watermark(history: History, records: Folder, epoch: int, mark: Mark) -> str | None:
    """Return the watermark of a query after an epoch, as its run showed it; None if there is none."""
    by_spark_us = int(history.header(epoch).get("batchWatermarkMs", 0)) * 1000
    found = mark.at(totals_before(records, epoch + 1).newest, by_spark_us)
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found)
    return time.isoformat(timespec="milliseconds") if found > mark.first_us else None


def _kept(found: Found, name: str) -> Kept:
    data, history = found.data, found.histories[name]
    aside = set_aside(data, name)
    damaged = {file: reason for file in _worth_a_look(history) if (reason := broken(history, file))}
    gone = {*missing_files(history, aside, migrated=found.migrated)} if found.in_epochs else set()
    if damaged or gone or history.missing:
        # Of a job that runs, what Spark no longer needs may have gone since the files were listed.
        now = History(history.folder, history.operators)
        damaged = {file: reason for file, reason in damaged.items() if file in now.files}
        gone &= {*missing_files(now, aside, migrated=found.migrated)}
        damaged |= dict.fromkeys([*now.missing, *sorted(gone)], GONE)
    known = found.layout.queries.get(name, UNKNOWN)
    newest = next((epoch for epoch in reversed(history.logged) if f"offsets/{epoch}" not in damaged), None)
    nodes = [one.node for one in known.operators]
    return Kept(
        history.logged,
        history.committed,
        {} if newest is None else known.by_source(history.offsets(newest)),
        None if newest is None else _watermark(history, data / "epochs" / name, newest, known.mark),
        [_held(history, one, nodes, damaged) for one in sorted({store.operator for store in history.stores})],
        sum(history.files.values()),
        damaged,
    )


def _watermark(history: History, records: Folder, epoch: int, mark: Mark) -> str | None:
    """Return the watermark; None if a damaged record hides it."""
    try:
        return watermark(history, records, epoch, mark)
    except CheckpointDamaged:
        return None


def _worth_a_look(history: History) -> list[str]:
    """Return all files but those that Spark was writing: they have other names until they are whole."""
    return sorted(name for name in history.files if not name.rpartition("/")[2].startswith("."))


def _held(history: History, operator: int, nodes: list[str], damaged: dict[str, str]) -> Held:
    stores = [store for store in history.stores if store.operator == operator]
    below = f"state/{operator}/"
    size = sum(size for name, size in history.files.items() if name.startswith(below))
    whole = [epoch for epoch in history.committed if all(is_whole(store, epoch, damaged) for store in stores)]
    node = nodes[operator] if operator < len(nodes) else "?"
    rows = _rows(history, stores, whole[-1], damaged) if whole and size < MOST_COUNTED else None
    return Held(operator, node, len(stores), rows, size, whole)


def is_whole(store: Store, epoch: int, damaged: dict[str, str]) -> bool:
    """Say whether the state after an epoch can be built of files that are not damaged."""
    return any(not damaged.keys() & {*chain} for chain in store.chains(epoch + 1))


def _rows(history: History, stores: list[Store], epoch: int, damaged: dict[str, str]) -> int | None:
    total = 0
    for store in stores:
        names = next(chain for chain in store.chains(epoch + 1) if not damaged.keys() & {*chain})
        try:
            rows = rows_of(history, names)
        except (ValueError, PenstockError):
            return None
        if rows is None:
            return None
        total += rows
    return total
