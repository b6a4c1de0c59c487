"""What an epoch that is computed again after a crash has in common with its first try."""

from __future__ import annotations

from penstock.plan.graph import upstream
from penstock.plan.node import Node
from penstock.plan.nodes import Drop, EventTime, Filter, PythonNode, Rename, Select, WithColumns
from penstock.plan.stateful import Deduplicate, Grouped, Top
from penstock.schema import bare


def varying(node: Node) -> Node | None:
    """Return the node, at or before this one, whose rows may differ in a replay, if there is one."""
    return next((n for n in upstream(node) if isinstance(n, PythonNode) and not n.deterministic), None)


def naming_columns(node: Node) -> tuple[str, ...]:
    """Return the columns that name a result and are the same in a replay: keys and window bounds.

    Others may differ: a sum of doubles in its last bit, a list in its order, which of two equal rows was the first.
    Empty if rows are not the results of groups.
    """
    match node:
        case Grouped():
            return node.keys + node.window_columns + (("rank",) if isinstance(node, Top) else ())
        case Deduplicate():
            return node.keys
        case Rename():
            new = {old: name for name, old in node.names}
            return tuple(new.get(name, name) for name in naming_columns(node.input))
        case Select():
            named = naming_columns(node.input)
            return tuple(name for name, sql in node.columns if bare(sql) in named)
        case WithColumns():
            computed = {name for name, _ in node.columns}
            return tuple(name for name in naming_columns(node.input) if name not in computed)
        case Filter() | Drop() | EventTime():
            return tuple(name for name in naming_columns(node.input) if name in node.schema.names)
    return ()
