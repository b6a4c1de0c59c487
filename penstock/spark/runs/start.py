"""Starts a pipeline: in micro-batches, or through Spark's Kafka connector where its pace and plan allow it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.graph import Graph
from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import Pace, runs_without_python
from penstock.settings import Settings
from penstock.spark.checkpoints.identity import data_folder
from penstock.spark.checkpoints.preflight import run_kind
from penstock.spark.runs.kafka_connector.run import KafkaConnectorRun
from penstock.spark.runs.micro_batch import MicroBatchRun
from penstock.spark.runs.runner import Runner, Until
from penstock.spark.session.jars import jar_sets
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


def uses_connector_run(graph: Graph, checkpoint: Folder, until: Until, pace: Pace) -> bool:
    """Return whether the Kafka connector runs a pipeline: always in real time; at the fast pace if it did, or can."""
    if pace != "fast":
        return pace == "realtime"
    found = run_kind(data_folder(checkpoint))
    if found is not None:
        return found == "connected"
    return until == "stopped" and runs_without_python(graph) and jar_sets()["kafka"].fetched
