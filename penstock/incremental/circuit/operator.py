"""What operators of a circuit have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.incremental.circuit.state import Arrangement, State


class Operator(Protocol):
    """One operator: changes of its inputs in, changes of its result out. It has no state of its own."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its result, and the weight."""

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The tables of state that it reads and writes."""

    @property
    def runs_without_changes(self) -> bool:
        """Whether it has a result before any of its inputs has a row."""

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Take the changes of one epoch, of each input, and return those of the result."""


@dataclass(frozen=True)
class Wired:
    """An operator of a circuit, and the numbers of those whose results it takes; an input has a `name` instead."""

    operator: Operator
    inputs: tuple[int, ...]
    relation: str
    name: str | None = None
