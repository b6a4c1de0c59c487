"""Which nodes of an old plan are which of a new one, where their automatic names differ.

The name of an operator tells its method, and its outputs where another branch has the same method. So the first branch
that brings one more of a kind changes how the others are called. They are still the same nodes: they feed the same
outputs, and keep their state and counts. A name that the author gave is never taken for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.plan.fingerprint import Described
from penstock.plan.naming import node_id, node_name, space

Plan = Mapping[str, Described]
Outputs = frozenset[str]
# After the id of a node that is gone, where another has it now.
REMOVED = " (removed)"


def by_ids(plan: Plan) -> dict[str, Described]:
    """Return a plan by the ids of its nodes; older checkpoints have it by their names."""
    ids = {name: node_id(node.kind, node_name(node.kind, name)) for name, node in plan.items()}
    return {ids[name]: replace(node, inputs=[ids.get(one, one) for one in node.inputs]) for name, node in plan.items()}


def renames(old: Plan, new: Plan) -> dict[str, str]:
    """Return the ids that operators of the old plan have in the new one, where they are others."""
    before, after = _automatic(old), _automatic(new)
    pairs: dict[str, str] = {}
    for kind in dict.fromkeys(new[name].kind for name in after):
        was = {name: fed for name, fed in before.items() if old[name].kind == kind}
        now = {name: fed for name, fed in after.items() if new[name].kind == kind}
        same = lambda a, b: behind(a, old) == behind(b, new)  # noqa: E731
        pairs |= _paired(was, now, same)
    found = {name: other for name, other in pairs.items() if name != other}
    # What is gone must not be taken for what has its name now.
    gone = [name for name in before if name not in pairs and name in after]
    return found | {name: name + REMOVED for name in gone}


def behind(name: str, plan: Plan) -> object:
    """Return all that decides which rows reach a node, whatever the nodes are called."""
    node = plan.get(name)
    return node and (node.code, [behind(one, plan) for one in node.inputs])


def renamed(plan: Plan, names: Mapping[str, str]) -> dict[str, Described]:
    """Return a plan with other ids."""
    return {
        names.get(name, name): replace(node, inputs=[names.get(one, one) for one in node.inputs])
        for name, node in plan.items()
    }


def _automatic(plan: Plan) -> dict[str, Outputs]:
    """Return the operators that have no name of their own, each with the outputs it feeds: their names and places."""
    main, late = _fed(plan, aside=False), _fed(plan, aside=True)
    mine = [name for name, node in plan.items() if space(node.kind) == "operator" and _is_automatic(name, node)]
    outputs = {name: main.get(name) or late.get(name) or set() for name in mine}
    return {name: frozenset({*fed, *(plan[sink].place for sink in fed)} - {""}) for name, fed in outputs.items()}


def _is_automatic(name: str, node: Described) -> bool:
    if node.named is not None:
        return not node.named
    return name == node.kind or name.startswith((f"{node.kind}-", f"{node.kind}_"))


def _fed(plan: Plan, *, aside: bool) -> dict[str, set[str]]:
    """Return the sinks that each node feeds; with `aside`, those of late rows too."""
    found: dict[str, set[str]] = {}
    for sink, node in plan.items():
        waiting = list(node.inputs) if node.kind == "write" else []
        while waiting:
            name = waiting.pop()
            one = plan.get(name)
            if one is None or sink in found.setdefault(name, set()):
                continue
            found[name].add(sink)
            if aside or not (one.kind == "side" and one.does.startswith("late")):
                waiting += one.inputs
    return found


def _paired(was: dict[str, Outputs], now: dict[str, Outputs], same: Callable[[str, str], bool]) -> dict[str, str]:
    """Pair nodes of one kind: those that feed the same outputs, that share some with no other, or do the same."""
    pairs: dict[str, str] = {}

    def take(fits: Callable[[str, str], bool]) -> None:
        for one in [name for name in was if name not in pairs]:
            other = next((name for name in now if name not in pairs.values() and fits(one, name)), None)
            if other is not None:
                pairs[one] = other

    take(lambda a, b: was[a] == now[b] and same(a, b))
    take(lambda a, b: was[a] == now[b])
    rest, free = [a for a in was if a not in pairs], [b for b in now if b not in pairs.values()]
    shared = {a: [b for b in free if was[a] & now[b]] for a in rest}
    for one, others in shared.items():
        if len(others) == 1 and sum(others[0] in them for them in shared.values()) == 1:
            pairs[one] = others[0]
    take(same)
    return pairs
