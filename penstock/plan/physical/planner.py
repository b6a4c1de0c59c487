"""Decides how a pipeline runs: from its graph, the settings and the queries that its checkpoint has.

The second half plans queries: what each computes, shares between its branches, counts and publishes.

This is the only caller of `split_lanes` and `groups`. Everyone else reads the value that is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from penstock.contracts import Guarantee, Sink
from penstock.durations import span_text
from penstock.plan.fingerprint import fingerprint, meaning
from penstock.plan.graph import Graph, event_times_in, late_output_of, reads_in, stateful_upstream, upstream
from penstock.plan.naming import node_id
from penstock.plan.operators.node import BUCKETS, Node
from penstock.plan.operators.stateless import EventTime, Read, Write
from penstock.plan.physical.determinism import nondeterministic_upstream
from penstock.plan.physical.lanes import Lanes, Prefix, split_lanes
from penstock.plan.physical.overload import Overload, overload_text
from penstock.plan.physical.pace import PROMISES, Pace, is_topic, runs_without_python
from penstock.plan.physical.plan import (
    Edge,
    Follows,
    LaneSetting,
    OutputMode,
    Partitioning,
    PhysicalPlan,
    PlannedNode,
    PlannedQuery,
    PlannedScan,
    PlannedSink,
    PlannedState,
    PlannedTime,
    Reader,
    RunnerKind,
)
from penstock.plan.physical.queries import Group, event_times_of, groups, needs_watermark, partition_sources, source_of
from penstock.plan.physical.row_order import order_warnings


def default_runner(pace: Pace, graph: Graph) -> RunnerKind:
    """Return what runs a pipeline until it is stopped, if Spark's Kafka connector is there."""
    if pace == "realtime":
        return "real-time"
    return "kafka-connector" if pace == "fast" and runs_without_python(graph) else "micro-batch"


def physical_plan(
    name: str,
    graph: Graph,
    *,
    lane: LaneSetting = "auto",
    kafka_reader: Reader = "penstock",
    pace: Pace = "throughput",
    overload: Overload = "block",
    runner: RunnerKind | None = None,
    known: Mapping[str, Sequence[str]] | None = None,
    buckets: int = BUCKETS,
) -> PhysicalPlan:
    """Plan a pipeline; `known` are the queries of its checkpoint, with the ids of their sinks and state."""
    runner = runner or default_runner(pace, graph)
    in_epochs, realtime = runner == "micro-batch", runner == "real-time"
    lanes = split_lanes(graph, lane) if in_epochs else split_lanes(graph, "spark", why=f"pace is {pace}")
    return PhysicalPlan(
        pipeline=name,
        pace=pace,
        promise=PROMISES[pace],
        runner=runner,
        overload=overload,
        overload_effect=overload_text(overload, graph),
        lane=lane,
        nodes=tuple(_node(node, graph, lanes, runner, buckets) for node in graph.nodes),
        edges=tuple(_edge(source, node, graph) for node in graph.nodes for source in node.inputs),
        scans=tuple(_scan(prefix, graph, runner, kafka_reader) for prefix in lanes.prefixes.values()),
        queries=(
            epoch_queries(graph, lanes, known, kafka_reader)
            if in_epochs
            else connector_queries(graph, realtime=realtime)
        ),
        sinks=tuple(_sink(write.sink, graph.own_name(write), upstream(write), graph, runner) for write in graph.writes),
        rejected=_rejected(graph, runner),
    )


def _node(node: Node, graph: Graph, lanes: Lanes, runner: RunnerKind, buckets: int) -> PlannedNode:
    times = event_times_of(node) if needs_watermark(node) else ()
    return PlannedNode(
        id=graph.id(node),
        name=graph.name(node),
        kind=node.kind,
        title=graph.label(node),
        detail=node.detail,
        inputs=tuple(graph.id(one) for one in node.inputs),
        columns=dict(node.schema.types),
        lane=lanes.lane(node),
        reason=lanes.reasons.get(node),
        watermark=tuple(graph.id(time) for time in times),
        partitioning=_partitioning(node, buckets) if node.stateful else None,
        state=_state(node) if node.stateful else None,
        event_time=next((_time(time, runner) for time in graph.event_times if time == node), None),
        target=node.target or None,
        warning=node.warning or order_warnings(graph).get(node),
        parts=node.explained,
    )


def _partitioning(node: Node, buckets: int) -> Partitioning:
    exchange: Literal["hash", "single"] = "hash" if node.state_keys else "single"
    return Partitioning(exchange, node.state_keys, buckets if node.bucketed else None)


def _state(node: Node) -> PlannedState:
    return PlannedState(
        store="buckets" if node.bucketed else "spark",
        bound=node.state_bound or "nothing: it grows with every new key",
        bounded=node.state_bound is not None,
        fingerprint=fingerprint(node),
        meaning=meaning(node),
    )


def _time(time: EventTime, runner: RunnerKind) -> PlannedTime:
    follows: Follows = "partitions" if partition_sources(time) else "rows"
    return PlannedTime(
        column=time.column,
        sources=source_of(time),
        max_delay_us=time.max_delay_us,
        idle_after_us=time.idle_after_us,
        follows=follows if runner == "micro-batch" else "spark",
    )


def _edge(source: Node, node: Node, graph: Graph) -> Edge:
    return Edge(graph.id(source), graph.id(node), node.side_name)


def _scan(prefix: Prefix, graph: Graph, runner: RunnerKind, kafka_reader: Reader) -> PlannedScan:
    read = prefix.read
    by_spark = runner != "micro-batch" or (kafka_reader == "spark" and is_topic(read.source))
    return PlannedScan(
        source=graph.id(read),
        reader="spark" if by_spark else "penstock",
        chain=tuple(map(graph.id, prefix.chain)),
        partial=graph.id(prefix.partial) if prefix.partial else None,
        late=graph.id(prefix.late) if prefix.late else None,
        late_side=prefix.late_side if prefix.late else None,
        replayable=read.source.replayable,
        packed=graph.id(prefix.packed) if prefix.packed else None,
    )


def _rejected(graph: Graph, runner: RunnerKind) -> PlannedSink | None:
    sink = graph.rejected_to
    return None if sink is None else _sink(sink, sink.name, graph.nodes, graph, runner)


def _sink(sink: Sink, name: str, nodes: Iterable[Node], graph: Graph, runner: RunnerKind) -> PlannedSink:
    guarantee, why = _guarantee(sink, nodes, graph, runner)
    return PlannedSink(node_id("write", name), name, sink.describe_target(), guarantee, why)


def _guarantee(sink: Sink, nodes: Iterable[Node], graph: Graph, runner: RunnerKind) -> tuple[Guarantee, str]:
    """Return what a sink downstream of these nodes really gives, and why: what is weakest on the way decides."""
    found = list(nodes)
    lost = [read for read in graph.reads if read in found and not read.source.replayable]
    if lost:
        return "at_most_once", f"source '{graph.name(lost[0])}' cannot be read again after a crash"
    if runner != "micro-batch":
        return "at_least_once", "Spark's own connector writes it without a ledger (pace)"
    varies = next((node for node in found if nondeterministic_upstream(node) is node), None)
    if varies is None:
        return sink.guarantee, sink.guarantee_reason
    staged = f"rows wait in the checkpoint until all sinks have them, for {graph.label(varies)} is not deterministic"
    return sink.guarantee, f"{sink.guarantee_reason}; {staged}"


Known = Mapping[str, Sequence[str]]


def epoch_queries(
    graph: Graph, lanes: Lanes, known: Known | None = None, kafka_reader: Reader = "penstock"
) -> tuple[PlannedQuery, ...]:
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
                may_keep_splits=len(group.writes) == 1 and not asides and _repeats_splits(nodes, kafka_reader),
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


def _repeats_splits(nodes: list[Node], kafka_reader: Reader) -> bool:
    """Return whether Spark runs these nodes of one sink in the tasks that read their source, and a replay does too."""
    reads = list(reads_in(nodes))
    if len(reads) != 1 or (kafka_reader == "spark" and is_topic(reads[0].source)):
        return False
    return reads[0].source.repeats_splits and all(map(_stays_in_task, nodes))


def _stays_in_task(node: Node) -> bool:
    exchanged = node.stateful or node.tables or len(node.inputs) > 1
    return not exchanged and node.deterministic and not event_times_in([node])


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
