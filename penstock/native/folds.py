"""Aggregators written in Python, folded where rows are read: one partial accumulator per group and chunk."""

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

Group = tuple[Any, ...]


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
            table = table.append_column(fold.column, pa.array(made, arrow_type(fold.type)))
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
    except Exception as error:
        kind = getattr(aggregator, "fn", step)
        name = getattr(kind, "__qualname__", repr(kind))
        message = f"{name} raised {type(error).__name__}: {error}; it was given {given}"
        raise FunctionFailed(message, node=node, hint="mend the function and run again") from error
