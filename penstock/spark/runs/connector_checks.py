"""What every run checks of its connectors before Spark starts: they can be reached, and sinks have no earlier rows."""

from __future__ import annotations

import logging

from penstock.plan.graph import Graph
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint

_EARLIER = """\
the sink '%s' (%s) has rows of an earlier run or of another job that are not in checkpoint %s, which is new:
  rows that are read again will be written again. To continue that run, use its --checkpoint folder or restore a
  savepoint of it; to start over, remove the old rows first"""
_log = logging.getLogger(__name__)


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
