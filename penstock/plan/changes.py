"""State compatibility: what happens to a job's state when its plan changed, node by node.

An automatic name has the operator's method, and its outputs where another branch has the same method. So a new branch
may change the automatic names of others. Those are still the same nodes: they feed the same outputs, and keep their
state and counts. A name that the author gave is never matched with another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.errors import BadValue, choices
from penstock.plan.fingerprint import Described
from penstock.plan.naming import node_id, node_name, space
from penstock.plan.operators.process import ATTRIBUTE

Plan = Mapping[str, Described]
Outputs = frozenset[str]
# Suffix of the id of a removed node, where another node has this id now.
REMOVED = " (removed)"


def by_ids(plan: Plan) -> dict[str, Described]:
    """Return a plan by the ids of its nodes; older checkpoints have it by names."""
    ids = {name: node_id(node.kind, node_name(node.kind, name)) for name, node in plan.items()}
    return {ids[name]: replace(node, inputs=[ids.get(one, one) for one in node.inputs]) for name, node in plan.items()}


def renames(old: Plan, new: Plan) -> dict[str, str]:
    """Return the changed ids of operators: old -> new."""
    before, after = _automatically_named(old), _automatically_named(new)
    pairs: dict[str, str] = {}
    for kind in dict.fromkeys(new[name].kind for name in after):
        was = {name: fed for name, fed in before.items() if old[name].kind == kind}
        now = {name: fed for name, fed in after.items() if new[name].kind == kind}
        same = lambda a, b: lineage_of(a, old) == lineage_of(b, new)  # noqa: E731
        pairs |= _paired(was, now, same)
    found = {name: other for name, other in pairs.items() if name != other}
    # A removed node must not be matched with a new one of the same name.
    gone = [name for name in before if name not in pairs and name in after]
    return found | {name: name + REMOVED for name in gone}


def lineage_of(name: str, plan: Plan) -> object:
    """Return all that decides which rows reach a node, without the names of nodes."""
    node = plan.get(name)
    return node and (node.code, [lineage_of(one, plan) for one in node.inputs])


def renamed(plan: Plan, names: Mapping[str, str]) -> dict[str, Described]:
    """Return a plan with other ids."""
    return {
        names.get(name, name): replace(node, inputs=[names.get(one, one) for one in node.inputs])
        for name, node in plan.items()
    }


def _automatically_named(plan: Plan) -> dict[str, Outputs]:
    """Return the operators with automatic names, each with the outputs it feeds: their names and targets."""
    main, late = _fed(plan, with_late=False), _fed(plan, with_late=True)
    mine = [name for name, node in plan.items() if space(node.kind) == "operator" and _is_automatic(name, node)]
    outputs = {name: main.get(name) or late.get(name) or set() for name in mine}
    return {name: frozenset({*fed, *(plan[sink].place for sink in fed)} - {""}) for name, fed in outputs.items()}


def _is_automatic(name: str, node: Described) -> bool:
    if node.named is not None:
        return not node.named
    return name == node.kind or name.startswith((f"{node.kind}-", f"{node.kind}_"))


def _fed(plan: Plan, *, with_late: bool) -> dict[str, set[str]]:
    """Return the sinks that each node feeds; with `with_late`, also those of late rows."""
    found: dict[str, set[str]] = {}
    for sink, node in plan.items():
        waiting = list(node.inputs) if node.kind == "write" else []
        while waiting:
            name = waiting.pop()
            one = plan.get(name)
            if one is None or sink in found.setdefault(name, set()):
                continue
            found[name].add(sink)
            if with_late or not (one.kind == "side" and one.does.startswith("late")):
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


# What happens to the state of a node, to a source or sink, or to a new node.
Fate = Literal["kept", "empty", "lost", "continues", "added", "removed", "changed", "same"]
_LEAVES = ("read", "write")


@dataclass(frozen=True)
class Change:
    """One node of either plan: its name among the sources, operators or sinks, and what differs."""

    name: str
    label: str
    fate: Fate
    said: str = ""
    is_source: bool = False


@dataclass(frozen=True)
class Changes:
    """All nodes of both plans, those of the new plan first; `renames` are the old ids of nodes, with the new ones."""

    nodes: tuple[Change, ...]
    renames: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(one.said for one in self.nodes)

    def of(self, *fates: Fate) -> tuple[str, ...]:
        """Return the names of the nodes with such a fate."""
        return tuple(one.name for one in self.nodes if one.fate in fates)

    @property
    def new_sources(self) -> tuple[str, ...]:
        """The sources that the old plan did not read."""
        return tuple(one.name for one in self.nodes if one.fate == "added" and one.is_source)

    @property
    def table(self) -> str:
        """The nodes that have state, read, write or changed, with what happens to them."""
        shown = [one for one in self.nodes if one.said or one.fate != "same"]
        rows = [
            ("node", "state", "change"),
            *((one.label, _FATES.get(one.fate, "-"), one.said or "-") for one in shown),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}" for row in rows)

    @property
    def summary(self) -> str:
        """One line: what happens to state, sources and sinks, and which other nodes changed."""
        parts = [
            f"state of {', '.join(found)} {said}"
            for fate, said in _STATE.items()
            if (found := [f"'{one.name}'" for one in self.nodes if one.fate == fate])
        ]
        parts += [f"{one.label} {one.said}" for one in self.nodes if one.said and one.fate in _EDGES]
        others = [f"'{one.name}'" for one in self.nodes if one.said and one.fate not in (*_STATE, *_EDGES)]
        return ", ".join([*parts, *([f"{', '.join(others)} changed"] if others else [])])


_STATE: dict[Fate, str] = {"kept": "kept", "empty": "starts empty", "lost": "dropped"}
_EDGES: tuple[Fate, ...] = ("continues", "added", "removed")
_FATES: dict[Fate, str] = {"kept": "kept", "empty": "starts empty", "lost": "LOST", "continues": "continues"}


def compare(old: Plan, new: Plan) -> Changes:
    """Compare two plans; a node is known by its id, and one that has an automatic name by what it feeds as well."""
    moved = renames(old, new)
    old, earlier = renamed(old, moved), {new: old for old, new in moved.items()}
    before = {name: _renamed(name, old, new) for name in new}
    found = [_compared(name, old.get(name), node, before[name]) for name, node in new.items()]
    found = [_called(one, earlier.get(one.name)) for one in found]
    gone = (name for name in old if name not in new and name not in before.values())
    found += [_gone(name, old[name], new) for name in gone]
    return Changes(tuple(found), moved)


def _called(change: Change, earlier: str | None) -> Change:
    """Add the former name of a node with state."""
    if earlier is None or change.fate not in ("kept", "lost"):
        return change
    return replace(change, said="; ".join(filter(None, [f"formerly '{earlier}'", change.said])))


def check_names(allowed: Iterable[str], *plans: Plan) -> None:
    """Refuse to drop an unknown node."""
    known = list(dict.fromkeys(node_name(node.kind, id) for plan in plans for id, node in plan.items()))
    for name in allowed:
        if name not in known:
            message = f"unknown node '{name}'"
            raise BadValue(message, node="--allow-drop", hint=choices("nodes", known, name))


def sinks_with_new_lineage(old: Plan, new: Plan, sinks: Collection[str]) -> list[str]:
    """Return the sinks that get other rows now, or the same rows under another name."""
    ids = {node_id("write", name): name for name in sinks}
    changed = [name for id, name in ids.items() if id in new and lineage_of(id, old) != lineage_of(id, new)]
    renamed = [node_name("write", id) for id in new if id not in old and _renamed(id, old, new)]
    return changed + renamed


def sinks_with_new_target(old: Plan, new: Plan) -> list[str]:
    """Return the sinks that write to another place now, whose ledger does not know what the old place has."""
    both = [(id, node, new[id]) for id, node in old.items() if node.kind == "write" and id in new]
    return [node_name("write", id) for id, was, now in both if was.place and now.place and was.place != now.place]


def _compared(id: str, was: Described | None, node: Described, renamed: str | None) -> Change:
    name, label, reads = node_name(node.kind, id), _label(id, node), node.kind == "read"
    if was is None or was.kind != node.kind or not _same_place(was, node):
        if was is not None and was.meaning:
            return Change(name, label, "lost", f"was {_label(id, was)}")
        earlier = node_name("write", renamed) if renamed else None
        said = f"renamed from '{earlier}'" if renamed else "added" if was is None else f"was {was.does}"
        fate: Fate = "empty" if node.meaning else "added" if node.kind in _LEAVES else "changed"
        return Change(name, label, fate, said, reads)
    if differs := _differs(was.meaning, node.meaning):
        return Change(name, label, "lost", differs)
    fate = "kept" if node.meaning else "continues" if node.kind in _LEAVES else "same"
    return Change(name, label, fate, _difference(was, node), reads)


def _difference(was: Described, node: Described) -> str:
    """Return the difference of two nodes whose state, if any, is the same."""
    if was.place and node.place and was.place != node.place:
        return f"moved from {was.place}, where its earlier rows stay, to {node.place}"
    if was.does != node.does:
        head = was.does.partition(": ")[0] + ": "
        shared = head if was.does.startswith(head) and node.does.startswith(head) else ""
        return f"{was.does.removeprefix(shared)} -> {node.does.removeprefix(shared)}"
    if was.code != node.code:
        return "has other options" if node.kind == "write" else "its code changed"
    return f"from {_inputs(was)} -> {_inputs(node)}" if was.inputs != node.inputs else ""


def _inputs(node: Described) -> str:
    return ", ".join(id.removeprefix("source ") for id in node.inputs)


def _gone(id: str, node: Described, new: Plan) -> Change:
    id = id.removesuffix(REMOVED)
    name = node_name(node.kind, id)
    if not node.meaning:
        said = f"removed: its rows stay in {node.place}" if node.place else "removed"
        return Change(name, _label(id, node), "removed" if node.kind in _LEAVES else "changed", said)
    twins = [other for other, one in new.items() if one.kind == node.kind and one.meaning == node.meaning]
    hint = f"; .named(\"{name}\") on '{twins[0]}' would keep it" if twins else ""
    return Change(name, _label(id, node), "lost", f"removed{hint}")


def _same_place(was: Described, node: Described) -> bool:
    """A source of another kind under an old name has other offsets; a sink is what it writes to."""
    return node.kind != "read" or was.does.split(" ")[0] == node.does.split(" ")[0]


def _differs(was: dict[str, str], now: dict[str, str]) -> str:
    parts = [part for part in {**was, **now} if was.get(part) != now.get(part) and not _attribute(part, was, now)]
    return "; ".join(f"{part}: {was.get(part, 'none')} -> {now.get(part, 'none')}" for part in parts)


def _attribute(part: str, was: dict[str, str], now: dict[str, str]) -> bool:
    """Return whether it is an attribute that only one plan has: the state of the others is what it was."""
    return part.startswith(ATTRIBUTE) and not (part in was and part in now)


def _renamed(name: str, old: Plan, new: Plan) -> str | None:
    """Return the old name of a sink that writes the same to the same target."""
    node = new[name]
    if node.kind != "write" or name in old:
        return None
    was = (other for other, one in old.items() if other not in new and one.kind == "write" and one.code == node.code)
    return next(was, None)


def _label(id: str, node: Described) -> str:
    kind, name = {"read": "source", "write": "sink"}.get(node.kind, node.kind), node_name(node.kind, id)
    return kind if name == node.kind else f"{kind} '{name}'"
