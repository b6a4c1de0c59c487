"""Operators that treat each row by itself: a change of the input is a change of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.incremental.circuit.changes import joined
from penstock.incremental.circuit.expressions import evaluated
from penstock.incremental.circuit.state import Arrangement, State
from penstock.native.steps import Step


@dataclass(frozen=True)
class Linear:
    """The base of operators without state."""

    schema: pa.Schema
    arrangements: tuple[Arrangement, ...] = ()
    runs_without_changes: bool = False


@dataclass(frozen=True)
class Given(Linear):
    """The rows of an input: its changes are given."""

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Return them."""
        return changes[0]


@dataclass(frozen=True)
class Expressions(Linear):
    """Projections and filters, one after the other, as one query."""

    chain: tuple[Step, ...] = ()

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Evaluate them on the rows that changed."""
        return evaluated(self.chain, changes[0], self.schema)


@dataclass(frozen=True)
class Selection(Linear):
    """Columns that are only passed on, perhaps under other names; `own` are their names in the input."""

    own: tuple[str, ...] = ()

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Select them."""
        return changes[0].select(self.own).rename_columns(self.schema.names)


@dataclass(frozen=True)
class Concatenation(Linear):
    """The rows of all inputs."""

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Put their changes together."""
        return joined(changes)
