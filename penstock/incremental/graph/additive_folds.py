"""Folds by adding and removing: an accumulator for each group, to which a change adds what is new and removes what was.

Sums of floats would drift: 1e16 + 1 - 1e16 is 0. So each group has a bound of its rounding error, and the sum of the
absolute values of its members; where the bound exceeds a part of it, the group is summed again from its members. That
is also what happens after an infinity or NaN, which no subtraction removes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.errors import BadFunction
from penstock.incremental.graph.cells import Change, Cutoff
from penstock.incremental.graph.folds import counted
from penstock.incremental.graph.grouping import Grouped, Moves
from penstock.incremental.graph.key_index import Array, Slots
from penstock.incremental.graph.nodes import Function, Node, scattered

# Sums of floats agree with those that are computed again to this part of the sum of absolute values.
TOLERANCE = 2e-13
_HALF_BIT = float(np.finfo(np.float64).eps) / 2


@dataclass(frozen=True)
class Additive:
    """How values are turned to terms, how terms are added and removed, and how a result is made of them."""

    lift: Callable[[Array], Any]
    finish: Callable[..., Any]
    add: np.ufunc = np.add
    remove: np.ufunc = np.subtract


@dataclass
class Accumulator:
    """One term of each group. `mass` and `error` are there for sums of floats."""

    sums: Array
    exact: bool
    mass: Array = field(default_factory=lambda: np.zeros(0))
    error: Array = field(default_factory=lambda: np.zeros(0))

    def grow(self, groups: int, start: Any) -> None:
        """Make room for groups; new ones start with what adding nothing gives."""
        known = len(self.sums)
        self.sums = counted(self.sums, groups)
        self.sums[known:] = start
        if not self.exact:
            self.mass, self.error = counted(self.mass, groups), counted(self.error, groups)


class AdditiveFold(Grouped):
    """A fold by adding and removing."""

    kind = "incr_fold"

    def __init__(self, name: str, node: Node, how: Additive, by: Function | None, cutoff: Cutoff | None) -> None:
        super().__init__(name, node, by, cutoff)
        self.how = how
        self.counts = np.zeros(0, np.int64)
        self.terms: list[Accumulator] = []

    def reset(self) -> None:
        """Forget everything that is computed."""
        super().reset()
        self.counts = np.zeros(0, np.int64)
        self.terms = []

    def follow(self, change: Change) -> Change | None:
        """Add what is new, and remove what was."""
        with np.errstate(invalid="ignore", over="ignore"):
            touched = self._total(change) if self.by is None and self.how.add is np.add else self._grouped(change)
            return self._finished(touched)

    def _total(self, change: Change) -> Slots:
        """Add the differences of a change to the one group, as one number."""
        new, old = self._lifted(change.after()[1]), self._lifted(change.before()[1])
        self._grow(new, 1)
        self.counts[0] += len(change.after()[0]) - len(change.before()[0])
        for term, plus, minus in zip(self.terms, new, old, strict=True):
            difference = (plus - minus).sum() if change.stayed else plus.sum() - minus.sum()
            if not term.exact:
                gained, lost = np.abs(plus).sum(), np.abs(minus).sum()
                largest = term.mass[0] + gained
                term.mass[0] = largest - lost
                # One addition to the sum; those inside of a batch are of its own size, and NumPy adds in pairs.
                term.error[0] += _HALF_BIT * (largest + 8 * (gained + lost))
            term.sums[0] += difference
        return np.zeros(1, np.int64)

    def _grouped(self, change: Change) -> Slots:
        moves = self.moves(change)
        new, old = self._lifted(moves.joined_values), self._lifted(moves.left_values)
        self._grow(new, self.cells.index.size)
        np.add.at(self.counts, moves.joined, 1)
        np.subtract.at(self.counts, moves.left, 1)
        touched = moves.touched
        for term, plus, minus in zip(self.terms, new, old, strict=True):
            self._bound(term, moves, plus, minus)
            self.how.add.at(term.sums, moves.joined, plus)
            self.how.remove.at(term.sums, moves.left, minus)
        return touched

    def _bound(self, term: Accumulator, moves: Moves, plus: Array, minus: Array) -> None:
        """Add to the error of each group what rounding can add: of each addition half a bit of the largest sum."""
        if term.exact:
            return
        np.add.at(term.mass, moves.joined, np.abs(plus))
        for groups in (moves.joined, moves.left):
            np.add.at(term.error, groups, 2 * _HALF_BIT * term.mass[groups])
        np.subtract.at(term.mass, moves.left, np.abs(minus))

    def _finished(self, touched: Slots) -> Change | None:
        counts = self.counts[touched]
        there = counts > 0
        self._sum_again(touched[there])
        self._empty(touched[~there])
        if not there.any():
            return self.settle(touched, np.zeros(len(touched), self.cells.values.dtype), there)
        kept = touched[there]
        found = self.call(self.how.finish, len(kept), counts[there], *(term.sums[kept] for term in self.terms))
        return self.settle(touched, scattered(found, there), there)

    def _sum_again(self, groups: Slots) -> None:
        """Sum the members of groups whose sums may be too far off."""
        for number, term in enumerate(self.terms):
            if term.exact:
                continue
            wrong = groups[~(term.error[groups] <= TOLERANCE * term.mass[groups])]
            if not len(wrong):
                continue
            slots, counts = self.members_of(wrong)
            terms = self._lifted(self.inputs[0].cells.values[slots])[number]
            starts = np.cumsum(counts) - counts
            whole = len(wrong) == 1
            term.sums[wrong] = terms.sum() if whole else np.add.reduceat(terms, starts)
            term.mass[wrong] = np.abs(terms).sum() if whole else np.add.reduceat(np.abs(terms), starts)
            term.error[wrong] = 0

    def _empty(self, groups: Slots) -> None:
        """Start over in groups without members, so that nothing stays of what they had."""
        for term in self.terms:
            term.sums[groups] = self._start(term.sums)
            if not term.exact:
                term.mass[groups] = term.error[groups] = 0

    def _lifted(self, values: Array) -> list[Array]:
        found = self.how.lift(values)
        terms = [np.asarray(term) for term in (found if isinstance(found, tuple) else (found,))]
        if any(len(term) != len(values) for term in terms):
            message = f"lift got {len(values)} values and returned {', '.join(str(len(term)) for term in terms)}"
            raise BadFunction(
                message, node=self.title, hint="return an array of that length, or a tuple of such arrays"
            )
        return [_wide(term) for term in terms]

    def _grow(self, new: list[Array], groups: int) -> None:
        if not self.terms:
            adds = self.how.add is np.add
            self.terms = [Accumulator(term[:0].copy(), not adds or term.dtype.kind != "f") for term in new]
        self.counts = counted(self.counts, groups)
        for term in self.terms:
            if len(term.sums) < groups:
                term.grow(groups, self._start(term.sums))

    def _start(self, sums: Array) -> Any:
        return 0 if self.how.add.identity is None else sums.dtype.type(self.how.add.identity)


def _wide(term: Array) -> Array:
    """Return terms with 64 bits, so that sums have room."""
    if term.dtype.kind in "bi":
        return term.astype(np.int64, copy=False)
    return term.astype(np.float64, copy=False) if term.dtype.kind == "f" else term


def count() -> Additive:
    """Return the fold that counts."""
    return Additive(lambda values: (), lambda counts: counts)


def total() -> Additive:
    """Return the fold that adds values up."""
    return Additive(lambda values: values, lambda counts, sums: sums)


def mean() -> Additive:
    """Return the fold that computes the average."""
    return Additive(lambda values: values, lambda counts, sums: sums / counts)


def vwap() -> Additive:
    """Return the fold that computes the average of `price`, weighted by `size`."""
    return Additive(
        lambda values: (values["price"] * values["size"], values["size"]),
        lambda counts, amounts, sizes: np.divide(amounts, sizes, where=sizes != 0, out=np.full(len(sizes), np.nan)),
    )
