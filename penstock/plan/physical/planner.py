"""Decides how a pipeline runs: from its graph, the settings and the queries that its checkpoint has.

This is the only caller of `split_lanes` and `groups`. Everyone else reads the value that is returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.contracts import Guarantee, Sink
from penstock.plan.fingerprint import fingerprint, meaning
from penstock.plan.graph import Graph, upstream
from penstock.plan.naming import node_id
from penstock.plan.operators.node import BUCKETS, Node
from penstock.plan.operators.stateless import EventTime
from penstock.plan.physical.determinism import nondeterministic_upstream
from penstock.plan.physical.lanes import Lanes, Prefix, split_lanes
from penstock.plan.physical.overload import Overload, overload_text
from penstock.plan.physical.pace import PROMISES, Pace, is_topic, runs_without_python
from penstock.plan.physical.plan import (
    Edge,
    Follows,
    LaneSetting,
    Partitioning,
    PhysicalPlan,
    PlannedNode,
    PlannedScan,
    PlannedSink,
    PlannedState,
    PlannedTime,
    Reader,
    RunnerKind,
)
from penstock.plan.physical.queries import event_times_of, needs_watermark, partition_sources, source_of
from penstock.plan.physical.query_planner import connector_queries, epoch_queries


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
    known: Mapping[str, Collection[str]] | None = None,
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
        nodes=tuple(_node(node, graph, lanes, runner) for node in graph.nodes),
        edges=tuple(_edge(source, node, graph) for node in graph.nodes for source in node.inputs),
        scans=tuple(_scan(prefix, graph, runner, kafka_reader) for prefix in lanes.prefixes.values()),
        queries=epoch_queries(graph, lanes, known) if in_epochs else connector_queries(graph, realtime=realtime),
        sinks=tuple(_sink(write.sink, graph.own_name(write), upstream(write), graph, runner) for write in graph.writes),
        rejected=_rejected(graph, runner),
    )


def _node(node: Node, graph: Graph, lanes: Lanes, runner: RunnerKind) -> PlannedNode:
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
        partitioning=_partitioning(node) if node.stateful else None,
        state=_state(node) if node.stateful else None,
        event_time=next((_time(time, runner) for time in graph.event_times if time == node), None),
        target=node.target or None,
        warning=node.warning or None,
    )


def _partitioning(node: Node) -> Partitioning:
    buckets = BUCKETS if node.bucketed else None
    return Partitioning("hash" if node.state_keys else "single", node.state_keys, buckets)


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
