"""Idle partitions and sources, and the times that are declared for them meanwhile.

The smallest watermark of a query holds it back. A partition that has been idle for `idle_after` is left out, and so is
a source whose partitions all are: what the others have reached is declared for it, as an entry of a journal whose
number is part of the epoch's offsets, so that a replayed epoch sees the same. Its own rows count again as soon as there
are any. A source without partitions counts as one partition, with the name "".
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic

from pyspark.sql.streaming.query import StreamingQuery

from penstock.contracts import Offsets
from penstock.plan.graph import event_times_in, reads_in, upstream
from penstock.plan.operators.stateless import EventTime, Read
from penstock.plan.physical.queries import time_key
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.lowering.compile import Query
from penstock.spark.lowering.context import Context
from penstock.spark.lowering.job_storage import JobStorage
from penstock.spark.tasks.source_partitions import partition_name
from penstock.spark.tasks.totals import Totals, TotalsLog
from penstock.windows import FIRST_US

# Each declared time is a write to the checkpoint, so it is not done in every epoch.
PAUSE_SECONDS = 1.0
Given = Mapping[EventTime, Mapping[str, Hashable]]


@dataclass
class IdleWatch:
    """Decides for one query, purely: it is given how far partitions were read, and when."""

    times: Sequence[EventTime]
    partitioned: bool = False
    _seen: dict[EventTime, dict[str, tuple[Hashable, float]]] = field(default_factory=dict)
    _idle: dict[EventTime, set[str]] = field(default_factory=dict)
    _declared: dict[EventTime, float] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        """Whether anything can be left out."""
        several = len(self.times) > 1 or self.partitioned
        return several and any(time.idle_after_us is not None for time in self.times)

    def observe(self, given: Given, now: float) -> None:
        """Take in how far each partition was read, at a moment when all were asked for more."""
        for time in self.times:
            before, parts = self._seen.get(time, {}), given[time]
            self._seen[time] = {
                name: (at, before[name][1]) if name in before and before[name][0] == at else (at, now)
                for name, at in parts.items()
            }
            after = time.idle_after_us
            seen = self._seen[time].items()
            self._idle[time] = {n for n, (_, since) in seen if after is not None and now - since >= after / 1e6}

    def is_idle(self, time: EventTime) -> bool:
        """Return whether all partitions of an event time are idle."""
        return bool(self._idle.get(time)) and len(self._idle[time]) == len(self._seen[time])

    def idle_partitions(self, time: EventTime) -> set[str]:
        """Return the partitions of an event time that are idle."""
        return self._idle.get(time, set())

    def times_to_declare(self, totals: Totals, now: float) -> Iterator[tuple[str, int]]:
        """Yield the times to declare: (key of the event time, microseconds)."""
        others = self._others(totals)
        for time in (time for time in self.times if self._idle.get(time)):
            own = self._reached(time, totals)
            known = [own] if own is not None else []
            if self.is_idle(time) and others is not None:
                known.append(others + time.max_delay_us)
            newest = totals.newest.get(time_key(time), FIRST_US)
            if max(known, default=newest) > newest and now - self._declared.get(time, 0.0) >= PAUSE_SECONDS:
                self._declared[time] = now
                yield time_key(time), max(known)

    def _others(self, totals: Totals) -> int | None:
        """Return the smallest watermark of the event times that are not idle; None if one has none yet."""
        reached = [(time, self._reached(time, totals)) for time in self.times if not self.is_idle(time)]
        known = [at - time.max_delay_us for time, at in reached if at is not None]
        return min(known) if known and len(known) == len(reached) else None

    def _reached(self, time: EventTime, totals: Totals) -> int | None:
        """Return the newest time that an event time has reached without its idle partitions.

        If all are idle, none holds another back: the furthest counts. A partition without a time is left out.
        """
        key = time_key(time)
        newest, parts = totals.newest.get(key), totals.partitions.get(key, {})
        idle = self._idle.get(time, set())
        if not parts:
            return newest
        at = min((at for name, at in parts.items() if name not in idle), default=max(parts.values()))
        return at if newest is None else max(at, newest)


def restore_declared_times(checkpoint: JobStorage, queries: Iterable[Query]) -> None:
    """Declare again how far each event time has come, where one query has several.

    Spark stores the smallest only: a source that is idle after a restart would hold the others back for good.
    """
    if checkpoint.ticks.is_over():
        return
    for query in queries:
        newest = TotalsLog(checkpoint.records(query.name)).newest().newest
        times = {time_key(time) for time in event_times_in(query.context.nodes)}
        for key in sorted(times & set(newest)) if len(times) > 1 else ():
            checkpoint.ticks.tick(_instant(newest[key]), key)


class IdleSources:
    """Observes the queries of a run between their epochs, on the driver, and declares what `IdleWatch` decides."""

    def __init__(self, checkpoint: JobStorage, offsets: Callable[[Read], Offsets]) -> None:
        self._checkpoint, self._offsets = checkpoint, offsets
        self._watched: list[tuple[IdleWatch, EpochWriter, StreamingQuery]] = []
        self._epochs: dict[str, int] = {}
        self._open, self._lock = True, threading.Lock()

    def add(self, writer: EpochWriter, query: StreamingQuery) -> None:
        """Watch the sources of one query, if one may be left out."""
        context = writer.query.context
        times = list(event_times_in(context.nodes))
        watch = IdleWatch(times, bool(context.partitioned))
        if watch.needed:
            self._watched.append((watch, writer, query))

    def of(self, writer: EpochWriter) -> IdleWatch | None:
        """Return the idle partitions and sources of a query, if it is watched."""
        return next((watch for watch, mine, _ in self._watched if mine is writer), None)

    def watch(self, *, settled: bool = False) -> None:
        """Observe once; the driver calls it repeatedly. `settled`: the caller knows that no epoch is running."""
        for watch, writer, query in self._watched:
            began = self._epochs.get(writer.query.name) != writer.number
            if not settled and not began and query.status["isTriggerActive"]:
                # During an epoch the sources are not asked for more.
                continue
            with self._lock:
                self._epochs[writer.query.name] = writer.number
                now = self._now()
                watch.observe({time: self._given(time, writer.query.context) for time in watch.times}, now)
                self._declare(watch.times_to_declare(writer.records.newest(), now))

    def close(self) -> None:
        """Declare nothing more: the end of input is about to be declared."""
        with self._lock:
            self._open = False

    def _declare(self, times: Iterator[tuple[str, int]]) -> None:
        for key, at in times if self._open else ():
            self._checkpoint.ticks.tick(_instant(at), key)

    def _given(self, time: EventTime, context: Context) -> dict[str, Hashable]:
        """Return how far each partition was read, by its name; of an event time without partitions, all in one."""
        given = {read: dict(self._offsets(read)) for read in reads_in(upstream(time))}
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
