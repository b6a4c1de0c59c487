"""Aggregates over tables that have an end: of queries that are answered once, and never of a job."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.operators.grouped import Aggregate
from penstock.schema import Field


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedAggregate(Aggregate):
    """One row per group of all rows; without keys, one row. It is final, for no row follows."""

    def _check_group(self) -> tuple[Field, ...]:
        self._check_input(self.keys, needs_time=False)
        self._check_keys()
        return tuple(self.input.schema.field(name) for name in self.keys)

    @property
    def updating(self) -> bool:
        """All rows are there."""
        return False

    @property
    def event_time(self) -> bool:
        """Rows of all times are together."""
        return False
