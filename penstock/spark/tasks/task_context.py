"""The epoch and partition of the task that is running, as Spark passes them to it."""

from __future__ import annotations

from pyspark import TaskContext

# The local property by which the epoch writer hands the bounds of an epoch to its tasks.
BOUNDS = "penstock.bounds"


def current_partition() -> int:
    """Return the number of this task among those of its stage."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def current_bounds() -> str:
    """Return the bounds of the epoch that this task belongs to, as the epoch writer set them."""
    context = TaskContext.get()
    return (context.getLocalProperty(BOUNDS) if context else None) or ""


def current_epoch() -> int:
    """Return the number of the epoch that this task belongs to."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return int(number) if number is not None else -1
