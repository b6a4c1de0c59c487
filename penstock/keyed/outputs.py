"""The outputs of a process function: the rows that it emits, converted to Arrow at the end of an invocation.

Names of columns are checked when a row is emitted. Values are checked all together when they are converted: if one does
not have the type of its column, the invocation runs again and checks each row as it is emitted, so that the effects of
a bad row can be undone.
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


class TypeMismatch(Exception):
    """Some rows of an invocation do not have the types of their output."""


class OutputSchema:
    """The name and columns of an output, and which columns have mutable values."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name, self.schema, self.fits = name, schema.nullable(), rows_of(schema)
        self.names, self.known, self.arrow = schema.names, frozenset(schema.names), self.schema.arrow
        self.nested = [i for i, field in enumerate(self.arrow) if pa.types.is_nested(field.type)]
        # Gets all values of a complete row in one call; for a single column it would not return a sequence.
        self.picked = itemgetter(*self.names) if len(self.names) > 1 and not self.nested else None


def output_schemas(process: Declared) -> tuple[OutputSchema, ...]:
    """Return the outputs of a process, the main one first."""
    return (OutputSchema(MAIN, process.output), *(OutputSchema(name, schema) for name, schema in process.sides.items()))


class Output:
    """The rows of one output in one invocation, as values in the order of its schema, and their event times."""

    def __init__(self, schema: OutputSchema, *, checks_rows: bool = False) -> None:
        self.schema, self.name, self.names, self.known = schema, schema.name, schema.names, schema.known
        self.picked = None if checks_rows else schema.picked
        self.checks_rows = checks_rows
        self.rows: list[Sequence[Any]] = []
        self.times: list[int] = []

    def values(self, emit: Any) -> list[Any]:
        """Return the values of a row; mutable ones are copied."""
        row = emit if type(emit) is dict else _as_dict(emit)
        if not row.keys() <= self.known:
            wrong = next(name for name in row if name not in self.known)
            message = f"a row for output '{self.name}' has the column '{wrong}', which its schema lacks"
            raise BadEmit(message, hint=choices("columns", self.names, str(wrong)))
        values = list(map(row.get, self.names))
        for position in self.schema.nested:
            values[position] = _copied(values[position])
        if self.checks_rows:
            self._check(values)
        return values

    def table(self) -> pa.Table:
        """Return the rows in Arrow; raises TypeMismatch if a value has the wrong type."""
        columns = map(list, zip(*self.rows, strict=True)) if self.rows else ([] for _ in self.names)
        arrays, wrong = self.schema.fits.arrays(list(columns))
        if wrong:
            raise TypeMismatch
        return pa.Table.from_arrays(arrays, schema=self.schema.arrow)

    def _check(self, values: list[Any]) -> None:
        _, wrong = self.schema.fits.arrays([[value] for value in values])
        for misfit in wrong.values():
            message = f"a row for output '{self.name}' does not fit: {misfit}"
            raise BadEmit(message)


class Outputs:
    """All outputs of a process in one invocation."""

    def __init__(self, schemas: Sequence[OutputSchema], *, checks_rows: bool = False) -> None:
        """Create the outputs; with `checks_rows` the values of each row are checked when it is emitted."""
        self.main, *sides = (Output(schema, checks_rows=checks_rows) for schema in schemas)
        self.sides = {output.name: output for output in sides}

    def add(self, emits: Iterable[Any], time_us: int) -> None:
        """Add all rows that one call emits, or none of them if the call or one of its rows fails.

        This runs for every row, so complete rows of the main output are handled here, all others in methods.
        """
        if type(emits) is not GeneratorType:
            _check_iterable(emits)
        main = self.main
        rows, picked, known = main.rows, main.picked, main.known
        before = len(rows)
        sides: list[tuple[Output, list[Any]]] = []
        try:
            for one in emits:
                if picked is not None and type(one) is dict and one.keys() == known:
                    rows.append(picked(one))
                elif type(one) is tuple:
                    sides.append(self._side_row(one))
                else:
                    rows.append(main.values(one))
        except BaseException:  # whatever a generator of the user raises: none of its rows is emitted
            del rows[before:]
            raise
        main.times.extend([time_us] * (len(rows) - before))
        for output, values in sides:
            output.rows.append(values)
            output.times.append(time_us)

    def all(self) -> list[Output]:
        """Return every output, the main one first."""
        return [self.main, *self.sides.values()]

    def _side_row(self, emit: tuple[Any, ...]) -> tuple[Output, list[Any]]:
        if len(emit) != 2 or emit[0] not in self.sides:
            message = f"it emitted {emit!r}, and has no output {emit[0] if emit else None!r}"
            raise BadEmit(message, hint=f'yield "side", row; {choices("sides", self.sides)}')
        output = self.sides[emit[0]]
        return output, output.values(emit[1])


def _check_iterable(emits: Any) -> None:
    given = isinstance(emits, tuple) and emits and isinstance(emits[0], str)
    if isinstance(emits, dict | str) or given or not isinstance(emits, Iterable):
        message = f"it returned {emits!r}"
        raise BadEmit(message, hint="yield rows, or return a list of them")


def _as_dict(emit: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(emit) and not isinstance(emit, type):
        return dataclasses.asdict(emit)
    if not isinstance(emit, dict):
        message = f"it emitted {type(emit).__name__} {emit!r}, which is not a row"
        raise BadEmit(message, hint='yield a dict or a dataclass, or ("side", row)')
    return emit


def _copied(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_copied(one) for one in value]
    return {key: _copied(one) for key, one in value.items()} if isinstance(value, Mapping) else value
