"""Metrics of jobs, from what their drivers report: samples for the store's series and for the Prometheus page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.control.store.rollup import Sample as StoredSample
from penstock.observe.histogram import Histogram
from penstock.observe.page import Sample

# Field of a driver's progress -> metric.
_GAUGES = {
    "rows_in": "records_processed_total",
    "rows_out": "rows_written_total",
    "late": "rows_late_total",
    "rejected": "rows_rejected_total",
    "filtered": "rows_filtered_total",
    "epochs": "epochs_total",
    "backpressure": "backpressure_ratio",
    "watermark_lag_ms": "watermark_lag_ms",
    "state_rows": "state_rows",
    "state_bytes": "state_size_bytes",
    "lag": "source_lag_rows",
}
_NODE_GAUGES = {"state_rows": "state_rows", "state_bytes": "state_size_bytes"}
_NEWEST = ("epoch", "duration_ms", "rows_in_per_s", "watermark", "phases")
# So many epochs between two samples; of more, the newest count.
_MOST_LATENCIES = 1_000
_TOTALS = ("rows_in", "rows_out", "late", "rejected", "filtered")
# Phases of an epoch in which its checkpoint is written, as Spark names them.
_CHECKPOINT_PHASES = ("walCommit", "commitOffsets")


@dataclass
class JobMeasurements:
    """What is known of one job: the newest progress, and durations of all its epochs since the manager started."""

    name: str
    progress: dict[str, Any] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    checkpoint: Histogram = field(default_factory=Histogram)
    newest_epoch: int = -1
    run: str = ""
    memory: int = 0
    busy_ms: float = 0.0
    _sampled: tuple[float, float, float] | None = None
    partition_lags: dict[tuple[str, str], float] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    latencies: list[Mapping[str, float]] = field(default_factory=list)
    newest_latency: Mapping[str, float] = field(default_factory=dict)

    def take_progress(self, progress: Mapping[str, Any]) -> None:
        """Take what a heartbeat has of the job: totals and the newest epoch."""
        self.progress = dict(progress)
        self._take_lags(progress)

    def take_epoch(self, message: Mapping[str, Any], run: str) -> bool:
        """Take an epoch; return whether it is new. One that is replayed is not counted again.

        A run may start from an older epoch than the last one reached, if it was restored from a savepoint.
        """
        if run != self.run:
            self.run, self.newest_epoch = run, -1
        totals = message.get("totals") or {}
        self.progress |= {name: message[name] for name in _GAUGES if name in message and name not in _TOTALS}
        self.progress |= {name: totals[name] for name in _TOTALS if name in totals}
        self.progress |= {name: message[name] for name in _NEWEST if name in message}
        self._take_lags(message)
        if isinstance(message.get("nodes"), Mapping):
            self.nodes = dict(message["nodes"])
        number = int(message.get("epoch", -1))
        if number <= self.newest_epoch:
            return False
        self.newest_epoch = number
        if message.get("latency_ms"):
            # An epoch without rows, which closes windows, has none.
            self.newest_latency = message["latency_ms"]
            self.latencies = [*self.latencies[-_MOST_LATENCIES:], message["latency_ms"]]
        self.latency.add(float(message.get("duration_ms") or 0) / 1000)
        self.busy_ms += float(message.get("duration_ms") or 0)
        written = checkpoint_ms(message.get("phases"))
        if written is not None:
            self.checkpoint.add(written / 1000)
        return True

    def _take_lags(self, message: Mapping[str, Any]) -> None:
        lags = message.get("partition_lags")
        if isinstance(lags, Mapping):
            self.partition_lags = {
                (str(source), str(partition)): float(rows)
                for source, partitions in lags.items()
                for partition, rows in partitions.items()
            }

    def rates(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield rows per second, and the share of time in which epochs ran, since the last call."""
        rows = float(self.progress.get("rows_in") or 0)
        before, self._sampled = self._sampled, (now, rows, self.busy_ms)
        if before is None or now <= before[0] or rows < before[1]:
            return
        yield "rows_per_second", (rows - before[1]) / (now - before[0])
        yield "busy_ratio", min((self.busy_ms - before[2]) / 1000 / (now - before[0]), 1.0)

    def take_latencies(self) -> list[Mapping[str, float]]:
        """Return the end-to-end latencies of the epochs since the last call."""
        found, self.latencies = self.latencies, []
        return found

    def values(self) -> Iterator[tuple[str, float]]:
        """Yield the metrics that have one value for the whole job."""
        for name, metric in _GAUGES.items():
            value = self.progress.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield metric, float(value)
        if self.memory:
            yield "memory_bytes", float(self.memory)

    def node_values(self) -> Iterator[tuple[str, str, float]]:
        """Yield the metrics of single nodes: metric, node and value."""
        for node, figures in self.nodes.items():
            for name, metric in _NODE_GAUGES.items():
                if figures.get(name) is not None:
                    yield metric, node, float(figures[name])


def checkpoint_ms(phases: Any) -> float | None:
    """Return how much of an epoch wrote its checkpoint; None if that is not known."""
    if not isinstance(phases, Mapping):
        return None
    found = [float(phases[name]) for name in _CHECKPOINT_PHASES if isinstance(phases.get(name), (int, float))]
    return sum(found) if found else None


@dataclass(frozen=True)
class JobStatus:
    """What the manager itself knows of a job, for its metrics."""

    id: str
    state: str
    restarts: int
    started_at: float | None
    parallelism: int | None = None


class Measurements:
    """The metrics of all jobs that this manager has seen."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobMeasurements] = {}

    def of(self, job: str, name: str) -> JobMeasurements:
        """Return the measurements of a job."""
        return self.jobs.setdefault(job, JobMeasurements(name))

    def forget(self, job: str) -> None:
        """Remove those of a deleted job."""
        self.jobs.pop(job, None)

    def stored_samples(self, status: JobStatus, now: float) -> Iterator[StoredSample]:
        """Yield what the store's series get of a job."""
        known = self.jobs.get(status.id)
        if known is not None:
            for metric, value in (*known.values(), *known.rates(now)):
                yield StoredSample(status.id, metric, now, value)
            for metric, node, value in known.node_values():
                yield StoredSample(status.id, metric, now, value, node)
            for latency in known.take_latencies():
                for name, value in latency.items():
                    yield StoredSample(status.id, f"latency_{name}_ms", now, float(value))
            if status.parallelism is not None:
                yield StoredSample(status.id, "parallelism", now, float(status.parallelism))
            duration = known.progress.get("duration_ms")
            if isinstance(duration, (int, float)):
                yield StoredSample(status.id, "processing_latency_seconds", now, duration / 1000)
            written = checkpoint_ms(known.progress.get("phases"))
            if written is not None:
                yield StoredSample(status.id, "checkpoint_duration_seconds", now, written / 1000)
            for (source, partition), rows in known.partition_lags.items():
                yield StoredSample(status.id, "source_partition_lag_rows", now, rows, f"{source}/{partition}")
        yield StoredSample(status.id, "restarts_total", now, float(status.restarts))
        if status.started_at is not None:
            yield StoredSample(status.id, "uptime_seconds", now, max(now - status.started_at, 0.0))

    def page_samples(self, status: JobStatus, name: str, now: float) -> Iterator[Sample]:
        """Yield what the Prometheus page has of a job."""
        labels = {"job": status.id, "name": name}
        known = self.jobs.get(status.id)
        if known is not None:
            yield from (Sample(metric, value, labels) for metric, value in known.values())
            yield from (Sample(metric, value, {**labels, "node": node}) for metric, node, value in known.node_values())
            yield Sample("rows_per_second", float(known.progress.get("rows_in_per_s") or 0), labels)
            yield Sample("processing_latency_seconds", known.latency, labels)
            for percentile, value in known.newest_latency.items():
                yield Sample(f"latency_{percentile}_ms", float(value), labels)
            yield Sample("checkpoint_duration_seconds", known.checkpoint, labels)
            for (source, partition), rows in known.partition_lags.items():
                yield Sample("source_partition_lag_rows", rows, {**labels, "source": source, "partition": partition})
        yield Sample("job_state", 1.0, {**labels, "state": status.state})
        yield Sample("restarts_total", float(status.restarts), labels)
        if status.started_at is not None:
            yield Sample("uptime_seconds", max(now - status.started_at, 0.0), labels)
