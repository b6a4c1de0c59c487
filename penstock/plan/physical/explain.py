"""Plans as text (every node, its lane, the queries, the guarantee of each sink) and as Graphviz and Mermaid graphs."""

from __future__ import annotations

from penstock.durations import span_text
from penstock.plan.graph import Graph
from penstock.plan.operators.node import Node
from penstock.plan.physical.plan import PhysicalPlan, PlannedNode, PlannedQuery, PlannedTime

_ENDS = ("read", "write")


def explain(plan: PhysicalPlan) -> str:
    """Return a plan as text."""
    lines = [f"pipeline {plan.pipeline}", f"pace {plan.pace}: {plan.promise}", plan.overload_effect, ""]
    width = max(len(node.title) for node in plan.nodes)
    names = {node.id: node.name for node in plan.nodes}
    for node in plan.nodes:
        lines += _node(node, names, width)
    lines += ["", *(_watermark(node.event_time) for node in plan.nodes if node.event_time is not None)]
    lines += [_queries(plan) if plan.runner == "micro-batch" else _connector_queries(plan), *_sinks(plan)]
    return "\n".join(lines)


def _node(node: PlannedNode, names: dict[str, str], width: int) -> list[str]:
    head = f"  {node.title:<{width}}  {node.detail}"
    details = [f"from {', '.join(names[id] for id in node.inputs)}"] if node.inputs else []
    details += [f"to {node.target}"] if node.target else []
    if node.kind not in _ENDS:
        reason = f" ({node.reason})" if node.reason else ""
        details += [f"columns {', '.join(node.columns)}", f"lane {node.lane}{reason}"]
    details += [f"state {node.state.fingerprint}"] if node.state else []
    below = ["; ".join(details)] if details else []
    below += node.parts
    below += [f"warning: {node.warning}"] if node.warning else []
    return [head, *(f"  {'':<{width}}    {line}" for line in below)]


def _queries(plan: PhysicalPlan) -> str:
    found = [_query(query, plan) for query in plan.queries]
    if len(found) == 1:
        return f"one query, one scan of each source per epoch: {found[0]}"
    number = {2: "two", 3: "three"}.get(len(found), str(len(found)))
    why = "for Spark has one output mode and one watermark in each"
    shared = f"sources that {'both' if len(found) == 2 else 'several'} need are read by each"
    return f"{number} queries, {why}: {' and '.join(found)}; {shared}"


def _query(query: PlannedQuery, plan: PhysicalPlan) -> str:
    names = {sink.id: sink.name for sink in plan.sinks}
    kind = "updating results" if query.mode == "update" else "final results"
    return f"{kind} ({', '.join(names[id] for id in query.sinks)})"


def _connector_queries(plan: PhysicalPlan) -> str:
    names = ", ".join(sink.name for sink in plan.sinks)
    aside = "" if plan.rejected is None else "; one more for the rejected rows of each source"
    how = "in Spark alone, by its own Kafka connector (penstock jars fetch kafka)"
    return f"one query for each sink ({names}), {how}{aside}"


def _watermark(time: PlannedTime) -> str:
    """Return what the watermark of an event time follows, and what may be idle."""
    what, delay = f"watermark of {time.sources}.{time.column}", f"less {span_text(time.max_delay_us)}"
    if time.follows == "spark":
        return f"{what}: Spark's own, the largest time of all partitions together, {delay} (pace)"
    idle = time.idle_after_us
    if time.follows == "rows":
        left_out = "" if idle is None else f"; left out where sources meet after {span_text(idle)} without rows"
        return f"{what}: the largest time of all rows, {delay}{left_out}"
    silent = "holds it back (no idle_after)" if idle is None else f"is left out after {span_text(idle)}"
    return (
        f"{what}: per partition the largest time, {delay}; the smallest counts, a partition that falls silent {silent}"
    )


def _sinks(plan: PhysicalPlan) -> list[str]:
    lines = [f"sink '{sink.name}': {sink.guarantee}, {sink.guarantee_reason}" for sink in plan.sinks]
    rejected = plan.rejected
    if rejected is None:
        return [*lines, "rejected rows: counted only; Python that raises stops the job (no rejected_to)"]
    target = rejected.target or f"'{rejected.name}'"
    return [*lines, f"rejected rows: to {target}, {rejected.guarantee}, {rejected.guarantee_reason}"]


_SHAPES = {"read": ("cylinder", "[(", ")]"), "write": ("cylinder", "[(", ")]")}


def to_dot(name: str, graph: Graph) -> str:
    """Draw the plan for Graphviz."""
    lines = [f"digraph {_quote(name)} {{", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    ids = _ids(graph)
    for node in graph.nodes:
        shape = _SHAPES.get(node.kind, ("box", "", ""))[0]
        style = ", style=bold" if node.stateful else ""
        text = _quote(graph.label(node) + "\\n" + _short(node).replace("\\", "\\\\").replace('"', '\\"'))
        lines.append(f"  {ids[node]} [shape={shape}, label={text}{style}];")
    lines += [f"  {ids[source]} -> {ids[node]};" for node in graph.nodes for source in node.inputs]
    return "\n".join([*lines, "}"])


def to_mermaid(name: str, graph: Graph) -> str:
    """Draw the plan for Mermaid, as GitHub and most wikis show it."""
    lines = ["---", f"title: {name}", "---", "flowchart LR"]
    ids = _ids(graph)
    for node in graph.nodes:
        _, left, right = _SHAPES.get(node.kind, ("", "[[", "]]") if node.stateful else ("", "[", "]"))
        text = f"{graph.label(node)}<br/>{_mermaid(_short(node))}"
        lines.append(f'  {ids[node]}{left}"{text}"{right}')
    lines += [f"  {ids[source]} --> {ids[node]}" for node in graph.nodes for source in node.inputs]
    return "\n".join(lines)


def _ids(graph: Graph) -> dict[Node, str]:
    return {node: f"n{number}" for number, node in enumerate(graph.nodes)}


def _short(node: Node) -> str:
    return node.detail if len(node.detail) <= 90 else node.detail[:87] + "..."


def _quote(text: str) -> str:
    return f'"{text}"'


def _mermaid(text: str) -> str:
    for sign, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, code)
    return text
