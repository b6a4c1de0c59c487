"""Every metric of the job manager, declared once: name, help, type, labels.

`series` is the name in the store and in the REST API, without the prefix. It differs where Prometheus wants a base
unit: `watermark_lag_ms` is `penstock_watermark_lag_seconds` on the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
PREFIX = "penstock_"
JOB = ("job", "name")
NODE = (*JOB, "node")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Metric:
    """One metric. `factor` converts a value of the series to the unit of the page."""

    series: str
    help: str
    kind: Kind = "gauge"
    labels: tuple[str, ...] = JOB
    page_name: str = ""
    factor: float = 1.0

    @property
    def name(self) -> str:
        """The name on the Prometheus page."""
        return PREFIX + (self.page_name or self.series)


METRICS = (
    Metric("records_processed_total", "Rows that the job has read from its sources.", "counter"),
    Metric("rows_written_total", "Rows that the job has written to its sinks.", "counter"),
    Metric("rows_late_total", "Rows that came after the watermark.", "counter"),
    Metric("rows_rejected_total", "Rows that could not be read or processed.", "counter"),
    Metric("rows_filtered_total", "Rows that a filter left out.", "counter"),
    Metric("epochs_total", "Epochs that the job has committed.", "counter"),
    Metric("restarts_total", "Restarts after failures.", "counter"),
    Metric("processing_latency_seconds", "Duration of an epoch from reading to commit.", "histogram"),
    *(
        Metric(
            f"latency_p{percent}_ms",
            f"{percent} percent of the newest epoch's records took at most so long from their timestamp in the topic "
            f"to the commit; latency_p{percent}_ms in the REST API.",
            page_name=f"latency_p{percent}_seconds",
            factor=0.001,
        )
        for percent in (50, 95, 99)
    ),
    Metric("checkpoint_duration_seconds", "Part of an epoch that wrote its checkpoint.", "histogram"),
    Metric("rows_per_second", "Rows read per second in the newest epoch."),
    Metric("busy_ratio", "Share of the time in which epochs were processed, 0 to 1."),
    Metric("parallelism", "Tasks that the job runs at once, where that was chosen."),
    Metric("backpressure_ratio", "Part of the available rows that the newest epoch left unread, 0 to 1."),
    Metric(
        "watermark_lag_ms",
        "Time that the watermark is behind the clock; watermark_lag_ms in the REST API.",
        page_name="watermark_lag_seconds",
        factor=0.001,
    ),
    Metric("state_size_bytes", "Size of the state; node is empty for the whole job.", labels=NODE),
    Metric("state_rows", "Rows in the state, of keyed state its keys; node is empty for the whole job.", labels=NODE),
    Metric("source_lag_rows", "Rows of the sources that are not read yet."),
    Metric(
        "source_partition_lag_rows",
        "Rows of one partition of a source that are not read yet.",
        labels=(*JOB, "source", "partition"),
    ),
    Metric("uptime_seconds", "Time since the driver of the job started."),
    Metric("memory_bytes", "Resident memory of the driver, its JVM and its workers."),
    Metric("job_state", "1 for the state that the job is in.", labels=(*JOB, "state")),
    Metric("manager_active", "1 if this job manager holds the lease.", labels=()),
    Metric("manager_memory_bytes", "Resident memory of the job manager.", labels=()),
    Metric("spare_drivers", "Drivers that wait for a job.", labels=()),
    Metric("event_subscribers", "WebSocket and SSE clients.", labels=()),
)
BY_SERIES = {one.series: one for one in METRICS}
