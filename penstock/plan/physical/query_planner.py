"""The queries of a physical plan: what each computes, shares between its branches, counts and publishes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.durations import span_text
from penstock.plan.graph import Graph, event_times_in, late_output_of, stateful_upstream, upstream
from penstock.plan.naming import node_id
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Read, Write
from penstock.plan.physical.lanes import Lanes
from penstock.plan.physical.plan import OutputMode, PlannedQuery
from penstock.plan.physical.queries import Group, event_times_of, groups, source_of

Known = Mapping[str, Collection[str]]


def epoch_queries(graph: Graph, lanes: Lanes, known: Known | None = None) -> tuple[PlannedQuery, ...]:
    """Return the queries that run in epochs; `known` are those of the checkpoint."""
    queries: list[PlannedQuery] = []
    seen: set[Node] = set()
    for group in groups(graph, known):
        nodes = _nodes(group.writes, graph)
        mine = set(nodes) - seen
        asides = [write for write in graph.writes if _is_beside(write, mine)]
        counted = mine | {node for write in asides for node in upstream(write)} - set(nodes)
        branches = _Branches(group.writes, nodes, lanes)
        seen |= mine
        queries.append(
            PlannedQuery(
                name=group.name,
                mode="update" if group.updating else "append",
                sinks=tuple(map(graph.id, group.writes)),
                late_sinks=tuple(map(graph.id, asides)),
                nodes=tuple(map(graph.id, nodes)),
                counts=tuple(graph.id(node) for node in graph.nodes if node in counted),
                why=_why(group, graph, known or {}),
                shared=tuple(graph.id(node) for node in nodes if branches.is_shared(node)),
                per_branch=tuple(graph.id(node) for node in nodes if node in branches.per_branch),
                redeclares_watermark=_redeclares(nodes),
                timers=any(node.sets_timers for node in nodes),
            )
        )
    return tuple(queries)


def connector_queries(graph: Graph, *, realtime: bool) -> tuple[PlannedQuery, ...]:
    """Return the queries that Spark runs alone: one for each sink, one for the rejected rows of each source."""
    queries: list[PlannedQuery] = []
    seen: set[Node] = set()
    for write in graph.writes:
        nodes = _nodes((write,), graph)
        mode: OutputMode = "update" if realtime or any(node.stateful for node in nodes) else "append"
        counts = tuple(graph.id(node) for node in nodes if node not in seen)
        seen |= set(nodes)
        ids, why = tuple(map(graph.id, nodes)), "Spark's Kafka connector writes one sink in each query"
        queries.append(PlannedQuery(f"to-{graph.own_name(write)}", mode, (graph.id(write),), (), ids, counts, why))
    return (*queries, *_rejected_queries(graph, realtime=realtime))


def _rejected_queries(graph: Graph, *, realtime: bool) -> list[PlannedQuery]:
    sink = graph.rejected_to
    if sink is None:
        return []
    ids, why = (node_id("write", sink.name),), "Spark's Kafka connector has one way out of each query"
    mode: OutputMode = "update" if realtime else "append"
    return [
        PlannedQuery(f"rejected-{graph.name(read)}", mode, ids, (), (), (), why, rejected_from=graph.id(read))
        for read in graph.reads
        if not _fails(read)
    ]


def _fails(read: Read) -> bool:
    return (read.source.spec() or {}).get("on_error") == "fail"


def _nodes(writes: Iterable[Write], graph: Graph) -> list[Node]:
    reached = {node for write in writes for node in upstream(write)}
    return [node for node in graph.nodes if node in reached]


def _is_beside(write: Write, nodes: set[Node]) -> bool:
    side = late_output_of(write)
    return side is not None and side.side_of in nodes


def _redeclares(nodes: list[Node]) -> bool:
    return any(one.bucketed for node in nodes if node.stateful for one in upstream(node) if one != node)


class _Branches:
    """What several branches of a query have in common.

    `per_branch` is what each computes for itself: an event time that several operators with state follow, and all
    after it. Spark gives an operator the watermark that it finds below it, and sees nothing below an exchange that
    another branch reads too. So branches share the rows before the event time, and each declares it again.
    """

    def __init__(self, writes: tuple[Write, ...], nodes: list[Node], lanes: Lanes) -> None:
        self._nodes, self._lanes = nodes, lanes
        found: set[Node] = set()
        for time in event_times_in(nodes):
            after = [node for node in nodes if time in upstream(node)]
            operators = [one for write in writes for one in stateful_upstream(write) if one in after]
            if len(operators) > 1 and any(self._fans_out(node) for node in after):
                found |= set(after)
                found |= {prefix.read for prefix in lanes.prefixes.values() if prefix.times == time}
        self.per_branch = frozenset(found)

    def is_shared(self, node: Node) -> bool:
        """Return whether branches read the rows of a node from one exchange, so that they are computed once."""
        if node not in self.per_branch:
            return self._fans_out(node)
        if node in self._lanes.prefixes:
            return True
        in_scan = any(node == prefix.times for prefix in self._lanes.prefixes.values())
        return bool(event_times_in([node])) and not in_scan

    def _fans_out(self, node: Node) -> bool:
        consumers = [one for one in self._nodes if not one.is_late_output and any(i == node for i in one.inputs)]
        in_scan = any(node == prefix.read and prefix.chain for prefix in self._lanes.prefixes.values())
        return len(consumers) > 1 and not in_scan


def _why(group: Group, graph: Graph, known: Known) -> str:
    """Say why outputs share a query."""
    times = {
        time for write in group.writes for node in upstream(write) if node.stateful for time in event_times_of(node)
    }
    listed = sorted(f"{source_of(time)}.{time.column} less {span_text(time.max_delay_us)}" for time in times)
    waits = f"results that wait for {', '.join(listed)}" if listed else "results that wait for no event time"
    if len(group.writes) == 1:
        return waits
    ids = {graph.id(write) for write in group.writes}
    if len(ids & set(known.get(group.name, ()))) > 1:
        return f"{waits}; the checkpoint has them together"
    return waits
