"""What every run checks before Spark starts: connectors can be reached, and the checkpoint is of its kind of run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.plan.graph import Graph
from penstock.plan.physical.pace import Pace, runs_without_python
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.identity import data_folder
from penstock.spark.session.jars import jar_sets
from penstock.storage.folders import Folder, folder

# At the fast pace a backlog is drained in epochs that still take about a second.
FAST_ROWS = 100_000
_EARLIER = """\
the sink '%s' (%s) has rows of an earlier run or of another job that are not in checkpoint %s, which is new:
  rows that are read again will be written again. To continue that run, use its --checkpoint folder or restore a
  savepoint of it; to start over, remove the old rows first"""
_log = logging.getLogger(__name__)
Kind = Literal["epochs", "connected", "realtime"]
_PACES: dict[Kind, str] = {
    "epochs": 'pace="throughput" or "fast"',
    "connected": 'pace="fast"',
    "realtime": 'pace="realtime"',
}


def check_connectors(name: str, graph: Graph, settings: Settings) -> None:
    """Configure sources and sinks, and raise an error if one cannot be reached."""
    sources = [read.source for read in graph.reads]
    sources += [table for node in graph.nodes for table in node.tables]
    sinks = [write.sink for write in graph.writes]
    for connector in [*sources, *sinks, *([graph.rejected_to] if graph.rejected_to else [])]:
        connector.set_base_path(settings.files)
        connector.configure(name, settings)
        connector.check()


def warn_of_earlier_rows(graph: Graph, checkpoint: Checkpoint) -> None:
    """Log which sinks have epochs that a new checkpoint does not know."""
    sinks = {graph.own_name(write): write.sink for write in graph.writes}
    sinks |= {graph.rejected_to.name: graph.rejected_to} if graph.rejected_to else {}
    for name, sink in sinks.items() if checkpoint.is_new else ():
        if sink.used_before(name):
            _log.warning(_EARLIER, name, sink.describe_target() or type(sink).__name__, checkpoint.root)


def uses_connector_run(graph: Graph, where: str | Path | Folder, until: str, pace: Pace) -> bool:
    """Say whether the Kafka connector runs a pipeline: always in real time; at the fast pace if it did, or can."""
    if pace != "fast":
        return pace == "realtime"
    found = _kind(data_folder(folder(where)))
    if found is not None:
        return found == "connected"
    return until == "stopped" and runs_without_python(graph) and jar_sets()["kafka"].fetched


def check_run_kind(checkpoint: Checkpoint, mine: Kind) -> None:
    """Refuse a checkpoint of another kind of run: its offsets and state have another form."""
    found = _kind(checkpoint.folder) or mine
    if found != mine:
        message = f"checkpoint {checkpoint.folder} was written at {_PACES[found]}, which has other offsets and state"
        raise CheckpointMismatch(message, hint="keep that pace, or choose another --checkpoint folder")
    checkpoint.folder.write("pace", mine.encode(), sync=False)


def _kind(data: Folder) -> Kind | None:
    found = data.read("pace")
    for kind in _PACES:
        if found == kind.encode():
            return kind
    if found is None and not (data / "queries").names():
        return None
    # Only micro-batch runs write a layout.
    if found is None and "layout.json" in data.names():
        return "epochs"
    message = f"{data}/pace " + ("is gone" if found is None else f"cannot be read: it holds {found[:40]!r}")
    hint = "write the kind of the run that wrote this checkpoint into it, without a line end"
    raise CheckpointDamaged(message, hint=f"{hint}: {', '.join(f'{kind} ({pace})' for kind, pace in _PACES.items())}")
