"""A circuit: the operators of a relation, run once for each epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import BadValue, PenstockError, choices
from penstock.incremental.circuit.changes import consolidated
from penstock.incremental.circuit.expressions import with_schema
from penstock.incremental.circuit.operator import Wired
from penstock.incremental.circuit.state import State

if TYPE_CHECKING:
    from penstock.plan.relations import Relation


class Circuit:
    """Maintains a relation by changes. It has no state: that is given to each step, and changed by it.

    A circuit can be pickled; a process that only runs it does not load the SQL parser.
    """

    def __init__(self, relation: Relation, append_only: Collection[str] = ()) -> None:
        """Compile a relation; no row is ever taken out of the inputs named in `append_only`."""
        from penstock.incremental.circuit.compiler import compiled  # tasks do not load the SQL parser

        self._wired: tuple[Wired, ...] = compiled(relation, append_only)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(one.name for one in self._wired if one.name is not None)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes that a step returns: those of the relation, and the weight."""
        return self._wired[-1].operator.schema

    @property
    def stores(self) -> int:
        """How many tables of state it has."""
        return sum(len(one.operator.arrangements) for one in self._wired)

    def input_schema(self, name: str) -> pa.Schema:
        """Return the columns of an input, and the weight."""
        return next(one.operator.schema for one in self._wired if one.name == name)

    def step(self, changes: Mapping[str, pa.Table], state: State) -> pa.Table:
        """Take the changes of one epoch, by input, and return the changes of the relation, each row once.

        Rows without the column of weights are rows that are added, in their order.
        """
        unknown = [name for name in changes if name not in self.inputs]
        if unknown:
            message = f"unknown input '{unknown[0]}'"
            raise BadValue(message, node="view", hint=choices("inputs", self.inputs, unknown[0]))
        made: list[pa.Table] = []
        for one in self._wired:
            try:
                made.append(self._made(one, made, changes, state))
            except PenstockError as error:
                # The node is the view; only its caller knows its name.
                error.message, error.node = f"{error.node or one.relation}: {error.message}", None
                raise
        return consolidated(made[-1])

    def _made(self, one: Wired, made: list[pa.Table], changes: Mapping[str, pa.Table], state: State) -> pa.Table:
        schema = one.operator.schema
        if one.name is not None:
            given = changes.get(one.name)
            return schema.empty_table() if given is None else with_schema(given, schema)
        inputs = [made[number] for number in one.inputs]
        # Where nothing changed nothing is done.
        if not any(table.num_rows for table in inputs) and not one.operator.runs_without_changes:
            return schema.empty_table()
        return one.operator.step(inputs, state)
