"""Sources that give nothing: which they are, and the times that are declared for them meanwhile.

The smallest watermark of a query holds it back. A source that has been idle for as long as its author said is left out:
what the others have reached is declared for it, as a line of the checkpoint whose number is part of the epoch's
offsets, so that a replayed epoch sees the same. Its own rows count again as soon as there are any.
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
from penstock.plan.graph import upstream
from penstock.plan.nodes import EventTime, Read
from penstock.plan.queries import time_key
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.epochs.records import Records
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.lowering.compile import Query
from penstock.windows import FIRST_US

# Each declared time is a write to the checkpoint, so it is not done in every epoch.
PAUSE_SECONDS = 1.0


@dataclass
class IdleWatch:
    """Decides for one query; pure: it is told what sources have given, and when one looked."""

    times: Sequence[EventTime]
    idle: set[EventTime] = field(default_factory=set)
    _seen: dict[EventTime, tuple[Hashable, float]] = field(default_factory=dict)
    _declared: dict[EventTime, float] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        """Whether any source can be left out."""
        return len(self.times) > 1 and any(time.idle_after_us is not None for time in self.times)

    def look(self, given: Mapping[EventTime, Hashable], now: float) -> None:
        """Note how far each source was read at a moment when all were asked for more."""
        for time in self.times:
            before, since = self._seen.get(time, (None, now))
            if given[time] != before:
                since = now
                self.idle.discard(time)
            elif time.idle_after_us is not None and now - since >= time.idle_after_us / 1e6:
                self.idle.add(time)
            self._seen[time] = given[time], since

    def lifts(self, newest: Mapping[str, int], now: float) -> Iterator[tuple[str, int]]:
        """Yield the times to declare: (key of the event time, microseconds)."""
        awake = [time for time in self.times if time not in self.idle]
        if not awake or not all(time_key(time) in newest for time in awake):
            return
        reached = min(newest[time_key(time)] - time.max_delay_us for time in awake)
        for time in self.idle:
            at = reached + time.max_delay_us
            if at > newest.get(time_key(time), FIRST_US) and now - self._declared.get(time, 0.0) >= PAUSE_SECONDS:
                self._declared[time] = now
                yield time_key(time), at


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
        nodes = writer.query.context.nodes
        watch = IdleWatch([node for node in nodes if isinstance(node, EventTime)])
        if watch.needed:
            self._watched.append((watch, writer, query))

    def of(self, writer: EpochWriter) -> set[EventTime]:
        """Return the event times of a query whose sources are idle."""
        return next((watch.idle for watch, mine, _ in self._watched if mine is writer), set())

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
                watch.look({time: self._given(time) for time in watch.times}, now)
                self._declare(watch.lifts(writer.records.newest().newest, now))

    def close(self) -> None:
        """Declare nothing more: time is about to end."""
        with self._lock:
            self._open = False

    def _declare(self, lifts: Iterator[tuple[str, int]]) -> None:
        for key, at in lifts if self._open else ():
            self._checkpoint.ticks.tick(_instant(at), key)

    def _given(self, time: EventTime) -> str:
        reads = [node for node in upstream(time) if isinstance(node, Read)]
        return json.dumps([dict(self._offsets(read)) for read in reads], sort_keys=True, default=str)

    def _now(self) -> float:
        root = self._checkpoint.root
        shift = root.read("clock-shift") if root.local else None
        return monotonic() + int(shift or 0) / 1e6


def _instant(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
