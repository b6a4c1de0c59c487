"""Names for the state inside of a query: after the table of WITH, or the subquery, that it belongs to.

A query that groups twice has two aggregates, and `.named()` cannot be called on the inner one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.plan.graph import upstream
from penstock.plan.operators.node import Node
from penstock.stream import Stream


def with_state_names(stream: Stream, inputs: Iterable[Stream], tables: Mapping[Node, str]) -> Stream:
    """Name state that would have the same name as another; the outermost has the name of its method.

    Without a clash, names do not change, and so state is kept.
    """
    given = {node for one in inputs for node in upstream(one.node)}
    mine = [node for node in upstream(stream.node) if node.stateful and node.name is None and node not in given]
    kinds = Counter(node.kind for node in mine)
    names = {node: _table_of(node, tables) for node in mine if kinds[node.kind] > 1}
    used = Counter((node.kind, name) for node, name in names.items())
    new = {
        node: name if _only(name, names) else f"{name}-{node.kind}"
        for node, name in names.items()
        if name is not None and used[node.kind, name] == 1
    }
    return Stream(_rebuilt(stream.node, new, given, {})) if new else stream


def _only(name: str | None, names: Mapping[Node, str | None]) -> bool:
    return list(names.values()).count(name) == 1


def _table_of(node: Node, tables: Mapping[Node, str]) -> str | None:
    """Return the innermost table that a node is in."""
    sizes = {name: len(list(upstream(top))) for top, name in tables.items() if node in upstream(top)}
    return min(sizes, key=lambda name: sizes[name], default=None)


def _rebuilt(node: Node, new: Mapping[Node, str], given: set[Node], done: dict[Node, Node]) -> Node:
    """Return a node over renamed ones; a node that several use is rebuilt once."""
    if node in given:
        return node
    if node not in done:
        inputs = tuple(_rebuilt(one, new, given, done) for one in node.inputs)
        changed = {"streams": inputs} if hasattr(node, "streams") else {"input": inputs[0]}
        done[node] = replace(node, name=new.get(node, node.name), **changed)
    return done[node]
