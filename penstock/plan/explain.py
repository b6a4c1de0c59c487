"""Plans as text: every node, its lane, its queries, and what each sink really gets."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.contracts import Guarantee, Sink
from penstock.durations import span_text
from penstock.plan.fingerprint import fingerprint
from penstock.plan.graph import Graph, upstream
from penstock.plan.lanes import Lanes, split_lanes
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, Read, Write
from penstock.plan.overload import Overload, overload_text
from penstock.plan.pace import PROMISES, Pace, in_spark_alone
from penstock.plan.queries import Group, groups, partition_sources, source_of
from penstock.plan.replay import varying


def explain(
    name: str, graph: Graph, lane: str = "auto", pace: Pace = "throughput", overload: Overload = "block"
) -> str:
    """Print a plan."""
    alone = pace == "realtime" or (pace == "fast" and in_spark_alone(graph))
    lanes = split_lanes(graph, "spark", why=f"pace is {pace}") if alone else split_lanes(graph, lane)
    lines = [f"pipeline {name}", f"pace {pace}: {PROMISES[pace]}", overload_text(overload, graph), ""]
    width = max(len(graph.label(node)) for node in graph.nodes)
    for node in graph.nodes:
        lines += _node(node, graph, lanes, width)
    lines += ["", *(_watermark(node, alone=alone) for node in graph.nodes if isinstance(node, EventTime))]
    lines += [*(_connected_queries(graph) if alone else _queries(graph)), *_sinks(graph, alone=alone)]
    return "\n".join(lines)


def _node(node: Node, graph: Graph, lanes: Lanes, width: int) -> list[str]:
    head = f"  {graph.label(node):<{width}}  {node.detail}"
    notes = []
    if node.inputs:
        notes.append(f"from {', '.join(graph.name(source) for source in node.inputs)}")
    if isinstance(node, Write) and (place := node.sink.goes_to()):
        notes.append(f"to {place}")
    if not isinstance(node, Read | Write):
        notes.append(f"columns {', '.join(node.schema.names)}")
        reason = f" ({lanes.reasons[node]})" if node in lanes.reasons else ""
        notes.append(f"lane {lanes.lane(node)}{reason}")
    if node.stateful:
        notes.append(f"state {fingerprint(node)}")
    below = ["; ".join(notes)] if notes else []
    below += [f"warning: {node.warning}"] if node.warning else []
    return [head, *(f"  {'':<{width}}    {line}" for line in below)]


def _queries(graph: Graph) -> list[str]:
    found = [_query(group, graph) for group in groups(graph)]
    if len(found) == 1:
        return [f"one query, one scan of each source per epoch: {found[0]}"]
    number = {2: "two", 3: "three"}.get(len(found), str(len(found)))
    why = "for Spark has one output mode and one watermark in each"
    shared = f"sources that {'both' if len(found) == 2 else 'several'} need are read by each"
    return [f"{number} queries, {why}: {' and '.join(found)}; {shared}"]


def _query(group: Group, graph: Graph) -> str:
    kind = "updating results" if group.updating else "final results"
    return f"{kind} ({', '.join(graph.own_name(write) for write in group.writes)})"


def _connected_queries(graph: Graph) -> list[str]:
    names = ", ".join(graph.own_name(write) for write in graph.writes)
    aside = "" if graph.rejected_to is None else "; one more for the rejected rows of each source"
    how = "in Spark alone, by its own Kafka connector (penstock jars fetch kafka)"
    return [f"one query for each sink ({names}), {how}{aside}"]


def _watermark(time: EventTime, *, alone: bool) -> str:
    """Say what the watermark of an event time follows, and what may be left out."""
    what, delay = f"watermark of {source_of(time)}.{time.column}", f"less {span_text(time.max_delay_us)}"
    if alone:
        return f"{what}: Spark's own, the largest time of all partitions together, {delay} (pace)"
    idle = time.idle_after_us
    if not partition_sources(time):
        left_out = "" if idle is None else f"; left out where sources meet after {span_text(idle)} without rows"
        return f"{what}: the largest time of all rows, {delay}{left_out}"
    silent = "holds it back (no idle_after)" if idle is None else f"is left out after {span_text(idle)}"
    return (
        f"{what}: per partition the largest time, {delay}; the smallest counts, a partition that falls silent {silent}"
    )


def _sinks(graph: Graph, *, alone: bool) -> list[str]:
    lines = []
    for write in graph.writes:
        guarantee, why = guaranteed(write.sink, upstream(write), graph, alone=alone)
        lines.append(f"sink '{graph.own_name(write)}': {guarantee}, {why}")
    if graph.rejected_to is None:
        return [*lines, "rejected rows: counted only; Python that raises stops the job (no rejected_to)"]
    place = graph.rejected_to.goes_to() or f"'{graph.rejected_to.name}'"
    guarantee, why = guaranteed(graph.rejected_to, graph.nodes, graph, alone=alone)
    return [*lines, f"rejected rows: to {place}, {guarantee}, {why}"]


def guaranteed(sink: Sink, nodes: Iterable[Node], graph: Graph, *, alone: bool) -> tuple[Guarantee, str]:
    """Return what a sink behind these nodes really gives, and why: what is weakest on the way decides."""
    found = list(nodes)
    lost = [node for node in found if isinstance(node, Read) and not node.source.replayable]
    if lost:
        return "at_most_once", f"source '{graph.name(lost[0])}' cannot be read again after a crash"
    if alone:
        return "at_least_once", "Spark's own connector writes it without a ledger (pace)"
    varies = next((node for node in found if varying(node) is node), None)
    if varies is None:
        return sink.guarantee, sink.why
    staged = f"rows wait in the checkpoint until all sinks have them, for {graph.label(varies)} is not deterministic"
    return sink.guarantee, f"{sink.why}; {staged}"
