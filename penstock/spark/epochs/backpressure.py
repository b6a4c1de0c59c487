"""Backpressure on the driver: the rate limits of a run, what they hold back, and the metrics that planners read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.durations import micros
from penstock.errors import UnknownSetting
from penstock.plan.graph import Graph
from penstock.plan.operators.stateless import Read
from penstock.plan.physical.overload import Overload, spills
from penstock.settings import Settings
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.lowering.job_storage import JobStorage
from penstock.spark.tasks.admission import FIRST, RateLimits
from penstock.spark.tasks.offset_files import rate_file
from penstock.spark.tasks.source_readers import source_reader

# Python is slower than SQL, and async calls are slower still: the first epoch should not take minutes.
FIRST_OF_PYTHON, FIRST_OF_CALLS = 50_000, 2_000


def rate_limits(graph: Graph, settings: Settings, overload: Overload) -> RateLimits:
    """Return the limits of a pipeline's epochs, and set `spills` on its sources."""
    for read in graph.reads:
        read.source.spills = spills(read, overload)
        if overload == "drop" and not source_reader(read.source, settings).drops_backlog:
            message = "kafka_reader = 'spark' reads what Spark's connector plans, which drops nothing"
            raise UnknownSetting(message, node=graph.label(read), hint="use kafka_reader = 'penstock'")
    return RateLimits(
        epoch_rows=settings.epoch_rows,
        seconds=micros(settings.epoch_target) / 1e6,
        first=_first(graph),
        lag_rows=settings.max_lag_rows if overload == "drop" else None,
    )


def _first(graph: Graph) -> int:
    if any(node.waits_for_calls for node in graph.nodes):
        return FIRST_OF_CALLS
    return FIRST_OF_PYTHON if any(node.functions for node in graph.nodes) else FIRST


class Backpressure:
    """The backpressure of one run's epochs: of the rows that were there, the part that the limits left unread."""

    def __init__(self, graph: Graph, checkpoint: JobStorage) -> None:
        self._graph, self._checkpoint = graph, checkpoint
        self._ratios: list[float] = []

    @property
    def mean(self) -> float | None:
        """The mean over the epochs for which it is known."""
        return sum(self._ratios) / len(self._ratios) if self._ratios else None

    def record(self, writer: EpochWriter, held: Mapping[Read, int | None]) -> None:
        """Record an epoch that is done, and write its rows and seconds for the planners of its sources."""
        for read in held:
            name = self._graph.name(read)
            measured = [writer.number, writer.read.get(name, 0), writer.progress.epoch_ms / 1000]
            folder = self._checkpoint.messages(name)
            folder.write(rate_file(writer.query.name), json.dumps(measured).encode(), sync=False)
            if name in writer.progress.nodes:
                node = writer.progress.nodes[name]
                node.backpressure_ratio = _ratio(writer.read.get(name, 0), {read: held[read]})
        ratio = _ratio(sum(writer.read.values()), held)
        writer.progress.backpressure_ratio = ratio
        if ratio is not None:
            self._ratios.append(ratio)


def _ratio(rows: int, held: Mapping[Read, int | None]) -> float | None:
    left = [some for some in held.values() if some is not None]
    if len(left) < len(held):
        return None
    wanted = sum(left) + rows
    return sum(left) / wanted if wanted else 0.0
