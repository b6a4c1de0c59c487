"""Determinism: which rows and columns are the same when an epoch is computed again after a crash."""

from __future__ import annotations

from penstock.plan.graph import upstream
from penstock.plan.operators.node import Node


def nondeterministic_upstream(node: Node) -> Node | None:
    """Return the node, this one or upstream of it, whose rows may differ in a replay, if there is one."""
    return next((one for one in upstream(node) if not one.deterministic), None)


def replay_key(node: Node) -> tuple[str, ...]:
    """Return the columns that identify a result and are the same in a replay: keys and window bounds.

    Others may differ: a sum of doubles in its last bit, a list in its order, which of two equal rows was the first.
    Empty if rows are not the results of groups, or have none of their keys.
    """
    if node.group_columns or node.carried is None or not node.inputs:
        return node.group_columns
    named = set.intersection(*(set(replay_key(one)) for one in node.inputs))
    return tuple(name for name, source in node.carried.items() if source in named)


def varies_in_replay(node: Node) -> bool:
    """Return whether columns that are no keys may differ in a replay, and so may what is computed from them."""
    return any(one.group_columns and one.carried is None for one in upstream(node))
