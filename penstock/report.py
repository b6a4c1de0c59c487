"""Metrics of a run: row counts, watermarks, progress and the final report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta

_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass
class Counts:
    """Where the rows of one node went: rows_in is the sum of the others."""

    rows_in: int = 0
    used: int = 0
    filtered: int = 0
    late: int = 0
    rejected: int = 0
    duplicate: int = 0
    dropped: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of one more epoch."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


@dataclass(frozen=True)
class PartitionTime:
    """The newest event time of one partition of a source; while it is `idle`, it does not hold back the watermark."""

    name: str
    newest: datetime
    idle: bool = False


@dataclass(frozen=True)
class EventTimes:
    """One event time of a query: the newest that came, and the delay that it is waited for.

    Where rows come by partition, it is the newest that all `partitions` have reached, but for idle ones. While its
    source is `idle`, it does not hold back the watermark.
    """

    source: str
    column: str
    delay_us: int
    newest: datetime | None = None
    idle: bool = False
    partitions: tuple[PartitionTime, ...] = ()

    @property
    def slowest(self) -> PartitionTime | None:
        """The partition that holds the others back, if there are several."""
        waited = [one for one in self.partitions if not one.idle]
        return min(waited, key=lambda one: one.newest, default=None) if len(self.partitions) > 1 else None

    @property
    def watermark(self) -> datetime | None:
        """The newest time, less the delay."""
        return None if self.newest is None else self.newest - timedelta(microseconds=self.delay_us)


@dataclass(frozen=True)
class Watermark:
    """How far the event time of one query has come: the smallest watermark of its event times."""

    query: str
    times: tuple[EventTimes, ...]

    @property
    def at(self) -> datetime | None:
        """The watermark; None until every event time has had a row."""
        return self.held_by.watermark if self.held_by else None

    @property
    def held_by(self) -> EventTimes | None:
        """The event time that holds the watermark back: one without rows, or else the one that is furthest behind."""
        waited = [time for time in self.times if not time.idle] or list(self.times)
        missing = next((time for time in waited if time.watermark is None), None)
        known = [time for time in waited if time.watermark is not None]
        return missing or min(known, key=lambda time: time.watermark or _LAST, default=None)


@dataclass
class NodeProgress:
    """One node: its counts over all epochs, and what the newest epoch shows of it; None is what it does not have."""

    counts: Counts = field(default_factory=Counts)
    rows_in_per_s: float = 0.0
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: datetime | None = None
    backpressure_ratio: float | None = None


@dataclass
class Progress:
    """The newest epoch, and the totals so far.

    `backpressure_ratio`: of the rows that were there when the epoch was planned, the part that its limit left unread;
    0 if it read all, None if a source cannot count its rows. A report has the mean over the run's epochs. `phases` are
    the milliseconds of the newest epoch by what Spark did in them, under its own names, such as "addBatch".
    `partition_lags` has the lag of each partition by source, of those that have partitions. `nodes` are by name.
    `latency_ms` has p50, p95 and p99 of the time from the timestamps of the epoch's records to its commit, where a
    source knows these.
    """

    epoch: int = -1
    epochs: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    rejected: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    epoch_ms: int = 0
    watermark: datetime | None = None
    lag_rows: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    filtered: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    partition_lags: dict[str, dict[str, int]] = field(default_factory=dict)
    watermarks: tuple[Watermark, ...] = ()
    backpressure_ratio: float | None = None
    nodes: dict[str, NodeProgress] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)


@dataclass
class Report:
    """What a run did, over all epochs of its checkpoint.

    `former_sinks`: those in `rows` that the pipeline does not have: earlier versions, or the job it is a fork of, had
    them. `changed_inputs`: of each source, how many files changed after they were found; what is new in them is not
    read.
    """

    epochs: int = 0
    watermark: datetime | None = None
    ended: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    watermarks: tuple[Watermark, ...] = ()
    backpressure_ratio: float | None = None
    changed_inputs: dict[str, int] = field(default_factory=dict)
    former_sinks: tuple[str, ...] = ()
