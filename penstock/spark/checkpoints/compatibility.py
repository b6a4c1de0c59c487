"""Whether a job can continue from a checkpoint with a changed plan; decided before Spark starts."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import CheckpointMismatch
from penstock.plan.changes import Changes, check_names, compare, sinks_with_new_lineage, sinks_with_new_target
from penstock.plan.naming import node_id, node_name
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.identity import PlanVersion
from penstock.spark.tasks.offset_files import split_for
from penstock.storage.folders import Folder

PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_OLD_VERSION = "run the old version, or choose another --checkpoint folder"


@dataclass(frozen=True)
class Migration:
    """How to migrate a checkpoint: what changed in its plan, and the first epoch of each query after it.

    `old` is the folder of its data, `partitions` the new number of state partitions; `moved` if an event time is in
    the other lane now.
    """

    old: Folder
    changes: Changes
    partitions: int | None = None
    moved: bool = False
    first_epochs: Mapping[str, int] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """One line for the user."""
        parts = [f"the plan changed: {self.changes.summary}"] if self.changes else []
        parts += ["the event time moved to the other lane"] if self.moved else []
        parts += [f"the state has {self.partitions} partitions now"] if self.partitions else []
        parts += [f"this applies from epoch {self._first_epoch} on"] if self.changes and self.first_epochs else []
        return "; ".join(parts)

    @property
    def _first_epoch(self) -> str:
        several = len(self.first_epochs) > 1
        return " and ".join(
            f"{epoch} of {query}" if several else str(epoch) for query, epoch in self.first_epochs.items()
        )


def find_changes(data: Folder, old: PlanVersion, new: PlanVersion, allowed: Sequence[str] = ()) -> Changes:
    """Return what has changed in a plan; raises if state would be lost. Reads no file of the checkpoint."""
    check_names(allowed, old.nodes, new.nodes)
    changes = compare(old.nodes, new.nodes)
    if changes:
        _refuse_lost_state(data, old, new, changes, allowed)
    return changes


def plan_migration(
    data: Folder,
    old: PlanVersion,
    new: PlanVersion,
    changes: Changes,
    *,
    allowed: Sequence[str] = (),
    partitions: int | None = None,
    may_keep_splits: Collection[str] = (),
) -> Migration | None:
    """Return the migration that a changed plan needs, or None; raises if the job cannot continue with it.

    It reads Spark's files, so damage in these must be repaired before. The queries in `may_keep_splits` can finish an
    epoch whose splits are the partitions of its sink, unless that sink does not take splits any more.
    """
    times = {changes.renames.get(node, node): lane for node, lane in old.times.items()}
    moved = any(times.get(node, lane) != lane for node, lane in new.times.items())
    queries = (
        {name: History(data / "queries" / name) for name in (data / "queries").names()}
        if (changes or moved or partitions)
        else {}
    )
    if changes:
        _refuse_open_epochs(data, old, new, queries, allowed, may_keep_splits)
    wanted = partitions if partitions and _needs_repartitioning(queries, partitions) else None
    first_epochs = {name: max(history.committed, default=-1) + 1 for name, history in queries.items()}
    return Migration(data, changes, wanted, moved, first_epochs) if changes or moved or wanted else None


def _refuse_lost_state(
    data: Folder, old: PlanVersion, new: PlanVersion, changes: Changes, allowed: Sequence[str]
) -> None:
    lost = [name for name in changes.of("lost") if name not in allowed]
    if lost:
        flags = " ".join(f"--allow-drop {name}" for name in lost)
        message = (
            f"checkpoint {data} was written by another version of '{new.pipeline}' (fingerprint {old.skeleton} there, "
            f"{new.skeleton} here), and not all of its state can be kept:\n{changes.table}"
        )
        raise CheckpointMismatch(message, hint=f"accept the loss with {flags}; or {_OLD_VERSION}")


def _refuse_open_epochs(
    data: Folder,
    old: PlanVersion,
    new: PlanVersion,
    queries: dict[str, History],
    allowed: Sequence[str],
    may_keep_splits: Collection[str],
) -> None:
    """Refuse to finish an epoch with another plan than it was started with, if a sink may have some of its rows."""
    open_epochs = {name: history.logged[-1] for name, history in queries.items() if _is_open(history)}
    if not open_epochs:
        return
    partial = {query: _partitioned_sinks(data, query, old) for query in open_epochs}
    split = {query for query, epoch in open_epochs.items() if split_for(queries[query].folder, epoch) is not None}
    changed = [
        *sinks_with_new_lineage(old.nodes, new.nodes, [*itertools.chain(*partial.values())]),
        *itertools.chain(*(partial[query] for query in split.difference(may_keep_splits))),
        *sinks_with_new_target(old.nodes, new.nodes),
    ]
    # A sink that is removed gets no row of the new plan.
    mixed = [name for name in changed if name not in allowed and node_id("write", name) in new.nodes]
    sealed = [name for name, epoch in open_epochs.items() if data.read(f"staged/{name}/outbox/{epoch}/sealed")]
    if mixed or sealed:
        number = max(open_epochs.values())
        what = f"sink '{mixed[0]}' may have some of its rows" if mixed else "its rows are not written yet"
        message = f"epoch {number} was started by the old version of '{new.pipeline}' and not finished: {what}"
        accept = f", or accept it with --allow-drop {mixed[0]}" if mixed and not sealed else ""
        raise CheckpointMismatch(message, hint=f"finish it: run the old version with --until drained{accept}")


def write_sink_partitions(data: Folder, query: str, sinks: Mapping[str, int]) -> None:
    """Store which sinks of a query write an epoch by partition, and in how many partitions.

    After a crash these may have some of its partitions. Ledgers have the number as well, but group offsets of a broker
    expire.
    """
    text = json.dumps(dict(sinks)).encode()
    if data.read(_partitions_file(query)) != text:
        data.write(_partitions_file(query), text)


def read_sink_partitions(data: Folder, query: str) -> dict[str, int]:
    """Return the number of partitions in which each sink of a query wrote its rows in the last run."""
    stored = json.loads(data.read(_partitions_file(query)) or "{}")
    # Older checkpoints have a list of names, without the numbers.
    return stored if isinstance(stored, dict) else {}


def _partitions_file(query: str) -> str:
    return f"parted-{query}.json"


def _partitioned_sinks(data: Folder, query: str, old: PlanVersion) -> list[str]:
    stored = data.read(_partitions_file(query))
    with contextlib.suppress(ValueError):
        return list(json.loads(stored or b""))
    return [node_name("write", id) for id, node in old.nodes.items() if node.kind == "write"]


def _is_open(history: History) -> bool:
    return bool(history.logged) and history.logged[-1] not in history.committed


def _needs_repartitioning(queries: dict[str, History], wanted: int) -> bool:
    """Return whether state has another number of partitions; raises if that cannot be changed."""
    for history in (one for one in queries.values() if one.stores and one.committed):
        conf = history.header(history.committed[-1])["conf"]
        if int(conf[PARTITIONS]) == wanted:
            continue
        if "RocksDB" not in conf[_PROVIDER]:
            message = f"state_partitions = {wanted}: the checkpoint has {conf[PARTITIONS]}, and its state is in memory"
            hint = 'only state="rocksdb", chosen for a new checkpoint, can be repartitioned; leave the setting out'
            raise CheckpointMismatch(message, hint=hint)
        if _is_open(history):
            message = f"state_partitions = {wanted}: epoch {history.logged[-1]} was started and not finished"
            raise CheckpointMismatch(message, hint=f"run it with {conf[PARTITIONS]} and --until drained first")
        return True
    return False
