"""Relations that treat each row by itself."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadValue, choices
from penstock.plan.relations.relation import Columns, OneInput, Relation, computed, condition
from penstock.schema import Field, Schema, bare


@dataclass(frozen=True, eq=False)
class Project(OneInput):
    """Columns that are computed from each row: (name, expression)."""

    kind = "project"
    input: Relation
    columns: Columns

    def _checked(self) -> Schema:
        if not self.columns:
            message = "no column is given"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        return Schema(tuple(self._column(name, sql) for name, sql in self.columns))

    def _column(self, name: str, sql: str) -> Field:
        found = computed(sql, self.input.schema, node=f"{self.kind} '{name}'")
        return Field(name, found.type, found.nullable)

    @property
    def carried(self) -> dict[str, str]:
        """The columns that are passed through: their names in the input, by those here."""
        return {name: own for name, sql in self.columns if (own := bare(sql)) in self.input.schema.names}

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """The input's, if all of them are passed through."""
        given = self.input.keys_unique
        names = {own: name for name, own in self.carried.items()}
        return tuple(names[one] for one in given) if given is not None and {*given} <= {*names} else None

    @property
    def detail(self) -> str:
        """The columns."""
        return ", ".join(name if bare(sql) == name else f"{sql} as {name}" for name, sql in self.columns)


@dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """Only rows for which the condition holds."""

    kind = "filter"
    input: Relation
    condition: str

    def _checked(self) -> Schema:
        condition(self.condition, self.input.schema, node=self.label)
        return self.input.schema

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """The input's."""
        return self.input.keys_unique

    @property
    def detail(self) -> str:
        """The condition."""
        return self.condition
