"""Starts a pipeline: in micro-batches, or through Spark's Kafka connector where its pace and plan allow it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.graph import Graph
from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import Pace
from penstock.settings import Settings
from penstock.spark.runs.kafka_connector.run import KafkaConnectorRun
from penstock.spark.runs.micro_batch import MicroBatchRun
from penstock.spark.runs.runner import Runner, Until
from penstock.spark.runs.startup import uses_connector_run
from penstock.storage.folders import Folder


def start_run(
    name: str,
    graph: Graph,
    checkpoint: Folder,
    settings: Settings,
    until: Until,
    pace: Pace,
    allow_drop: Sequence[str],
    overload: Overload,
    token: int | None = None,
) -> Runner:
    """Start a pipeline and return its run; `token` is the fencing token of the job manager that asked for it."""
    run: Runner
    if overload != "drop" and uses_connector_run(graph, checkpoint, until, pace):
        run = KafkaConnectorRun(name, graph, checkpoint, settings, until, pace, overload, token)
    else:
        run = MicroBatchRun(name, graph, checkpoint, settings, until, pace, allow_drop, overload, token)
    return run.begin()
