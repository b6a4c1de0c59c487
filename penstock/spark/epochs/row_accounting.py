"""Where the rows of every node went in one epoch: rows in = used + filtered + late + rejected + duplicate + dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from penstock.plan.graph import Graph
from penstock.plan.operators.joins import late_name
from penstock.plan.operators.node import Node
from penstock.report import Counts, NodeProgress, Report, Watermark
from penstock.spark.tasks.totals import Totals, summed

RowCounts = dict[str, dict[str, int]]


def account_rows(graph: Graph, nodes: list[Node], staged: RowCounts, observed: Mapping[str, int]) -> RowCounts:
    """Put together what tasks counted (`staged`) and what Spark observed at the way out of nodes."""
    out: dict[Node, int] = {}
    counts: RowCounts = {}
    for node in nodes:
        name = graph.name(node)
        mine = _staged(node, staged, name)
        rows_in = _arrived(node, out, staged, observed, graph) if node.inputs else mine.get("rows_in", 0)
        found = {kind: mine.get(kind, 0) for kind in ("filtered", "late", "rejected", "dropped")}
        left = rows_in - sum(found.values())
        seen = observed.get(f"out:{name}")
        if node.counts_missing_as is not None and seen is not None:
            found[node.counts_missing_as] = left - seen
            left = seen
        counts[name] = {"rows_in": rows_in, "used": left, **found}
        out[node] = seen if (node.stateful or node.makes_rows) and seen is not None else left
    return counts


def _arrived(node: Node, out: Mapping[Node, int], staged: RowCounts, observed: Mapping[str, int], graph: Graph) -> int:
    if node.side_of is not None and node.side_name is not None:
        before = graph.name(node.side_of)
        if node.is_late_output:
            return staged.get(late_name(before, node.side_name), {}).get("late", 0)
        return observed.get(f"out:{before}:{node.side_name}", 0)
    return sum(out.get(source, 0) for source in node.inputs)


def _staged(node: Node, staged: RowCounts, name: str) -> dict[str, int]:
    """Return what tasks counted at a node; those of a join count its two sides apart."""
    mine = staged.get(name, {})
    if len(node.sides) < 2:
        return mine
    return mine | {"late": sum(staged.get(late_name(name, side), {}).get("late", 0) for side in node.sides)}


def build_report(
    newest: Iterable[Totals],
    graph: Graph,
    *,
    watermark: datetime | None = None,
    watermarks: tuple[Watermark, ...] = (),
    ended: bool = False,
) -> Report:
    """Put the totals of a run's queries together."""
    first = watermarks[0].at if watermarks else watermark
    report = Report(watermark=first, watermarks=watermarks, ended=ended)
    for totals in newest:
        report.epochs = max(report.epochs, totals.epochs)
        report.rows = summed(report.rows, totals.rows)
        for id, counted in totals.counts.items():
            report.counts[_public(id, graph)] = Counts(**counted)
    report.former_sinks = tuple(sorted(report.rows.keys() - _sinks(graph)))
    return report


def node_totals(totals: Totals, graph: Graph) -> dict[str, NodeProgress]:
    """Return the nodes of the graph that a query counts, with their counts over all epochs."""
    names = {graph.id(node): name for node, name in graph.names.items()}
    return {names[id]: NodeProgress(Counts(**one)) for id, one in totals.counts.items() if id in names}


def _sinks(graph: Graph) -> set[str]:
    return {graph.own_name(write) for write in graph.writes} | {one.name for one in (graph.rejected_to,) if one}


def _public(id: str, graph: Graph) -> str:
    """Return a node's name as reports have it; one that the plan does not have any more is called as it was."""
    names = {graph.id(node): name for node, name in graph.names.items()}
    bare = id.removeprefix("source ").removeprefix("sink ")
    return names.get(id) or (id if bare in names.values() else bare)
