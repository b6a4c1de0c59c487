"""Whether a checkpoint may go on with another plan than the one that wrote it, decided before Spark starts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import CheckpointMismatch
from penstock.folders import Folder
from penstock.plan.changes import Changes, check_names, compare, reached_anew
from penstock.plan.fingerprint import Described
from penstock.plan.naming import node_name
from penstock.spark.checkpoints.history import History

PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_OTHER = "run the old version, or choose another --checkpoint folder"


@dataclass(frozen=True)
class Version:
    """A plan as a checkpoint knows it: its nodes, the lane of each event time, and its fingerprint as a whole."""

    pipeline: str
    nodes: dict[str, Described]
    times: dict[str, str]
    skeleton: str


@dataclass(frozen=True)
class Migration:
    """What has to be done before Spark may go on: from where, what changed, into how many partitions, since when."""

    old: Folder
    changes: Changes
    partitions: int | None = None
    moved: bool = False
    begins: Mapping[str, int] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """One line for the user."""
        parts = [f"the plan changed: {self.changes.summary}"] if self.changes else []
        parts += ["the event time moved to the other lane"] if self.moved else []
        parts += [f"the state has {self.partitions} partitions now"] if self.partitions else []
        parts += [f"this holds from epoch {self._begin} on"] if self.changes and self.begins else []
        return "; ".join(parts)

    @property
    def _begin(self) -> str:
        several = len(self.begins) > 1
        return " and ".join(f"{epoch} of {query}" if several else str(epoch) for query, epoch in self.begins.items())


def migration(
    data: Folder, old: Version, new: Version, *, allowed: Sequence[str] = (), partitions: int | None = None
) -> Migration | None:
    """Return what a changed plan needs, or None if it is not changed; raises if it may not go on."""
    check_names(allowed, old.nodes, new.nodes)
    changes = compare(old.nodes, new.nodes)
    times = {changes.renames.get(node, node): lane for node, lane in old.times.items()}
    moved = any(times.get(node, lane) != lane for node, lane in new.times.items())
    queries = (
        {name: History(data / "queries" / name) for name in (data / "queries").names()}
        if (changes or moved or partitions)
        else {}
    )
    if changes:
        _nothing_lost(data, old, new, changes, allowed)
        _nothing_half_written(data, old, new, queries, allowed)
    wanted = partitions if partitions and _other_partitions(queries, partitions) else None
    begins = {name: max(history.committed, default=-1) + 1 for name, history in queries.items()}
    return Migration(data, changes, wanted, moved, begins) if changes or moved or wanted else None


def _nothing_lost(data: Folder, old: Version, new: Version, changes: Changes, allowed: Sequence[str]) -> None:
    lost = [name for name in changes.of("lost") if name not in allowed]
    if lost:
        flags = " ".join(f"--allow-drop {name}" for name in lost)
        message = (
            f"checkpoint {data} was written by another version of '{new.pipeline}' (fingerprint {old.skeleton} there, "
            f"{new.skeleton} here), and not all of its state can be kept:\n{changes.table}"
        )
        raise CheckpointMismatch(message, hint=f"accept the loss with {flags}; or {_OTHER}")


def _nothing_half_written(
    data: Folder, old: Version, new: Version, queries: dict[str, History], allowed: Sequence[str]
) -> None:
    """Refuse to finish an epoch otherwise than it was begun, where a sink may have a part of it."""
    open_epochs = {name: history.logged[-1] for name, history in queries.items() if _is_open(history)}
    if not open_epochs:
        return
    parted = [sink for query in open_epochs for sink in _parted(data, query, old)]
    mixed = [name for name in reached_anew(old.nodes, new.nodes, parted) if name not in allowed]
    sealed = [name for name, epoch in open_epochs.items() if data.read(f"staged/{name}/outbox/{epoch}/sealed")]
    if mixed or sealed:
        number = max(open_epochs.values())
        what = f"sink '{mixed[0]}' may have a part of its rows" if mixed else "its rows wait to be written"
        message = f"epoch {number} was begun by the old version of '{new.pipeline}' and not finished: {what}"
        accept = f", or accept it with --allow-drop {mixed[0]}" if mixed and not sealed else ""
        raise CheckpointMismatch(message, hint=f"finish it: run the old version with --until drained{accept}")


def keep_partitions(data: Folder, query: str, sinks: Mapping[str, int]) -> None:
    """Store which sinks of a query write an epoch by partition, and in how many.

    After a crash these may have a part of it. A ledger has the number as well, but group offsets of a broker expire.
    """
    text = json.dumps(dict(sinks)).encode()
    if data.read(_partitions_file(query)) != text:
        data.write(_partitions_file(query), text)


def kept_partitions(data: Folder, query: str) -> dict[str, int]:
    """Return into how many partitions the sinks of a query cut their rows when they ran last."""
    noted = json.loads(data.read(_partitions_file(query)) or "{}")
    # Before the numbers were stored there was a list of names.
    return noted if isinstance(noted, dict) else {}


def _partitions_file(query: str) -> str:
    return f"parted-{query}.json"


def _parted(data: Folder, query: str, old: Version) -> list[str]:
    noted = data.read(_partitions_file(query))
    with contextlib.suppress(ValueError):
        return list(json.loads(noted or b""))
    return [node_name("write", id) for id, node in old.nodes.items() if node.kind == "write"]


def _is_open(history: History) -> bool:
    return bool(history.logged) and history.logged[-1] not in history.committed


def _other_partitions(queries: dict[str, History], wanted: int) -> bool:
    """Say whether state has another number of partitions, and refuse if that cannot be changed."""
    for history in (one for one in queries.values() if one.stores and one.committed):
        conf = history.header(history.committed[-1])["conf"]
        if int(conf[PARTITIONS]) == wanted:
            continue
        if "RocksDB" not in conf[_PROVIDER]:
            message = f"state_partitions = {wanted}: the checkpoint has {conf[PARTITIONS]}, and its state is in memory"
            hint = 'only state="rocksdb", chosen when the checkpoint was begun, can be cut anew; leave the setting out'
            raise CheckpointMismatch(message, hint=hint)
        if _is_open(history):
            message = f"state_partitions = {wanted}: epoch {history.logged[-1]} was begun and not finished"
            raise CheckpointMismatch(message, hint=f"run it with {conf[PARTITIONS]} and --until drained first")
        return True
    return False
