"""The nodes of a stored plan as the REST API returns them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.control.api.nodes import Node, PlanPreview
from penstock.control.supervisor.requests.plan_checks import CheckedPlan


def node_views(plan: Mapping[str, Any]) -> list[Node]:
    """Return the nodes of a physical plan, without figures."""
    planned = plan.get("nodes") or []
    names = {node["id"]: node["name"] for node in planned}
    return [_node(node, names) for node in planned]


def _node(node: Mapping[str, Any], names: Mapping[str, str]) -> Node:
    return Node(
        name=node["name"],
        kind=node["kind"],
        label=node["title"],
        lane=node["lane"],
        reason=node.get("reason"),
        inputs=[names.get(id, id) for id in node.get("inputs") or ()],
        detail=node.get("detail") or "",
        columns=node.get("columns"),
        target=node.get("target"),
        warning=node.get("warning"),
        stateful=node.get("state") is not None,
    )


def preview(checked: CheckedPlan) -> PlanPreview:
    """Return a plan that was checked and not stored."""
    return PlanPreview(
        pipeline=checked.pipeline,
        plan=checked.plan,
        explain=checked.explain,
        nodes=node_views(checked.plan),
        warnings=list(_warnings(checked.plan)),
    )


def _warnings(plan: Mapping[str, Any]) -> Iterator[str]:
    for node in plan.get("nodes") or ():
        grows = not (node.get("state") or {}).get("bounded", True)
        warning = node.get("warning") or ("nothing removes entries from its state" if grows else None)
        if warning:
            yield f"{node['title']}: {warning}"
    for sink in plan.get("sinks") or ():
        if sink.get("guarantee") != "exactly_once":
            yield f"sink '{sink['name']}': {sink['guarantee']}, {sink['guarantee_reason']}"
