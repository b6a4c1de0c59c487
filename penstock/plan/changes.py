"""What became of a job's state when its plan changed: the old plan and the new one, node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.errors import BadValue, choices
from penstock.plan.fingerprint import Described
from penstock.plan.process import ATTRIBUTE

# What becomes of a node: of its state, of a source or sink, or of one that has no past.
Fate = Literal["kept", "empty", "lost", "goes on", "added", "removed", "changed", "same"]
Plan = Mapping[str, Described]
_LEAVES = ("read", "write")


@dataclass(frozen=True)
class Change:
    """One node of either plan; `said` is what differs."""

    name: str
    label: str
    fate: Fate
    said: str = ""


@dataclass(frozen=True)
class Changes:
    """All nodes of both plans; those of the new plan come first."""

    nodes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return any(one.said for one in self.nodes)

    def of(self, *fates: Fate) -> tuple[str, ...]:
        """Return the names of the nodes with such a fate."""
        return tuple(one.name for one in self.nodes if one.fate in fates)

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
    """Compare two plans; a node is known by its name."""
    before = {name: _renamed(name, old, new) for name in new}
    found = [_compared(name, old.get(name), node, before[name]) for name, node in new.items()]
    gone = (name for name in old if name not in new and name not in before.values())
    found += [_gone(name, old[name], new) for name in gone]
    return Changes(tuple(found))


def check_names(allowed: Iterable[str], *plans: Plan) -> None:
    """Refuse to drop what is not there."""
    known = list(dict.fromkeys(name for plan in plans for name in plan))
    for name in allowed:
        if name not in known:
            message = f"there is no node '{name}' to drop"
            raise BadValue(message, node="--allow-drop", hint=choices("nodes", known, name))


def reached_anew(old: Plan, new: Plan, sinks: Collection[str]) -> list[str]:
    """Return those sinks that other rows reach now, or the same rows under another name."""
    changed = [name for name in sinks if name in new and _behind(name, old) != _behind(name, new)]
    renamed = [name for name in new if name not in old and _renamed(name, old, new)]
    return changed + renamed


def _compared(name: str, was: Described | None, node: Described, renamed: str | None) -> Change:
    label = _label(name, node)
    if was is None or was.kind != node.kind or not _same_place(was, node):
        if was is not None and was.meaning:
            return Change(name, label, "lost", f"was {_label(name, was)}")
        said = f"renamed from '{renamed}'" if renamed else "added" if was is None else f"was {was.does}"
        return Change(name, label, "empty" if node.meaning else "added" if node.kind in _LEAVES else "changed", said)
    if differs := _differs(was.meaning, node.meaning):
        return Change(name, label, "lost", differs)
    fate: Fate = "kept" if node.meaning else "goes on" if node.kind in _LEAVES else "same"
    return Change(name, label, fate, _said(was, node))


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
    return f"from {', '.join(was.inputs)} -> {', '.join(node.inputs)}" if was.inputs != node.inputs else ""


def _gone(name: str, node: Described, new: Plan) -> Change:
    if not node.meaning:
        said = f"removed: its rows stay in {node.place}" if node.place else "removed"
        return Change(name, _label(name, node), "removed" if node.kind in _LEAVES else "changed", said)
    twins = [other for other, one in new.items() if one.kind == node.kind and one.meaning == node.meaning]
    hint = f"; .named(\"{name}\") on '{twins[0]}' would keep it" if twins else ""
    return Change(name, _label(name, node), "lost", f"removed{hint}")


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


def _behind(name: str, plan: Plan) -> object:
    """Return all that decides which rows reach a node, whatever the nodes are called."""
    node = plan.get(name)
    return node and (node.code, [_behind(one, plan) for one in node.inputs])


def _label(name: str, node: Described) -> str:
    kind = {"read": "source", "write": "sink"}.get(node.kind, node.kind)
    return kind if name == node.kind else f"{kind} '{name}'"
