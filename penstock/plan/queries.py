"""Which outputs share a Spark query: Spark has one output mode and one watermark in each.

Outputs go apart when their results wait for different times: then a long delay on one branch does not hold up the
results of another. They stay together when they share state, for state is kept once, and where a checkpoint has them
together: it goes on as it began.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from penstock.plan.graph import Graph, aside, upstream
from penstock.plan.joins import Join
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, MapBatches, Read, Write
from penstock.plan.stateful import Distinct

FINAL, UPDATES = "final", "updates"


@dataclass(frozen=True)
class Group:
    """The outputs of one query; `name` is its folder's in the checkpoint, and begins with its output mode."""

    name: str
    writes: tuple[Write, ...]

    @property
    def updating(self) -> bool:
        """Whether its results are updated later."""
        return self.name.startswith(UPDATES)


def groups(graph: Graph, known: Mapping[str, Collection[str]] | None = None) -> tuple[Group, ...]:
    """Return the queries of a plan; `known` are those of its checkpoint, with the ids of their sinks and state."""
    found: list[Group] = []
    main = [write for write in graph.writes if aside(write) is None]
    for mode in (FINAL, UPDATES):
        writes = [write for write in main if write.updating == (mode == UPDATES)]
        there = {name: set(nodes) for name, nodes in (known or {}).items() if name.startswith(mode)}
        parts = _together([_Part({write}, _nodes(write, graph), _waits(write)) for write in writes], there)
        for name, part in zip(_names(mode, parts, there), parts, strict=True):
            found.append(Group(name, tuple(write for write in writes if write in part.writes)))
    return tuple(found)


def goes_by_time(node: Node) -> bool:
    """Say whether a node may wait for the watermark, or forget by it."""
    return node.stateful and not over_all_time(node) and any(one.event_time for one in node.inputs)


def over_all_time(node: Node) -> bool:
    """Say whether a node compares rows whatever their times, and forgets none."""
    return isinstance(node, Distinct) or (isinstance(node, Join) and node.unbounded)


def parts_late(node: Node) -> bool:
    """Say whether a node puts late rows aside."""
    return node.stateful and any(side.startswith("late") for side in node.sides)


def times_of(node: Node) -> tuple[EventTime, ...]:
    """Return the event times that a node's rows come through: its watermark is the smallest of theirs."""
    return tuple(one for one in upstream(node) if isinstance(one, EventTime))


def time_key(time: EventTime) -> str:
    """Return a name for the rows that enter an event time, which holds while what stands before it is the same."""
    before = [[node.kind, node.detail] for node in upstream(time.input)]
    return f"{source_of(time)}.{time.column}#{hashlib.sha256(repr(before).encode()).hexdigest()[:8]}"


def partition_sources(time: EventTime) -> list[Read]:
    """Return the sources whose partitions an event time follows, the slowest of all; none if it follows all rows alike.

    Several sources before one event time are partitions too. Behind state, rows have no partition any more, nor have
    those that a function makes of whole batches.
    """
    before = list(upstream(time.input))
    reads = [node for node in before if isinstance(node, Read)]
    several = len(reads) > 1 or any(read.source.partitioned for read in reads)
    return reads if several and not any(node.stateful or isinstance(node, MapBatches) for node in before) else []


def source_of(time: EventTime) -> str:
    """Return the sources of an event time, as a user knows them."""
    reads = (node for node in upstream(time) if isinstance(node, Read))
    return "+".join(node.name or node.source.name for node in reads)


@dataclass
class _Part:
    """Outputs that are together: their writes, the ids of their state and sinks, and what they wait for."""

    writes: set[Write]
    nodes: set[str]
    waits: frozenset[tuple[EventTime, int]]


def _waits(write: Write) -> frozenset[tuple[EventTime, int]]:
    """Return the event times that an output waits for, each with the longest lateness that is allowed after it."""
    found: dict[EventTime, int] = {}
    for node in filter(goes_by_time, upstream(write)):
        for time in times_of(node):
            found[time] = max(found.get(time, 0), getattr(node, "lateness_us", 0))
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
    """Let outputs that wait for nothing go with others: they hold nobody up."""
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
