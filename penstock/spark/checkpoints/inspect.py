"""The contents of a checkpoint, read without running its job: epochs, offsets, watermarks, state, and damage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.connectors.topics.offsets import ID
from penstock.errors import CheckpointDamaged, CheckpointMissing, PenstockError, choices
from penstock.plan.naming import RESERVED
from penstock.settings import Settings
from penstock.spark.checkpoints.history import History, StateStoreFiles
from penstock.spark.checkpoints.identity import IDENTITY, Identity, data_folder, read_identity
from penstock.spark.checkpoints.integrity import CheckpointFiles, checkpoint_files, find_damage
from penstock.spark.checkpoints.layout import UNKNOWN
from penstock.spark.checkpoints.outlook import Outlook
from penstock.spark.checkpoints.spark_files import (
    MISSING,
    damage_in,
    files_set_aside,
    is_restorable,
    missing_files,
)
from penstock.spark.checkpoints.state.store_files import count_keys
from penstock.spark.lowering.job_storage import START_OVER
from penstock.spark.tasks.node_watermarks import WatermarkSpec
from penstock.spark.tasks.totals import totals_before
from penstock.storage.folders import Folder, folder

# Rows are counted only up to this size: counting reads all of the state.
COUNTED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class OperatorState:
    """The state of one operator: rows if they can be counted, and the epochs after which it is intact (`whole`)."""

    operator: int
    node: str
    stores: int
    rows: int | None
    bytes: int
    whole: list[int]


@dataclass(frozen=True)
class QueryContents:
    """One query: its planned (`logged`) and committed epochs, and the newest offsets."""

    logged: list[int]
    committed: list[int]
    offsets: dict[str, Any]
    watermark: str | None
    state: list[OperatorState]
    bytes: int
    damaged: dict[str, str] = field(default_factory=dict)
    next_run: str = ""
    """What the next run does about the damage."""


@dataclass(frozen=True)
class CheckpointContents:
    """All of a checkpoint."""

    checkpoint: str
    pipeline: str
    lineage: str
    fingerprint: str
    pace: str
    generation: str
    generations: list[str]
    bytes: int
    queries: dict[str, QueryContents]
    damaged: dict[str, str] = field(default_factory=dict)
    """Damaged files of Penstock's own, by their path in the checkpoint."""
    next_run: dict[str, str] = field(default_factory=dict)
    """What the next run does about each of them."""

    @property
    def all_damaged(self) -> dict[str, str]:
        """Every damaged file, and what is wrong with it."""
        of_spark = {
            f"queries/{query}/{file}": why for query, one in self.queries.items() for file, why in one.damaged.items()
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
    """Return whether a folder is a checkpoint; raises if it is one without its identity."""
    data = data_folder(root)
    if read_identity(data) is not None:
        return True
    if (data / "queries").names() and {"layout.json", "pace", "epochs"} & {*data.names()}:
        message = f"{data}/{IDENTITY} is missing: the pipeline of the other files is unknown"
        raise CheckpointDamaged(message, hint=f"put the file back from a copy, or {START_OVER}")
    return False


def inspect(root: Folder) -> CheckpointContents:
    """Read and check every file of a checkpoint."""
    data = checkpoint_at(root)
    identity = read_identity(data)
    assert isinstance(identity, Identity)
    files = checkpoint_files(data, identity, migrated=data.url != root.url)
    outlook = Outlook(root, files)
    queries = {name: _query_contents(files, name, outlook) for name in files.histories}
    of_spark = {f"queries/{name}/{file}" for name, one in queries.items() for file in one.damaged}
    # The repair of Spark's files comes first.
    damaged = {path: reason for path, reason in find_damage(files).items() if path not in of_spark}
    older = [name for name in (root / "generations").names() if not name.startswith(".")]
    return CheckpointContents(
        root.url,
        identity.pipeline,
        identity.lineage,
        identity.skeleton,
        (data.read("pace") or b"epochs").decode(errors="replace"),
        (root.read("current") or b"").decode(errors="replace").strip() or "first",
        ["first", *older],
        sum(data.files().values()),
        queries,
        damaged,
        outlook.of_files(damaged),
    )


def watermark(history: History, records: Folder, epoch: int, mark: WatermarkSpec) -> str | None:
    """Return the watermark of a query after an epoch, as its run reported it; None if there is none."""
    by_spark_us = int(history.header(epoch).get("batchWatermarkMs", 0)) * 1000
    found = mark.at(totals_before(records, epoch + 1).newest, by_spark_us)
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found)
    return time.isoformat(timespec="milliseconds") if found > mark.first_us else None


def _query_contents(files: CheckpointFiles, name: str, outlook: Outlook) -> QueryContents:
    data, history = files.data, files.histories[name]
    set_aside = files_set_aside(data, name)
    damaged = {file: reason for file in _complete_files(history) if (reason := damage_in(history, file))}
    missing = {*missing_files(history, set_aside, migrated=files.migrated)} if files.has_epochs else set()
    if damaged or missing or history.missing_offsets:
        # The Spark of a running job may have deleted old files since they were listed.
        now = History(history.folder, history.operators)
        damaged = {file: reason for file, reason in damaged.items() if file in now.files}
        missing &= {*missing_files(now, set_aside, migrated=files.migrated)}
        damaged |= dict.fromkeys([*now.missing_offsets, *sorted(missing)], MISSING)
    known = files.layout.queries.get(name, UNKNOWN)
    newest = next((epoch for epoch in reversed(history.logged) if f"offsets/{epoch}" not in damaged), None)
    nodes = [one.node for one in known.operators]
    return QueryContents(
        history.logged,
        history.committed,
        {} if newest is None else known.by_source(history.offsets(newest)),
        None if newest is None else _watermark(history, data / "epochs" / name, newest, known.mark),
        [_operator_state(history, one, nodes, damaged) for one in sorted({store.operator for store in history.stores})],
        sum(history.files.values()),
        damaged,
        outlook.of_query(name, damaged) if damaged else "",
    )


def _watermark(history: History, records: Folder, epoch: int, mark: WatermarkSpec) -> str | None:
    """Return the watermark; None if it is unknown because a record is damaged."""
    try:
        return watermark(history, records, epoch, mark)
    except CheckpointDamaged:
        return None


def _complete_files(history: History) -> list[str]:
    """Return all files but those that Spark is still writing, which have temporary names."""
    return sorted(name for name in history.files if not name.rpartition("/")[2].startswith("."))


def _operator_state(history: History, operator: int, nodes: list[str], damaged: dict[str, str]) -> OperatorState:
    stores = [store for store in history.stores if store.operator == operator]
    size = sum(size for name, size in history.files.items() if name.startswith(f"state/{operator}/"))
    intact = [epoch for epoch in history.committed if all(is_restorable(store, epoch, damaged) for store in stores)]
    node = nodes[operator] if operator < len(nodes) else "?"
    rows = _count_rows(history, stores, intact[-1], damaged) if intact and size < COUNTED_BYTES else None
    return OperatorState(operator, node, len(stores), rows, size, intact)


def _count_rows(history: History, stores: list[StateStoreFiles], epoch: int, damaged: dict[str, str]) -> int | None:
    total = 0
    for store in stores:
        names = next(chain for chain in store.chains(epoch + 1) if not damaged.keys() & {*chain})
        try:
            rows = count_keys(history, names)
        except (ValueError, PenstockError):
            return None
        if rows is None:
            return None
        total += rows
    return total


def offsets_by_partition(offsets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end offset of each partition, without Penstock's own entries and the id of a topic.

    >>> offsets_by_partition({"0": 17, "1": 4, "@ticks": 1, "id": "vQpPHnXcTIWq0Tqgiz8u6A"})
    {'0': 17, '1': 4}
    >>> offsets_by_partition({"id": 3, "name": 4})
    {'id': 3, 'name': 4}
    """
    found = {part: end for part, end in offsets.items() if not part.startswith("@")}
    # A custom source may give its partitions any names; those of a topic are numbers.
    is_topic = isinstance(found.get(ID), str) and all(part.isdecimal() for part in found if part != ID)
    return {part: end for part, end in found.items() if not (is_topic and part == ID)}


def offsets_by_source(offsets: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the end offsets of all sources by partition, without the sources that Penstock adds to a query."""
    return {
        name: offsets_by_partition(one)
        for name, one in offsets.items()
        if isinstance(one, dict) and name not in RESERVED
    }
