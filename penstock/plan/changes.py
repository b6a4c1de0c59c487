"""What became of a job's state when its plan changed: the old plan and the new one, node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.errors import BadValue, choices
from penstock.plan.fingerprint import Described
from penstock.plan.naming import node_id, node_name
from penstock.plan.process import ATTRIBUTE
from penstock.plan.renaming import REMOVED, behind, renamed, renames

# What becomes of a node: of its state, of a source or sink, or of one that has no past.
Fate = Literal["kept", "empty", "lost", "goes on", "added", "removed", "changed", "same"]
Plan = Mapping[str, Described]
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
        """The nodes that have state, read, write or changed, with what becomes of them."""
        shown = [one for one in self.nodes if one.said or one.fate != "same"]
        rows = [
            ("node", "state", "change"),
            *((one.label, _FATES.get(one.fate, "-"), one.said or "-") for one in shown),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}" for row in rows)

    @property
    def summary(self) -> str:
        """One line: what becomes of state, sources and sinks, and which other nodes changed."""
        parts = [
            f"state of {', '.join(found)} {said}"
            for fate, said in _STATE.items()
            if (found := [f"'{one.name}'" for one in self.nodes if one.fate == fate])
        ]
        parts += [f"{one.label} {one.said}" for one in self.nodes if one.said and one.fate in _EDGES]
        others = [f"'{one.name}'" for one in self.nodes if one.said and one.fate not in (*_STATE, *_EDGES)]
        return ", ".join([*parts, *([f"{', '.join(others)} changed"] if others else [])])


_STATE: dict[Fate, str] = {"kept": "kept", "empty": "begins empty", "lost": "dropped"}
_EDGES: tuple[Fate, ...] = ("goes on", "added", "removed")
_FATES: dict[Fate, str] = {"kept": "kept", "empty": "begins empty", "lost": "LOST", "goes on": "goes on"}


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
    """Say how a node with state was called before."""
    if earlier is None or change.fate not in ("kept", "lost"):
        return change
    return replace(change, said="; ".join(filter(None, [f"it was called '{earlier}'", change.said])))


def check_names(allowed: Iterable[str], *plans: Plan) -> None:
    """Refuse to drop what is not there."""
    known = list(dict.fromkeys(node_name(node.kind, id) for plan in plans for id, node in plan.items()))
    for name in allowed:
        if name not in known:
            message = f"there is no node '{name}' to drop"
            raise BadValue(message, node="--allow-drop", hint=choices("nodes", known, name))


def reached_anew(old: Plan, new: Plan, sinks: Collection[str]) -> list[str]:
    """Return those sinks that other rows reach now, or the same rows under another name."""
    ids = {node_id("write", name): name for name in sinks}
    changed = [name for id, name in ids.items() if id in new and behind(id, old) != behind(id, new)]
    renamed = [node_name("write", id) for id in new if id not in old and _renamed(id, old, new)]
    return changed + renamed


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
    fate = "kept" if node.meaning else "goes on" if node.kind in _LEAVES else "same"
    return Change(name, label, fate, _said(was, node), reads)


def _said(was: Described, node: Described) -> str:
    """Say what differs between two nodes whose state, if any, is the same."""
    if was.place and node.place and was.place != node.place:
        return f"moved from {was.place}, where its earlier rows stay, to {node.place}"
    if was.does != node.does:
        head = was.does.partition(": ")[0] + ": "
        shared = head if was.does.startswith(head) and node.does.startswith(head) else ""
        return f"{was.does.removeprefix(shared)} -> {node.does.removeprefix(shared)}"
    if was.code != node.code:
        return "writes otherwise than before" if node.kind == "write" else "its code changed"
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
    """Say whether it is an attribute that only one plan has: the state of the others is what it was."""
    return part.startswith(ATTRIBUTE) and not (part in was and part in now)


def _renamed(name: str, old: Plan, new: Plan) -> str | None:
    """Return the old name of a sink that writes the same to the same place."""
    node = new[name]
    if node.kind != "write" or name in old:
        return None
    was = (other for other, one in old.items() if other not in new and one.kind == "write" and one.code == node.code)
    return next(was, None)


def _label(id: str, node: Described) -> str:
    kind, name = {"read": "source", "write": "sink"}.get(node.kind, node.kind), node_name(node.kind, id)
    return kind if name == node.kind else f"{kind} '{name}'"
