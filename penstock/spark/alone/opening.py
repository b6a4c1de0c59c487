"""What every run does before Spark starts: the connectors must be there, and the checkpoint fit the pace."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.folders import Folder, folder
from penstock.plan.graph import Graph
from penstock.plan.joins import JoinTable
from penstock.plan.pace import Pace, in_spark_alone
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint, data_folder
from penstock.spark.jars import jar_sets

# Of the fast pace: a backlog is drained in epochs that still end in about a second.
FAST_ROWS = 100_000
_EARLIER = """\
the sink '%s' (%s) holds rows of an earlier run or of another job, and checkpoint %s is new and knows nothing of them:
  rows that are read again will be written again. To go on where that run was, use its --checkpoint folder or restore a
  savepoint of it; to begin anew, remove the old rows first"""
_log = logging.getLogger(__name__)
Kind = Literal["epochs", "connected", "realtime"]
_PACES: dict[Kind, str] = {
    "epochs": 'pace="throughput" or "fast"',
    "connected": 'pace="fast"',
    "realtime": 'pace="realtime"',
}


def check_connectors(name: str, graph: Graph, settings: Settings) -> None:
    """Tell sources and sinks where they are, and raise if one cannot be reached."""
    sources = [read.source for read in graph.reads]
    sources += [node.table for node in graph.nodes if isinstance(node, JoinTable)]
    sinks = [write.sink for write in graph.writes]
    for connector in [*sources, *sinks, *([graph.rejected_to] if graph.rejected_to else [])]:
        connector.under(settings.files)
        connector.within(name, settings)
        connector.check()


def warn_of_earlier_rows(graph: Graph, checkpoint: Checkpoint) -> None:
    """Say which sinks have epochs that this checkpoint, new as it is, knows nothing of."""
    sinks = {graph.own_name(write): write.sink for write in graph.writes}
    sinks |= {graph.rejected_to.name: graph.rejected_to} if graph.rejected_to else {}
    for name, sink in sinks.items() if checkpoint.is_new else ():
        if sink.used_before(name):
            _log.warning(_EARLIER, name, sink.goes_to() or type(sink).__name__, checkpoint.root)


def is_connected(graph: Graph, where: str | Path | Folder, until: str, pace: Pace) -> bool:
    """Say whether Spark runs a pipeline alone: always at real-time, at the fast pace if it began so or can."""
    if pace != "fast":
        return pace == "realtime"
    found = _kind(data_folder(folder(where)))
    if found is not None:
        return found == "connected"
    return until == "stopped" and in_spark_alone(graph) and jar_sets()["kafka"].fetched


def keep_pace(checkpoint: Checkpoint, mine: Kind) -> None:
    """Refuse to go on otherwise than a checkpoint began: its offsets and state have another form."""
    found = _kind(checkpoint.folder) or mine
    if found != mine:
        message = f"checkpoint {checkpoint.folder} was written at {_PACES[found]}, which keeps other offsets and state"
        raise CheckpointMismatch(message, hint="keep that pace, or choose another --checkpoint folder")
    checkpoint.folder.write("pace", mine.encode(), sync=False)


def _kind(data: Folder) -> Kind | None:
    noted = data.read("pace")
    for kind in _PACES:
        if noted == kind.encode():
            return kind
    if noted is None and not (data / "queries").names():
        return None
    # Only runs in epochs of ours write a layout.
    if noted is None and "layout.json" in data.names():
        return "epochs"
    message = f"{data}/pace " + ("is gone" if noted is None else f"cannot be read: it holds {noted[:40]!r}")
    hint = "write the kind of the run that wrote this checkpoint into it, without a line end"
    raise CheckpointDamaged(message, hint=f"{hint}: {', '.join(f'{kind} ({pace})' for kind, pace in _PACES.items())}")
