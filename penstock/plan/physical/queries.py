"""Which outputs share a Spark query: Spark has one output mode and one watermark in each.

Outputs are in separate queries if their results wait for different event times: then a long delay on one branch does
not hold back the results of another. They are in one query if they share state, which is stored once, and where the
checkpoint has them in one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.plan.graph import Graph, event_times_in, late_output_of, reads_in, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import EventTime, Read, Write

FINAL, UPDATES = "final", "updates"


@dataclass(frozen=True)
class Group:
    """The outputs of one query; `name` is its folder's in the checkpoint, and starts with its output mode."""

    name: str
    writes: tuple[Write, ...]

    @property
    def updating(self) -> bool:
        """Whether its results are updated later."""
        return self.name.startswith(UPDATES)


def groups(graph: Graph, known: Mapping[str, Sequence[str]] | None = None) -> tuple[Group, ...]:
    """Return the queries of a plan; `known` are those of its checkpoint, with the ids of their sinks and state.

    Spark knows sources and state by their positions in its plan, so outputs have the order that the checkpoint has,
    and new ones follow.
    """
    found: list[Group] = []
    at = {node: at for at, node in enumerate(node for nodes in (known or {}).values() for node in nodes)}
    main = [write for write in graph.writes if late_output_of(write) is None]
    main.sort(key=lambda write: at.get(graph.id(write), len(at)))
    for mode in (FINAL, UPDATES):
        writes = [write for write in main if write.updating == (mode == UPDATES)]
        there = {name: set(nodes) for name, nodes in (known or {}).items() if name.startswith(mode)}
        parts = _together([_Part({write}, _nodes(write, graph), _waits(write)) for write in writes], there)
        for name, part in zip(_names(mode, parts, there), parts, strict=True):
            found.append(Group(name, tuple(write for write in writes if write in part.writes)))
    return tuple(found)


def needs_watermark(node: Node) -> bool:
    """Return whether a node may emit rows or expire state by the watermark."""
    return node.stateful and not node.over_all_time and any(one.event_time for one in node.inputs)


def splits_late_rows(node: Node) -> bool:
    """Return whether a node splits off late rows."""
    return node.stateful and any(side.startswith("late") for side in node.sides)


def event_times_of(node: Node) -> tuple[EventTime, ...]:
    """Return the event times that a node's rows come through: its watermark is the smallest of theirs."""
    return event_times_in(upstream(node))


def time_key(time: EventTime) -> str:
    """Return a name for an event time, which is stable while all nodes upstream of it are the same."""
    nodes = [[node.kind, node.detail] for node in upstream(time.input)]
    return f"{source_of(time)}.{time.column}#{hashlib.sha256(repr(nodes).encode()).hexdigest()[:8]}"


def partition_sources(time: EventTime) -> list[Read]:
    """Return the sources whose partitions an event time follows, the slowest of all; none if it follows all rows alike.

    Several sources upstream of one event time are partitions too. Downstream of state, rows no longer have a partition,
    nor do those that a function makes of whole batches.
    """
    before = list(upstream(time.input))
    reads = list(reads_in(before))
    several = len(reads) > 1 or any(read.source.partitioned for read in reads)
    return reads if several and all(node.row_wise and not node.stateful for node in before) else []


def source_of(time: EventTime) -> str:
    """Return the sources of an event time, as a user knows them."""
    return "+".join(read.default_name for read in reads_in(upstream(time)))


@dataclass
class _Part:
    """Outputs that are together: their writes, the ids of their state and sinks, and what they wait for."""

    writes: set[Write]
    nodes: set[str]
    waits: frozenset[tuple[EventTime, int]]


def _waits(write: Write) -> frozenset[tuple[EventTime, int]]:
    """Return the event times that an output waits for, each with the longest lateness that is allowed after it."""
    found: dict[EventTime, int] = {}
    for node in filter(needs_watermark, upstream(write)):
        for time in event_times_of(node):
            found[time] = max(found.get(time, 0), node.lateness_us)
    return frozenset(found.items())


def _nodes(write: Write, graph: Graph) -> set[str]:
    return {graph.id(node) for node in upstream(write) if node.stateful} | {graph.id(write)}


def _together(parts: list[_Part], known: Mapping[str, set[str]]) -> list[_Part]:
    whole: list[_Part] = []
    for part in parts:
        alike = [one for one in whole if _belong(one, part, known)]
        for one in alike:
            part = _Part(one.writes | part.writes, one.nodes | part.nodes, one.waits | part.waits)
        at = min((whole.index(one) for one in alike), default=len(whole))
        whole = [one for one in whole if one not in alike]
        whole.insert(at, part)
    return _idle_joined(whole, known)


def _idle_joined(parts: list[_Part], known: Mapping[str, set[str]]) -> list[_Part]:
    """Put outputs that wait for nothing into the query of others: they delay nothing."""
    waiting = [part for part in parts if part.waits]
    free = [part for part in parts if not part.waits and not any(part.nodes & there for there in known.values())]
    if not waiting or not free:
        return parts
    first = waiting[0]
    for part in free:
        first.writes |= part.writes
        first.nodes |= part.nodes
    return [part for part in parts if part not in free]


def _belong(one: _Part, other: _Part, known: Mapping[str, set[str]]) -> bool:
    kept = any(one.nodes & there and other.nodes & there for there in known.values())
    return bool(one.nodes & other.nodes) or kept or one.waits == other.waits


def _names(mode: str, parts: list[_Part], known: Mapping[str, set[str]]) -> Iterator[str]:
    """Name queries: as the checkpoint has them, else by counting."""
    taken = set(known)
    given = {name: index for name, there in known.items() for index, part in enumerate(parts) if part.nodes & there}
    by_part = {index: name for name, index in reversed(given.items())}
    for index in range(len(parts)):
        free = (name for name in _counted(mode) if name not in taken)
        name = by_part.get(index) or next(free)
        taken.add(name)
        yield name


def _counted(mode: str) -> Iterator[str]:
    yield mode
    number = 2
    while True:
        yield f"{mode}-{number}"
        number += 1
