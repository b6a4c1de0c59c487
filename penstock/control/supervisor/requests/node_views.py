"""The nodes of a stored plan as the REST API returns them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.control.api.nodes import Node, NodeCounts, NodeList, PlanPreview
from penstock.control.machine.states import JobState
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.nodes import NodeFigures
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.drivers.reports import seconds
from penstock.control.supervisor.requests.job_views import at, watermark
from penstock.control.supervisor.requests.plan_checks import CheckedPlan


def node_list(version: Version, job: Job, figures: NodeFigures | None) -> NodeList:
    """Return the nodes of a version with the figures of the newest epoch; a job that reads nothing has no rate."""
    found = figures.nodes if figures is not None else {}
    reads = job.state == JobState.RUNNING and (job.progress or {}).get("rows_in_per_s") != 0
    return NodeList(
        version=version.number,
        epoch=figures.epoch if figures is not None else None,
        at=at(figures.at) if figures is not None else None,
        items=node_views(
            version.plan or {}, {name: one | ({} if reads else {"rate": 0}) for name, one in found.items()}
        ),
    )


def node_views(plan: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]] | None = None) -> list[Node]:
    """Return the nodes of a physical plan, with the figures of each by name."""
    planned = plan.get("nodes") or []
    names = {node["id"]: node["name"] for node in planned}
    return [_node(node, names, (figures or {}).get(node["name"])) for node in planned]


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: found.get(name) for name in ("state_rows", "state_bytes", "rate", "backpressure")},
        **watermark(seconds(found.get("watermark"))),
        "counts": NodeCounts.model_validate(found),
    }


def _node(node: Mapping[str, Any], names: Mapping[str, str], figures: Mapping[str, Any] | None) -> Node:
    return Node(
        **(_figures(figures) if figures is not None else {}),
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
