"""What differs between the plans of two versions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from penstock.control.api.differences import ChangedNode, Difference
from penstock.control.api.nodes import Node
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.requests.node_views import node_views

_COMPARED = ("kind", "label", "detail", "columns", "inputs", "lane", "target", "stateful")


def difference(before: Version, after: Version, allowed: Collection[str]) -> Difference:
    """Compare two versions; `allowed` are the nodes whose state the second one may lose."""
    old, new = _nodes(before), _nodes(after)
    lost, reasons = _state(before.plan or {}, after.plan or {})
    state: Literal["kept", "dropped", "refused"] = "kept"
    if lost:
        state = "dropped" if set(lost) <= set(allowed) else "refused"
    return Difference(
        version=before.number,
        to=after.number,
        added=[node for name, node in new.items() if name not in old],
        removed=[node for name, node in old.items() if name not in new],
        changed=list(_changed(old, new)),
        state=state,
        reasons=reasons,
    )


def _nodes(version: Version) -> dict[str, Node]:
    return {node.name: node for node in node_views(version.plan or {})}


def _changed(old: Mapping[str, Node], new: Mapping[str, Node]) -> Iterator[ChangedNode]:
    for name, after in new.items():
        before = old.get(name)
        what = [part for part in _COMPARED if before and getattr(before, part) != getattr(after, part)]
        if before is not None and what:
            yield ChangedNode(name=name, what=what, before=before, after=after)


def _state(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of nodes whose state is lost, and what becomes of state in words."""
    old, new = _stateful(before), _stateful(after)
    lost: list[str] = []
    reasons: list[str] = []
    taken = {id for id, node in new.items() if id in old}
    for id, node in old.items():
        found = new.get(id) or _same_meaning(node, new, taken)
        if found is None:
            lost.append(node["name"])
            reasons.append(f"{node['title']}: it is removed, and its state with it")
        elif found["state"]["fingerprint"] != node["state"]["fingerprint"]:
            lost.append(node["name"])
            parts = ", ".join(_parts(node["state"]["meaning"], found["state"]["meaning"]))
            reasons.append(f"{node['title']}: its state has another meaning now{f' ({parts})' if parts else ''}")
        elif found["id"] != id:
            taken.add(found["id"])
            reasons.append(f"{node['title']}: its state continues in {found['title']}")
    reasons += [f"{node['title']}: it starts with empty state" for id, node in new.items() if id not in {*old, *taken}]
    return lost, reasons


def _stateful(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {node["id"]: node for node in plan.get("nodes") or () if node.get("state")}


def _same_meaning(
    node: Mapping[str, Any], new: Mapping[str, Mapping[str, Any]], taken: Collection[str]
) -> Mapping[str, Any] | None:
    """Return the node that a node with an automatic name is now: of the same kind, with state of the same meaning."""
    if not node["id"].startswith(node["kind"]):
        return None
    fitting = (one for id, one in new.items() if id not in taken and id.startswith(one["kind"]))
    return next((one for one in fitting if one["state"]["fingerprint"] == node["state"]["fingerprint"]), None)


def _parts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name, '-')} -> {after.get(name, '-')}"
