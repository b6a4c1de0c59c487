"""Where the rows of every node went in one epoch: rows in = used + filtered + late + rejected + duplicate + dropped."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.explode import Explode
from penstock.plan.graph import Graph
from penstock.plan.joins import LATE, JoinTable, StreamJoin, late_name
from penstock.plan.node import Node
from penstock.plan.nodes import Filter, FlatMap, MapBatches, Read, Side
from penstock.plan.stateful import Deduplicate, Distinct

Counted = dict[str, dict[str, int]]


def tally(graph: Graph, nodes: list[Node], staged: Counted, observed: Mapping[str, int]) -> Counted:
    """Put together what tasks counted (`staged`) and what Spark observed at the way out of nodes."""
    out: dict[Node, int] = {}
    counts: Counted = {}
    for node in nodes:
        name = graph.name(node)
        mine = _staged(node, staged, name)
        rows_in = mine.get("rows_in", 0) if isinstance(node, Read) else _arrived(node, out, staged, observed, graph)
        found = {kind: mine.get(kind, 0) for kind in ("filtered", "late", "rejected", "dropped")}
        left = rows_in - sum(found.values())
        seen = observed.get(f"out:{name}")
        if isinstance(node, Filter | JoinTable) and seen is not None:
            found["filtered"] = left - seen
            left = seen
        if isinstance(node, Deduplicate | Distinct) and seen is not None:
            found["duplicate"] = left - seen
            left = seen
        counts[name] = {"rows_in": rows_in, "used": left, **found}
        makes_rows = node.stateful or isinstance(node, FlatMap | MapBatches | Explode)
        out[node] = seen if makes_rows and seen is not None else left
    return counts


def _arrived(node: Node, out: Mapping[Node, int], staged: Counted, observed: Mapping[str, int], graph: Graph) -> int:
    if isinstance(node, Side) and not node.put_aside:
        return observed.get(f"out:{graph.name(node.input)}:{node.output}", 0)
    if isinstance(node, Side):
        return staged.get(late_name(graph.name(node.input), node.output), {}).get("late", 0)
    return sum(out.get(source, 0) for source in node.inputs)


def _staged(node: Node, staged: Counted, name: str) -> dict[str, int]:
    """Return what tasks counted at a node; those of a join count its two sides apart."""
    mine = staged.get(name, {})
    if not isinstance(node, StreamJoin):
        return mine
    return mine | {"late": sum(staged.get(late_name(name, side), {}).get("late", 0) for side in LATE)}
