"""The names of a plan's nodes: sources, operators and sinks are namespaces of their own.

A source or sink is named after what it touches, an operator after its method; where two operators would have the same
name, after the outputs they feed: `aggregate-prices`. What other branches do never moves a name from one node to
another, for state and counts belong to names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import Literal

from penstock.contracts import Sink
from penstock.errors import BadValue, DuplicateName
from penstock.plan.operators.node import Node

Space = Literal["source", "operator", "sink"]
Nodes = tuple[Node, ...]
# Internal sources that a query may have beside the user's.
RESERVED = ("clock", "wakeups")
LONGEST = 200
NAME_RULE = f"use letters, digits, '-', '_' and '.', not only dots, in up to {LONGEST} bytes"


def is_name(name: object) -> bool:
    """Return whether a node or a pipeline may have this name: it is also a part of file names.

    >>> is_name("größe.1"), is_name(".."), is_name("a/b")
    (True, False, False)
    """
    if not isinstance(name, str) or not name.strip(".") or len(name.encode(errors="replace")) > LONGEST:
        return False
    return all(sign.isalnum() or sign in "-_." for sign in name)


def space(kind: str) -> Space:
    """Return the namespace of a kind of node."""
    return "source" if kind == "read" else "sink" if kind == "write" else "operator"


def node_id(kind: str, name: str) -> str:
    """Return the id of a node in a checkpoint: unique in a plan.

    >>> node_id("read", "trades"), node_id("aggregate", "vwap"), node_id("write", "trades")
    ('source trades', 'vwap', 'sink trades')
    """
    return name if space(kind) == "operator" else f"{space(kind)} {name}"


def node_name(kind: str, id: str) -> str:
    """Return the name in an id; older checkpoints have names only."""
    return id if space(kind) == "operator" else id.removeprefix(f"{space(kind)} ")


def own_names(nodes: Nodes, rejected_to: Sink | None) -> dict[Node, str]:
    """Name every node; no two of a namespace have the same name."""
    names: dict[Node, str] = {}
    for node in nodes:
        if node.default_name:
            names[node] = node.default_name
    _check_spaces(names, rejected_to)
    names |= _automatic([node for node in nodes if node not in names], names)
    return {node: names[node] for node in nodes}


def public_names(names: Mapping[Node, str]) -> dict[Node, str]:
    """Return names that are unique among all nodes: where namespaces share one, the source has it, or the operator.

    The others are called `sink trades`, or by their kind. Counts and rejected rows have these names.
    """
    first: dict[str, Node] = {}
    for wanted in ("source", "operator", "sink"):
        for node, name in names.items():
            if space(node.kind) == wanted:
                first.setdefault(name, node)
    return {
        node: name if first[name] is node else f"{'sink' if space(node.kind) == 'sink' else node.kind} {name}"
        for node, name in names.items()
    }


def _check_spaces(names: Mapping[Node, str], rejected_to: Sink | None) -> None:
    for wanted in ("source", "operator", "sink"):
        mine = [node for node in names if space(node.kind) == wanted]
        counts = Counter(names[node] for node in mine)
        if wanted == "sink" and rejected_to is not None:
            counts[rejected_to.name] += 1
        for name, times in counts.items():
            if times > 1:
                same = [node for node in mine if names[node] == name]
                raise _rejected_clash(name, times) if times > len(same) else _clash(name, same, times)
        if wanted == "source" and (taken := [name for name in RESERVED if name in counts]):
            message = f"the name '{taken[0]}' is reserved for an internal source"
            raise BadValue(message, node=f"read '{taken[0]}'", hint='choose another name: .named("...")')


def _automatic(nodes: list[Node], given: Mapping[Node, str]) -> dict[Node, str]:
    """Name operators that the user did not name: after their method, or after that and the outputs they feed."""
    outputs = fed(nodes, given)
    taken = {name for node, name in given.items() if space(node.kind) == "operator"}
    found: dict[Node, str] = {}
    for kind in dict.fromkeys(node.kind for node in nodes):
        groups: dict[tuple[str, ...], list[Node]] = {}
        for node in (node for node in nodes if node.kind == kind):
            groups.setdefault(outputs[node], []).append(node)
        plain = len(groups) == 1 and kind not in taken
        for names, group in groups.items():
            found |= _numbered(kind if plain else f"{kind}-{','.join(names)}", group, taken)
    return found


def _numbered(base: str, group: list[Node], taken: set[str]) -> dict[Node, str]:
    """Name nodes of one method that feed the same outputs; only those without state get numbers."""
    if group[0].stateful and (base in taken or len(group) > 1):
        raise _clash(base, group, len(group) + (base in taken))
    numbers = (base if number == 1 else f"{base}_{number}" for number in count(1))
    free = (name for name in numbers if name not in taken)
    return {node: next(free) for node in group}


def fed(nodes: list[Node], names: Mapping[Node, str]) -> dict[Node, tuple[str, ...]]:
    """Return the outputs that each node feeds, sorted; late rows count only where a node has no other output."""
    main: dict[Node, set[str]] = {node: set() for node in nodes}
    late: dict[Node, set[str]] = {node: set() for node in nodes}
    for write, name in names.items():
        if space(write.kind) == "sink":
            _feed(write, name, main, late)
    return {node: tuple(sorted(main[node] or late[node])) for node in nodes}


def _feed(write: Node, name: str, main: dict[Node, set[str]], late: dict[Node, set[str]]) -> None:
    seen: set[tuple[Node, bool]] = set()
    waiting = [(one, False) for one in write.inputs]
    while waiting:
        found, is_late = waiting.pop()
        if (found, is_late) in seen:
            continue
        seen.add((found, is_late))
        if found in main:
            (late if is_late else main)[found].add(name)
        is_late = is_late or found.is_late_output
        waiting += [(one, is_late) for one in found.inputs]


def _clash(name: str, nodes: list[Node], times: int) -> DuplicateName:
    kinds = ", ".join(dict.fromkeys(node.kind for node in nodes))
    message = f"the name '{name}' is used {times} times ({kinds})"
    where = "they feed the same outputs: " if nodes and space(nodes[0].kind) == "operator" else ""
    hint = f'{where}give one of them a name of its own: .named("..."), so that state and counts are separate'
    if len({getattr(node, "relation", node) for node in nodes}) == 1 < len(nodes):
        hint = (
            "it is one view, and the keys of its outputs differ, so that it is maintained once for each: leave out "
            'key= of the sinks, or give it another name for one of them: view.named("...").to(sink)'
        )
    return DuplicateName(message, node=name, hint=hint)


def _rejected_clash(name: str, times: int) -> DuplicateName:
    message = f"the name '{name}' is used {times} times (write, rejected_to): one of them is the sink of rejected_to"
    hint = f'give the output a name of its own: .to(...).named("..."); rejected_to has that of its sink, {name!r}'
    return DuplicateName(message, node=name, hint=hint)
