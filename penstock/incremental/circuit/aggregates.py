"""Aggregates of groups: one row of state for each group, to which changes are added.

What cannot be added to comes from operators of its own (`Part`): they give the changes of a value of each group, or the
changes of the distinct values that are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.accumulators import Accumulator, Result
from penstock.incremental.circuit.changes import consolidated, joined, keys, taken, weighted, weights, whole
from penstock.incremental.circuit.exact_sums import from_bytes, to_bytes, valid
from penstock.incremental.circuit.expressions import evaluated
from penstock.incremental.circuit.operator import Operator
from penstock.incremental.circuit.row_identity import Grouping, Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, State
from penstock.native.steps import Step

ROWS = "__penstock_rows"
# The start of the names of columns that are added up.
SUM = "__penstock_sum"
_SIGN = "__penstock_sign"


@dataclass(frozen=True)
class Part:
    """An operator inside of an aggregate, over the rows where no column of `needed` is null.

    `columns` are what it is given: (its name there, its name among the inputs of the aggregate). If it has a `value`,
    its result has one row for each group, and that column of it goes to the column `target` of the state. Otherwise its
    result is a set, and the accumulator `target` counts it.
    """

    operator: Operator
    columns: tuple[tuple[str, str], ...]
    needed: tuple[str, ...]
    target: str
    value: str | None = None

    def step(self, inputs: pa.Table, state: State) -> pa.Table:
        """Return the changes of what it computes."""
        there = np.ones(inputs.num_rows, bool)
        for name in self.needed:
            there &= valid(inputs.column(name))
        rows = inputs if there.all() else taken(inputs, np.flatnonzero(there))
        given = rows.select([own for _, own in self.columns]).rename_columns([name for name, _ in self.columns])
        return self.operator.step([given], state) if given.num_rows else self.operator.schema.empty_table()


@dataclass(frozen=True)
class GroupedAggregate:
    """One row for each group; without keys there is one also of no rows."""

    schema: pa.Schema
    label: str
    groups: Arrangement
    inputs: pa.Schema
    inputs_step: Step | None
    own: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    parts: tuple[Part, ...]
    calls: tuple[tuple[str, Result | str], ...]
    results: Step | None
    result_names: tuple[str, ...]

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The groups, and what the parts need."""
        return (self.groups, *(one for part in self.parts for one in part.operator.arrangements))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of groups."""
        return self.groups.keys

    @property
    def runs_without_changes(self) -> bool:
        """Without keys there is a result from the start."""
        return not self.keys

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Add changes to the groups, and return the rows of groups that differ."""
        inputs = self._inputs(changes[0])
        came = self._came(inputs, state)
        hashes = self.groups.hashes(came)
        found = self.groups.read(state, hashes)
        size = found.rows.num_rows
        if not inputs.num_rows and size:
            return self.schema.empty_table()
        signs = np.concatenate([np.zeros(size, np.int64), came.column(_SIGN).to_numpy()])
        came = came.drop_columns([_SIGN])
        both = joined([found.rows, came]) if size else came
        both_hashes = np.concatenate([found.hashes, hashes])
        groups = grouped(keys(both, self.keys), both_hashes)
        after = self._added(both, groups, size, signs)
        left = np.flatnonzero(after.column(ROWS).to_numpy()) if self.keys else np.arange(len(groups))
        self.groups.replace(state, found, taken(after, left), both_hashes[groups.firsts][left])
        return self._changed(found.rows, after)

    def _inputs(self, changes: pa.Table) -> pa.Table:
        if self.inputs_step is None:
            return changes.select(self.own).rename_columns(self.inputs.names)
        return evaluated((self.inputs_step,), changes, self.inputs) if changes.num_rows else self.inputs.empty_table()

    def _came(self, inputs: pa.Table, state: State) -> pa.Table:
        """Return rows in the shape of the state that have what changes add; `_SIGN` is for those that set a value."""
        made = [self._sums(inputs, [one for one in self.accumulators if one.column not in self._counted], rows=True)]
        for number, part in enumerate(self.parts):
            changed = part.step(inputs, state)
            if not changed.num_rows:
                continue
            if part.value is None:
                counted = [one for one in self.accumulators if one.column == part.target]
                made.append(self._sums(changed, counted, rows=False))
            else:
                made.append(self._values(changed, part, number))
        if not self.keys:
            # A row that adds nothing: without keys there is a group from the start.
            made.append(self._shaped(made[0].select([]), 1, {}))
        return joined(made)

    @property
    def _counted(self) -> set[str]:
        """The accumulators that count the results of parts."""
        return {part.target for part in self.parts if part.value is None}

    def _sums(self, inputs: pa.Table, accumulators: Sequence[Accumulator], *, rows: bool) -> pa.Table:
        by_key = keys(inputs, self.keys)
        groups = grouped(by_key, by_key.hashes())
        mine = weights(inputs)
        columns: dict[str, pa.Array] = {ROWS: pa.array(groups.total(mine))} if rows else {}
        for one in accumulators:
            sums = one.total(whole(inputs).column(one.source).chunk(0) if inputs.num_rows else None, mine, groups)
            if one.numbers:
                columns[one.column] = pa.array([to_bytes(int(number)) for number in sums], pa.binary())
            else:
                columns |= {name: pa.array(total) for name, total in zip(one.ints, sums, strict=True)}
        return self._shaped(taken(inputs.select(self.keys), groups.firsts), len(groups), columns)

    def _values(self, changed: pa.Table, part: Part, number: int) -> pa.Table:
        signs = np.sign(weights(changed)) * (number + 1)
        columns = {part.target: changed.column(part.value), _SIGN: pa.array(signs)}
        return self._shaped(changed.select(self.keys), changed.num_rows, columns)

    def _shaped(self, by_key: pa.Table, rows: int, columns: dict[str, pa.Array]) -> pa.Table:
        """Return rows of the state of which only some columns are given: the others add nothing."""
        names = dict(zip(self.keys, by_key.columns, strict=True)) | columns
        schema = self.groups.schema.append(pa.field(_SIGN, pa.int64()))
        return pa.table([names[one.name] if one.name in names else _none(one, rows) for one in schema], schema=schema)

    def _added(self, both: pa.Table, groups: Grouping, size: int, signs: Numbers) -> pa.Table:
        """Return one row of state for each group: the sum of its rows."""
        made: dict[str, pa.Array] = {ROWS: pa.array(groups.total(both.column(ROWS).to_numpy()))}
        for one in self.accumulators:
            totals = one.carried([groups.total(both.column(name).to_numpy()) for name in one.ints])
            made |= {name: pa.array(total) for name, total in zip(one.ints, totals, strict=True)}
            for name in one.numbers:
                made[name] = _exact(both.column(name), groups)
        for number, part in enumerate(self.parts):
            if part.value is not None:
                made[part.target] = _current(both.column(part.target), groups, size, signs, number + 1)
        by_key = taken(both.select(self.keys), groups.firsts) if self.keys else None
        named = {} if by_key is None else dict(zip(self.keys, by_key.columns, strict=True))
        return pa.table([(named | made)[one.name] for one in self.groups.schema], schema=self.groups.schema)

    def _changed(self, before: pa.Table, after: pa.Table) -> pa.Table:
        old, new = self._finished(before), self._finished(after)
        signs = np.concatenate([np.full(old.num_rows, -1), np.ones(new.num_rows, np.int64)])
        return consolidated(weighted(joined([old, new]) if old.num_rows else new, signs)).cast(self.schema)

    def _finished(self, rows: pa.Table) -> pa.Table:
        """Return the results of groups that have rows."""
        if self.keys:
            there = rows.column(ROWS).to_numpy() > 0
            rows = rows if there.all() else taken(rows, np.flatnonzero(there))
        called = [one.of(rows) if isinstance(one, Result) else rows.column(one) for _, one in self.calls]
        columns = [*(rows.column(key) for key in self.keys), *called]
        made = pa.table(columns, names=[*self.keys, *(name for name, _ in self.calls)])
        without = pa.schema([*self.schema][:-1])
        if self.results is not None and made.num_rows:
            return evaluated((self.results,), made, without)
        if self.results is not None:
            return without.empty_table()
        return made.select(self.result_names).rename_columns(without.names).cast(without)


def _none(field: pa.Field, rows: int) -> pa.Array:
    """Return what adds nothing: 0 for numbers, null for values."""
    if not field.name.startswith(SUM) and field.name not in (ROWS, _SIGN):
        return pa.nulls(rows, field.type)
    return pa.repeat(pa.scalar(b"" if pa.types.is_binary(field.type) else 0, field.type), rows)


def _exact(column: pa.ChunkedArray, groups: Grouping) -> pa.Array:
    totals = [0] * len(groups)
    for group, data in zip(groups.ids.tolist(), column.to_pylist(), strict=True):
        totals[group] += from_bytes(data)
    return pa.array([to_bytes(one) for one in totals], pa.binary())


def _current(column: pa.ChunkedArray, groups: Grouping, size: int, signs: Numbers, number: int) -> pa.ChunkedArray:
    """Return the value of each group: the one that was set now, null where one was only taken back, or the old one."""
    at = np.full(len(groups), -1)
    at[groups.ids[:size]] = np.arange(size)
    at[groups.ids[signs == -number]] = -1
    rows = np.flatnonzero(signs == number)
    at[groups.ids[rows]] = rows
    return column.take(pa.array(at, mask=at < 0))
