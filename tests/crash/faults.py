"""Tasks that fail in the last stage, in the middle of their partitions, while sinks are being given their rows."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame

from penstock.plan.operators.stateless import Write
from penstock.spark.epochs import sink_tasks
from tests.waiting import becomes

Rows = Iterator[pa.RecordBatch]
# How many tries a task has before the job fails.
TRIES = 4
STALL_SECONDS = 3.0


@contextmanager
def failing_tasks(fault: dict[str, Any]) -> Iterator[None]:
    """Insert a step that fails before the last one of each query that is compiled meanwhile."""
    for module in (__name__, becomes.__module__):
        cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
    placed = sink_tasks.to_sink_partitions
    made = {"task": _late_task, "sibling": _sibling}[fault["kind"]]
    Path(fault["folder"]).mkdir(exist_ok=True)

    def failing(frame: DataFrame, write: Write, cores: int, **options: Any) -> DataFrame:
        rows = placed(frame, write, cores, **options)
        return rows.mapInArrow(made(write.sink.name, **fault), rows.schema)

    sink_tasks.to_sink_partitions = failing
    try:
        yield
    finally:
        sink_tasks.to_sink_partitions = placed


def _late_task(sink: str, *, folder: str, seed: int, **_: Any) -> Callable[[Rows], Rows]:
    """Return a step that fails once in about every third task: after some batches, or after the last."""

    def step(batches: Rows) -> Rows:
        chance = random.Random(f"{seed} {sink} {_task()}")
        fails, after, how = chance.random() < 0.3, chance.choice([1, 2, 1_000_000]), chance.choice(["raise", "exit"])
        for number, batch in enumerate(batches):
            if fails and number == after:
                _fail_once(f"{folder}/{sink}-{_task()}", how)
            yield batch
        if fails:
            _fail_once(f"{folder}/{sink}-{_task()}", how)

    return step


def _sibling(sink: str, *, folder: str, epoch: int, fails: str, **_: Any) -> Callable[[Rows], Rows]:
    """Return a step that fails in one task of an epoch until the job fails; the others are in the middle then."""

    def step(batches: Rows) -> Rows:
        number, partition = _task().split("-")
        if int(number) != epoch:
            yield from batches
        elif sink.endswith(fails) and partition == partition_that_fails(folder, partition):
            _note(f"{folder}/failed")
            raise RuntimeError("this task fails again and again")
        else:
            yield from _stalled(batches, f"{folder}/failed")

    return step


def partition_that_fails(folder: str, partition: str) -> str:
    """Return the task that fails: the first that asks."""
    path = f"{folder}/fails"
    try:
        with open(path, "x") as file:
            file.write(partition)
    except FileExistsError:
        pass
    return Path(path).read_text() or partition


def _stalled(batches: Rows, failed: str) -> Rows:
    """Pass the first batch on, and the others only when the sibling has failed for the last time."""
    for number, batch in enumerate(batches):
        yield batch
        if number == 0:
            becomes(lambda: _count(failed) >= TRIES, seconds=STALL_SECONDS)


def _task() -> str:
    context = TaskContext.get()
    assert context is not None
    return f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}"


def _fail_once(marker: str, how: str) -> None:
    try:
        open(marker, "x").close()
    except FileExistsError:
        return
    if how == "exit":
        os._exit(1)
    raise RuntimeError("this task fails once, late in its partition")


def _note(path: str) -> None:
    with open(path, "a") as file:
        file.write(".")


def _count(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0
