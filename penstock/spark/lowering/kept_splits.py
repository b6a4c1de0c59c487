"""Kept splits: a sink writes the rows of each split of its source as a partition, with no exchange in between.

A replay must give each partition the same rows, so the offsets of such an epoch say for how many tasks its source was
split. Epochs without that mark were distributed by content: before an upgrade, or before the pipeline was changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import CheckpointMismatch, SparkFailed
from penstock.plan.operators.stateless import Write
from penstock.plan.physical.plan import PlannedQuery
from penstock.spark.tasks.offset_files import replayed_ends, split_for
from penstock.storage.folders import Folder


def keeps_splits(planned: PlannedQuery, outputs: Sequence[Write], query: Folder) -> bool:
    """Return whether the next epochs of a query keep splits: one that was started goes on as it began."""
    can = planned.may_keep_splits and all(write.sink.takes_splits and not write.sink.keyed for write in outputs)
    started = _first_started(query)
    if started is None:
        return can
    began = split_for(query, started) is not None
    if began and not can:
        message = (
            f"epoch {started} was started with the splits of its source as partitions of its sink, and not finished"
        )
        hint = "finish it with the connectors and settings that it was started with: run them with --until drained"
        raise CheckpointMismatch(message, hint=hint)
    return began


def refuse_other_splits(query: Folder, epoch: int, *, keeps: bool) -> None:
    """Raise if an epoch began in the other way than the run distributes rows: sinks may have a part of it.

    This happens if a repair runs several epochs again and an earlier version started only some of them.
    """
    if (split_for(query, epoch) is not None) != keeps:
        message = f"epoch {epoch} was started with its rows in other partitions than the epoch before"
        raise SparkFailed(message, hint="run the job again: it goes on as that epoch began", transient=True)


def _first_started(query: Folder) -> int | None:
    """Return the first epoch that was started and is not committed."""
    committed = max((int(name) for name in (query / "commits").names() if name.isdigit()), default=-1)
    logged = [int(name) for name in (query / "offsets").names() if name.isdigit()]
    again = [epoch for ends in replayed_ends(query).values() for epoch in ends]
    return min((epoch for epoch in (*logged, *again) if epoch > committed), default=None)
