"""The incremental graph: collections of values by key that follow their leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Literal

import numpy as np

from penstock.errors import BadFunction, BadValue, DuplicateName, choices, whole_number
from penstock.incremental.graph import additive_folds, drawing
from penstock.incremental.graph.additive_folds import Additive, AdditiveFold
from penstock.incremental.graph.cells import Change, Cutoff
from penstock.incremental.graph.elementwise import Filter, Map, Map2
from penstock.incremental.graph.extremes import Extreme
from penstock.incremental.graph.folds import Distinct, Fold
from penstock.incremental.graph.joins import Join
from penstock.incremental.graph.key_index import KeyIndex
from penstock.incremental.graph.leaves import Leaf
from penstock.incremental.graph.nodes import Function, Node

Kind = Literal["sum", "count", "mean", "vwap", "min", "max", "top"]
_ADDITIVE = {
    "sum": additive_folds.total,
    "count": additive_folds.count,
    "mean": additive_folds.mean,
    "vwap": additive_folds.vwap,
}
_ORDERED = ("min", "max", "top")


@dataclass(frozen=True)
class Stats:
    """What one stabilization did: keys set in leaves, keys computed, keys cut off, nodes visited, seconds."""

    dirty: int
    recomputed: int
    cut_off: int
    nodes: int
    seconds: float


class Graph:
    """An incremental graph in this process: results that follow their leaves by work in proportion to what changed.

    A node is a collection of values by key. Functions get NumPy arrays with the values of all keys that changed, and
    return an array of the same length; they are called once for a stabilization, not once for a key.

    >>> import penstock as ps
    >>> graph = ps.Graph()
    >>> price, size = graph.leaf("price"), graph.leaf("size", int)
    >>> amount = graph.map2(price, size, lambda price, size: price * size)
    >>> total = graph.incr_fold(amount, "sum")
    >>> graph.set(price, ["A", "B"], [10.0, 20.0])
    >>> graph.set(size, ["A", "B"], [1, 2])
    >>> stats = graph.stabilize()
    >>> float(total.value)
    50.0
    >>> graph.set(price, "A", 11.0)
    >>> graph.stabilize().recomputed, float(total.value)
    (2, 51.0)
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._dependents: dict[Node, list[Node]] = {}
        self._numbers: dict[Node, int] = {}
        self._failed = False

    def leaf(
        self,
        name: str,
        dtype: Any = float,
        *,
        like: Node | None = None,
        cutoff: Cutoff | None = None,
    ) -> Node:
        """Add a collection whose values are set by `set`.

        `dtype` is a NumPy type, or a dict of them for records: {"price": float, "size": int}. `like` is a node with the
        same keys: then `map2` of both need not look them up. `cutoff(old, new)` returns which new values are to be
        ignored, instead of those that are equal.
        """
        fields = list(dtype.items()) if isinstance(dtype, Mapping) else dtype
        index = KeyIndex() if like is None else self._known(like).cells.index
        return self._added(Leaf(name, np.dtype(fields), index, cutoff))

    def map(self, node: Node, function: Function, *, name: str | None = None, cutoff: Cutoff | None = None) -> Node:
        """Add a function of each value: `function(values)`."""
        return self._added(Map(self._name(name, "map"), self._known(node), function, cutoff))

    def map2(
        self, left: Node, right: Node, function: Function, *, name: str | None = None, cutoff: Cutoff | None = None
    ) -> Node:
        """Add a function of the values that two nodes have for the same key: `function(left_values, right_values)`."""
        return self._added(Map2(self._name(name, "map2"), self._known(left), self._known(right), function, cutoff))

    def filter(self, node: Node, function: Function, *, name: str | None = None, cutoff: Cutoff | None = None) -> Node:
        """Add the values for which `function(values)` is true."""
        return self._added(Filter(self._name(name, "filter"), self._known(node), function, cutoff))

    def fold(
        self,
        node: Node,
        function: Function,
        *,
        by: Function | None = None,
        name: str | None = None,
        cutoff: Cutoff | None = None,
    ) -> Node:
        """Add a function of all values of a group, computed again when one of them changes: `function(values)`.

        It returns one value, and must not depend on the order. `by(keys, values)` returns the group of each value;
        without it there is one group, whose result is `node.value`. Use `incr_fold` where it can compute the same.
        """
        return self._added(Fold(self._name(name, "fold"), self._known(node), function, by, cutoff))

    def incr_fold(
        self,
        node: Node,
        kind: Kind | None = None,
        *,
        n: int = 1,
        lift: Function | None = None,
        finish: Function | None = None,
        add: np.ufunc = np.add,
        remove: np.ufunc = np.subtract,
        by: Function | None = None,
        name: str | None = None,
        cutoff: Cutoff | None = None,
    ) -> Node:
        """Add a fold whose cost depends on the number of changes, not on the size of groups.

        `kind` is "sum", "count", "mean", "vwap" (of records with `price` and `size`), "min", "max" or "top" (the `n`
        largest values, as records of `count` and `values`). For another one pass `lift(values)`, which returns an array
        of terms or a tuple of them, and `finish(counts, *terms)`, which gets the sums of each group. `add` and its
        inverse `remove` are NumPy functions such as np.multiply and np.divide.

        Sums of floats agree with sums that are computed again to 1e-12 of the sum of absolute values.
        """
        whole_number(1, f"incr_fold '{name or kind}'", {"n": n})
        title = self._name(name, kind or "incr_fold")
        if kind in _ORDERED:
            return self._added(Extreme(title, self._known(node), str(kind), n if kind == "top" else 1, by, cutoff))
        how = _additive(kind, lift, finish, add, remove)
        return self._added(AdditiveFold(title, self._known(node), how, by, cutoff))

    def join(
        self,
        left: Node,
        right: Node,
        function: Function,
        on: Function,
        *,
        name: str | None = None,
        cutoff: Cutoff | None = None,
    ) -> Node:
        """Add a join by a foreign key: `on(keys, values)` of the left returns keys of the right.

        `function(left_values, right_values)` gets pairs; keys are those of the left. Without a partner there is no
        value.
        """
        title = self._name(name, "join")
        return self._added(Join(title, self._known(left), self._known(right), function, on, cutoff))

    def distinct(self, node: Node, *, name: str | None = None) -> Node:
        """Add the values of a node, each once, as keys and as values."""
        return self._added(Distinct(self._name(name, "distinct"), self._known(node)))

    def set(self, leaf: Node, keys: Any, values: Any) -> None:
        """Set values of a leaf: arrays, lists, or one key and one value; for records also a dict of arrays.

        Keys are integers, strings, or anything that can be in a dict; NumPy arrays of integers or strings are fastest.
        Results follow with the next `stabilize`. Of several values of a key the last one counts.
        """
        self._leaf(leaf).set(keys, values)

    def remove(self, leaf: Node, keys: Any) -> None:
        """Remove keys from a leaf; those that it does not have are ignored."""
        self._leaf(leaf).remove(keys)

    def stabilize(self) -> Stats:
        """Bring all results up to date, level by level, and return what that took.

        If a function raises, the error is raised here, and the next call computes everything again from the leaves.
        """
        started = time.perf_counter()
        if self._failed:
            self._start_over()
        before = [(node.counters.recomputed, node.counters.cut_off) for node in self._nodes]
        self._failed = True
        visited = self._propagate()
        self._failed = False
        counted = [
            (node, node.counters.recomputed - recomputed, node.counters.cut_off - cut_off)
            for node, (recomputed, cut_off) in zip(self._nodes, before, strict=True)
        ]
        return Stats(
            dirty=sum(recomputed for node, recomputed, _ in counted if not node.inputs),
            recomputed=sum(recomputed for node, recomputed, _ in counted if node.inputs),
            cut_off=sum(cut_off for _, _, cut_off in counted),
            nodes=visited,
            seconds=time.perf_counter() - started,
        )

    def to_dot(self) -> str:
        """Draw the graph with its counters for Graphviz."""
        return drawing.to_dot(self._nodes)

    def to_mermaid(self) -> str:
        """Draw the graph with its counters for Mermaid, as GitHub and most wikis show it."""
        return drawing.to_mermaid(self._nodes)

    def _propagate(self) -> int:
        """Visit what is dirty, lowest height first, so that each node is visited once; return how many were."""
        waiting: list[tuple[int, int]] = []
        queued: set[int] = set()

        def queue(node: Node) -> None:
            number = self._numbers[node]
            if number not in queued:
                queued.add(number)
                heappush(waiting, (node.height, number))

        for node in self._nodes:
            node.change = None
            if node.fresh or (isinstance(node, Leaf) and node.dirty):
                queue(node)
        while waiting:
            node = self._nodes[heappop(waiting)[1]]
            node.change = node.recompute(_inputs(node))
            node.fresh = False
            if node.change is not None:
                for dependent in self._dependents[node]:
                    queue(dependent)
        return len(queued)

    def _start_over(self) -> None:
        for node in self._nodes:
            if node.inputs:
                node.reset()

    def _added(self, node: Node) -> Node:
        if any(other.name == node.name for other in self._nodes):
            message = f"there is a node '{node.name}' already"
            raise DuplicateName(message, hint="pass another name=")
        self._numbers[node] = len(self._nodes)
        self._nodes.append(node)
        self._dependents[node] = []
        for source in dict.fromkeys(node.inputs):
            self._dependents[source].append(node)
        return node

    def _name(self, given: str | None, kind: str) -> str:
        return given or f"{kind}-{len(self._nodes)}"

    def _known(self, node: Node) -> Node:
        if node not in self._numbers:
            message = f"{node!r} is not a node of this graph"
            raise BadValue(message, hint="pass what leaf, map, fold, ... of this graph returned")
        return node

    def _leaf(self, node: Node) -> Leaf:
        if not isinstance(self._known(node), Leaf):
            message = f"{node.title} is computed: its values cannot be set"
            raise BadValue(message, hint=choices("leaves", [one.name for one in self._nodes if not one.inputs]))
        assert isinstance(node, Leaf)
        return node


def _inputs(node: Node) -> list[Change | None]:
    return [source.cells.everything() if node.fresh else source.change for source in node.inputs]


def _additive(
    kind: str | None, lift: Function | None, finish: Function | None, add: np.ufunc, remove: np.ufunc
) -> Additive:
    if kind is None and lift is not None and finish is not None:
        if isinstance(add, np.ufunc) and isinstance(remove, np.ufunc):
            return Additive(lift, finish, add, remove)
        message = "incr_fold: add and remove are not NumPy functions"
        raise BadFunction(message, hint="pass ufuncs, as in: add=np.bitwise_xor, remove=np.bitwise_xor")
    if kind is None or kind not in _ADDITIVE or lift is not None or finish is not None:
        message = f"incr_fold: kind {kind!r} with lift={lift!r}, finish={finish!r}"
        raise BadValue(message, hint=choices("pass lift and finish, or a kind", [*_ADDITIVE, *_ORDERED], kind))
    return _ADDITIVE[kind]()
