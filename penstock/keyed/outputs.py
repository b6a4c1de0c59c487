"""What a process function gives: rows for its outputs, in Arrow at the end of a turn.

Names of columns are checked when a row is given. Values are checked all together, when they are converted: if one does
not fit its type, the turn runs again and checks each row as it is given, so that what a bad row did can be undone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from types import GeneratorType
from typing import Any

import pyarrow as pa

from penstock.errors import BadEmit, choices
from penstock.process import Declared
from penstock.schema import Schema
from penstock.values import rows_of

MAIN = "main"


class Unfit(Exception):
    """Some rows of a turn do not fit the types of their output."""


class Shape:
    """An output's name and columns, and which of these hold what can be changed in place."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name, self.schema, self.fits = name, schema.nullable(), rows_of(schema)
        self.names, self.known, self.arrow = schema.names, frozenset(schema.names), self.schema.arrow
        self.nested = [i for i, field in enumerate(self.arrow) if pa.types.is_nested(field.type)]
        # Of a whole and plain row, all values in one call; of a single column that would be no sequence.
        self.picked = itemgetter(*self.names) if len(self.names) > 1 and not self.nested else None


def shapes(process: Declared) -> tuple[Shape, ...]:
    """Return the outputs of a process, the main one first."""
    return (Shape(MAIN, process.output), *(Shape(name, schema) for name, schema in process.sides.items()))


class Output:
    """The rows of one output in one turn, column values in the order of its schema, and their event times."""

    def __init__(self, shape: Shape, *, careful: bool = False) -> None:
        self.shape, self.name, self.names, self.known = shape, shape.name, shape.names, shape.known
        self.picked = None if careful else shape.picked
        self.careful = careful
        self.rows: list[Sequence[Any]] = []
        self.times: list[int] = []

    def taken(self, emit: Any) -> list[Any]:
        """Return the values of a row; of what could still be changed in place, a copy."""
        row = emit if type(emit) is dict else _as_dict(emit)
        if not row.keys() <= self.known:
            wrong = next(name for name in row if name not in self.known)
            message = f"a row for output '{self.name}' has the column '{wrong}', which its schema lacks"
            raise BadEmit(message, hint=choices("columns", self.names, str(wrong)))
        values = list(map(row.get, self.names))
        for place in self.shape.nested:
            values[place] = _copied(values[place])
        if self.careful:
            self._check(values)
        return values

    def table(self) -> pa.Table:
        """Return the rows in Arrow; raises if one does not fit."""
        columns = map(list, zip(*self.rows, strict=True)) if self.rows else ([] for _ in self.names)
        arrays, wrong = self.shape.fits.arrays(list(columns))
        if wrong:
            raise Unfit
        return pa.Table.from_arrays(arrays, schema=self.shape.arrow)

    def _check(self, values: list[Any]) -> None:
        _, wrong = self.shape.fits.arrays([[value] for value in values])
        for misfit in wrong.values():
            message = f"a row for output '{self.name}' does not fit: {misfit}"
            raise BadEmit(message)


class Outputs:
    """All outputs of a process in one turn."""

    def __init__(self, shapes: Sequence[Shape], *, careful: bool = False) -> None:
        """Take the outputs; `careful` checks the values of each row when it is given."""
        self.main, *sides = (Output(shape, careful=careful) for shape in shapes)
        self.sides = {output.name: output for output in sides}

    def take(self, emits: Iterable[Any], time_us: int) -> None:
        """Take all that one call gives, or nothing of it if the call or one of its rows fails.

        In every row's way: a plain row of the main output is taken here, all others elsewhere.
        """
        if type(emits) is not GeneratorType:
            _check_iterable(emits)
        main = self.main
        rows, picked, known = main.rows, main.picked, main.known
        before = len(rows)
        aside: list[tuple[Output, list[Any]]] = []
        try:
            for one in emits:
                if picked is not None and type(one) is dict and one.keys() == known:
                    rows.append(picked(one))
                elif type(one) is tuple:
                    aside.append(self._aside(one))
                else:
                    rows.append(main.taken(one))
        except BaseException:
            del rows[before:]
            raise
        main.times.extend([time_us] * (len(rows) - before))
        for output, values in aside:
            output.rows.append(values)
            output.times.append(time_us)

    def all(self) -> list[Output]:
        """Return every output, the main one first."""
        return [self.main, *self.sides.values()]

    def _aside(self, emit: tuple[Any, ...]) -> tuple[Output, list[Any]]:
        if len(emit) != 2 or emit[0] not in self.sides:
            message = f"it gave {emit!r}, and has no output {emit[0] if emit else None!r}"
            raise BadEmit(message, hint=f'yield "side", row; {choices("sides", self.sides)}')
        output = self.sides[emit[0]]
        return output, output.taken(emit[1])


def _check_iterable(emits: Any) -> None:
    given = isinstance(emits, tuple) and emits and isinstance(emits[0], str)
    if isinstance(emits, dict | str) or given or not isinstance(emits, Iterable):
        message = f"it returned {emits!r}"
        raise BadEmit(message, hint="yield rows, or return a list of them")


def _as_dict(emit: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(emit) and not isinstance(emit, type):
        return dataclasses.asdict(emit)
    if not isinstance(emit, dict):
        message = f"it gave {type(emit).__name__} {emit!r}, which is not a row"
        raise BadEmit(message, hint='yield a dict or a dataclass, or ("side", row)')
    return emit


def _copied(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_copied(one) for one in value]
    return {key: _copied(one) for key, one in value.items()} if isinstance(value, Mapping) else value
