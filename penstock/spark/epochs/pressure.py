"""Backpressure as the driver sees it: the limits of a run, what they hold back, and word of it to the planners."""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.durations import micros
from penstock.errors import UnknownSetting
from penstock.plan.graph import Graph
from penstock.plan.nodes import MapAsync, Read
from penstock.plan.overload import Overload, spills
from penstock.settings import Settings
from penstock.spark.alone.connector_scan import by_connector
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.epochs.notes import pace_note
from penstock.spark.epochs.pacer import FIRST, Limits
from penstock.spark.epochs.writer import EpochWriter

# Python is slower than SQL, and calls that wait are slower still: nobody should wait minutes for the first epoch.
FIRST_OF_PYTHON, FIRST_OF_CALLS = 50_000, 2_000


def limits_of(graph: Graph, settings: Settings, overload: Overload) -> Limits:
    """Return what bounds the epochs of a pipeline, and tell sources that spill to do so."""
    for read in graph.reads:
        read.source.spills = spills(read, overload)
        if overload == "drop" and by_connector(read.source, settings):
            message = "kafka_reader = 'spark' reads what Spark's connector plans, which drops nothing"
            raise UnknownSetting(message, node=graph.label(read), hint="use kafka_reader = 'penstock'")
    return Limits(
        epoch_rows=settings.epoch_rows,
        seconds=micros(settings.epoch_target) / 1e6,
        first=_first(graph),
        lag_rows=settings.max_lag_rows if overload == "drop" else None,
    )


def _first(graph: Graph) -> int:
    if any(isinstance(node, MapAsync) for node in graph.nodes):
        return FIRST_OF_CALLS
    return FIRST_OF_PYTHON if any(node.functions for node in graph.nodes) else FIRST


class Pressure:
    """The backpressure of one run's epochs: of the rows that were there, the part that the limits left unread."""

    def __init__(self, graph: Graph, checkpoint: Checkpoint) -> None:
        self._graph, self._checkpoint = graph, checkpoint
        self._ratios: list[float] = []

    @property
    def mean(self) -> float | None:
        """The mean over the epochs for which it is known."""
        return sum(self._ratios) / len(self._ratios) if self._ratios else None

    def note(self, writer: EpochWriter, held: Mapping[Read, int | None]) -> None:
        """Take in an epoch that is done, and tell the planners of its sources how long it took."""
        for read in held:
            name = self._graph.name(read)
            told = [writer.number, writer.read.get(name, 0), writer.progress.epoch_ms / 1000]
            folder = self._checkpoint.messages(name)
            folder.write(pace_note(writer.query.name), json.dumps(told).encode(), sync=False)
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
