"""Partitions and sources that give nothing: the times that are declared for them meanwhile.

The smallest watermark of a query holds it back. A partition that has been idle for as long as its author said is left
out, and so is a source whose partitions all are: what the others have reached is declared for it, as a line of the
checkpoint whose number is part of the epoch's offsets, so that a replayed epoch sees the same. Its own rows count again
as soon as there are any.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic

from pyspark.sql.streaming.query import StreamingQuery

from penstock.contracts import Offsets
from penstock.plan.graph import upstream
from penstock.plan.nodes import EventTime, Read
from penstock.plan.queries import time_key
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.epochs.idle_watch import IdleWatch
from penstock.spark.epochs.origins import partition_name
from penstock.spark.epochs.records import Records
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.lowering.compile import Query
from penstock.spark.lowering.context import Context


def recall_times(checkpoint: Checkpoint, queries: Iterable[Query]) -> None:
    """Declare again how far each event time has come, where several are in one query.

    Spark keeps the smallest only: a source that gives nothing after a restart would hold the others back for good.
    """
    if checkpoint.ticks.is_over():
        return
    for query in queries:
        newest = Records(checkpoint.records(query.name)).newest().newest
        times = {time_key(node) for node in query.context.nodes if isinstance(node, EventTime)}
        for key in sorted(times & set(newest)) if len(times) > 1 else ():
            checkpoint.ticks.tick(_instant(newest[key]), key)


class IdleSources:
    """The driver's half: looks at the queries of a run between their epochs, and declares what is decided."""

    def __init__(self, checkpoint: Checkpoint, offsets: Callable[[Read], Offsets]) -> None:
        self._checkpoint, self._offsets = checkpoint, offsets
        self._watched: list[tuple[IdleWatch, EpochWriter, StreamingQuery]] = []
        self._epochs: dict[str, int] = {}
        self._open, self._lock = True, threading.Lock()

    def add(self, writer: EpochWriter, query: StreamingQuery) -> None:
        """Watch the sources of one query, if one may be left out."""
        context = writer.query.context
        times = [node for node in context.nodes if isinstance(node, EventTime)]
        watch = IdleWatch(times, bool(context.partitioned))
        if watch.needed:
            self._watched.append((watch, writer, query))

    def of(self, writer: EpochWriter) -> IdleWatch | None:
        """Return what is known of the idle partitions and sources of a query, if it is watched."""
        return next((watch for watch, mine, _ in self._watched if mine is writer), None)

    def watch(self, *, settled: bool = False) -> None:
        """Look once; to be called again and again. `settled`: the caller knows that no epoch is under way."""
        for watch, writer, query in self._watched:
            began = self._epochs.get(writer.query.name) != writer.number
            if not settled and not began and query.status["isTriggerActive"]:
                # In the middle of an epoch nobody has asked the sources for more.
                continue
            with self._lock:
                self._epochs[writer.query.name] = writer.number
                now = self._now()
                watch.look({time: self._given(time, writer.query.context) for time in watch.times}, now)
                self._declare(watch.lifts(writer.records.newest(), now))

    def close(self) -> None:
        """Declare nothing more: time is about to end."""
        with self._lock:
            self._open = False

    def _declare(self, lifts: Iterator[tuple[str, int]]) -> None:
        for key, at in lifts if self._open else ():
            self._checkpoint.ticks.tick(_instant(at), key)

    def _given(self, time: EventTime, context: Context) -> dict[str, Hashable]:
        """Return how far each partition was read, by its name; of an event time without partitions, all in one."""
        given = {read: dict(self._offsets(read)) for read in upstream(time) if isinstance(read, Read)}
        if time not in context.partitioned:
            return {"": json.dumps([*given.values()], sort_keys=True, default=str)}
        found: dict[str, Hashable] = {}
        for read, offsets in given.items():
            name = context.name(read)
            if read.source.partitioned and offsets:
                parts = read.source.partitions_of(offsets)
                found |= {partition_name(name, part): offsets[part] for part in parts}
            else:
                found[name] = json.dumps(offsets, sort_keys=True, default=str)
        return found

    def _now(self) -> float:
        root = self._checkpoint.root
        shift = root.read("clock-shift") if root.local else None
        return monotonic() + int(shift or 0) / 1e6


def _instant(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
