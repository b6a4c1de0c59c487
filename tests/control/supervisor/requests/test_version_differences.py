"""What differs between two versions, and what becomes of state."""

from __future__ import annotations

from typing import Any

from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.requests.version_differences import difference


def node(id: str, kind: str = "filter", *inputs: str, state: str | None = None, **fields: Any) -> dict[str, Any]:
    meaning = {"fingerprint": state, "meaning": {"window": state}} if state else None
    plain = {"name": id, "kind": kind, "title": f"{kind} '{id}'", "lane": "native", "detail": "n > 0", "columns": {}}
    return {"id": id, "inputs": list(inputs), "state": meaning, **plain, **fields}


def version(number: int, *nodes: dict[str, Any]) -> Version:
    return Version(job="j1", number=number, entry="a.py", digest="", plan={"nodes": list(nodes)})


def test_nodes_that_were_added_removed_and_changed_are_named() -> None:
    found = difference(
        version(1, node("read", "read"), node("small"), node("gone")),
        version(2, node("read", "read"), node("small", detail="n > 1"), node("new")),
        [],
    )
    assert ([one.name for one in found.added], [one.name for one in found.removed]) == (["new"], ["gone"])
    (changed,) = found.changed
    assert (changed.what, changed.before.detail, changed.after.detail) == (["detail"], "n > 0", "n > 1")
    assert (found.version, found.to, found.state, found.reasons) == (1, 2, "kept", [])


def test_state_with_another_meaning_is_refused_unless_it_was_allowed() -> None:
    before, after = (
        version(1, node("sums", "aggregate", state="60s")),
        version(2, node("sums", "aggregate", state="30s")),
    )
    refused = difference(before, after, [])
    assert (refused.state, refused.reasons) == (
        "refused",
        ["aggregate 'sums': its state has another meaning now (window: 60s -> 30s)"],
    )
    assert difference(before, after, ["sums"]).state == "dropped"
    assert difference(before, before, []).state == "kept"


def test_a_node_whose_automatic_name_changed_keeps_its_state() -> None:
    before = version(1, node("aggregate", "aggregate", state="60s"))
    after = version(2, node("aggregate-prices", "aggregate", state="60s"), node("more", "aggregate", state="10s"))
    found = difference(before, after, [])
    assert found.state == "kept"
    assert found.reasons == [
        "aggregate 'aggregate': its state continues in aggregate 'aggregate-prices'",
        "aggregate 'more': it starts with empty state",
    ]
    assert difference(before, version(2, node("filter")), []).state == "refused"
