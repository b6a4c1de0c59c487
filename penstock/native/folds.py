"""Python aggregators, folded in the tasks that read: one partial accumulator per group and chunk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.aggregates import Aggregator
from penstock.errors import FunctionFailed
from penstock.native.steps import PANE, TICK, TIME
from penstock.schema import Schema, arrow_type
from penstock.signatures import raised
from penstock.values import Column, Misfit, column_of

Group = tuple[Any, ...]
# What a value that does not fit is called; a result has a column's name.
ACCUMULATOR, RESULT = "the accumulator", "the result"


@dataclass(frozen=True)
class Fold:
    """One aggregator: the column of its partials, their type, and the columns that hold its inputs."""

    column: str
    type: str
    aggregator: Aggregator
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Folds:
    """The aggregators of one node; `sql` gives each row's keys, pane, time and inputs, in the types of `rows`."""

    node: str
    sql: str
    keys: tuple[str, ...]
    rows: Schema
    folds: tuple[Fold, ...]

    def partials(self, found: pa.Table) -> pa.Table:
        """Fold rows in their order; a group's partial has the time of its last row, by which partials are merged."""
        rows = found.cast(self.rows.arrow)
        groups: list[Group] = list(zip(*(rows.column(name).to_pylist() for name in (*self.keys, PANE)), strict=True))
        last = {group: number for number, group in enumerate(groups)}
        table = rows.take(pa.array(last.values(), pa.int64())).select([*self.keys, TIME])
        times = table.column(TIME).cast(pa.int64()).to_pylist()
        for fold in self.folds:
            accs = self._folded(fold, groups, rows)
            made = [{"at": at, "acc": accs[group]} for group, at in zip(last, times, strict=True)]
            fits = column_of(arrow_type(fold.type))
            table = table.append_column(fold.column, typed(fold.aggregator, self.node, made, fits, ACCUMULATOR))
        return table.append_column(TICK, pa.repeat(False, table.num_rows))

    def _folded(self, fold: Fold, groups: list[Group], rows: pa.Table) -> dict[Group, Any]:
        columns = [rows.column(name).to_pylist() for name in fold.inputs]
        values: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else itertools.repeat(())
        accs: dict[Group, Any] = {}
        start, add = fold.aggregator.start, fold.aggregator.add
        for group, given in zip(groups, values, strict=False):
            acc = accs[group] if group in accs else called(fold.aggregator, self.node, start)
            accs[group] = called(fold.aggregator, self.node, add, acc, *given)
        return accs


def called(aggregator: Aggregator, node: str, step: Callable[..., Any], *given: Any) -> Any:
    """Call one step of an aggregator; an error names the node and what the step was given."""
    try:
        return step(*given)
    except Exception as error:  # user code may raise anything
        message = f"{_name(aggregator, step)} raised {raised(error)}; it was given {given}"
        raise FunctionFailed(message, node=node, hint="fix the function and run again") from error


def typed(aggregator: Aggregator, node: str, made: list[Any], fits: Column, what: str) -> pa.Array:
    """Return accumulators or results in Arrow; one that does not fit its declared type stops the job.

    It is computed from many rows, so there is no single row to reject.
    """
    array, wrong = fits.converted(made)
    for misfit in wrong.values():
        raise unfit(aggregator, node, misfit.without(1) if what == ACCUMULATOR else misfit, what)
    return array


def unfit(aggregator: Aggregator, node: str, misfit: Misfit, what: str) -> FunctionFailed:
    """Return the error for an accumulator or a result that does not fit."""
    misfit.what = what
    message = f"{_name(aggregator, type(aggregator))} does not give what it declares: {misfit}"
    hint = "fix the function, or the types that it declares: state for accumulators, result for what finish() returns"
    return FunctionFailed(message, node=node, hint=hint)


def _name(aggregator: Aggregator, step: Any) -> str:
    kind = getattr(aggregator, "fn", step)
    return str(getattr(kind, "__qualname__", repr(kind)))
