"""Fingerprints: what a checkpoint belongs to.

Spark accepts a changed window length on an old checkpoint in silence, so state is bound to a fingerprint of what
gives it its meaning: keys and their types, window, delay, lateness and aggregates. Stateless nodes do not count.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from penstock.plan.graph import Graph, aside, upstream
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime
from penstock.plan.partials import halves
from penstock.plan.stateful import Aggregate, Deduplicate, Grouped, Reduce


def fingerprint(node: Node) -> str:
    """Return a short hash that changes when the node's state would change its meaning."""
    return _hash(_meaning(node))


def fingerprints(graph: Graph) -> dict[str, str]:
    """Return the fingerprint of each stateful node by its name."""
    return {graph.name(node): fingerprint(node) for node in graph.stateful}


def skeleton(graph: Graph) -> str:
    """Return the hash of all that Spark's checkpoint depends on: sources, their branches, and state."""
    main = [write for write in graph.writes if aside(write) is None]
    reads = [[graph.name(node) for node in upstream(write) if node in graph.reads] for write in main]
    modes = [write.updating for write in main]
    return _hash([reads, modes, fingerprints(graph)])


def _meaning(node: Node) -> list[Any]:
    delays = sorted(n.max_delay_us for n in upstream(node) if isinstance(n, EventTime))
    types = node.inputs[0].schema.types
    if isinstance(node, Deduplicate):
        return [node.kind, delays, [[key, types[key]] for key in node.keys], node.within_us]
    if not isinstance(node, Grouped):
        return [node.kind]
    common = [node.kind, delays, [[key, types[key]] for key in node.keys], str(node.window), node.lateness_us]
    if isinstance(node, Aggregate):
        return [*common, node.emit, [[name, _what(what)] for name, what in node.aggregates], _layout(node)]
    if isinstance(node, Reduce):
        return [*common, node.emit, node.input.schema.ddl]
    return common


def _layout(node: Aggregate) -> Any:
    """How Spark's state holds it: merged partials or whole aggregates, whichever lane made them."""
    split = halves(node)
    return None if isinstance(split, str) else [split.finals, split.folded]


def _what(what: Any) -> Any:
    return what if isinstance(what, str) else [type(what).__name__, list(what.inputs), str(what.state)]


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
