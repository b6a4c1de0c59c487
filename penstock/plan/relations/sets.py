"""Relations of rows as a whole: UNION ALL, EXCEPT, INTERSECT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import BadSchema, BadValue
from penstock.plan.relations.relation import Relation, comparable
from penstock.schema import Field, Schema


@dataclass(frozen=True, eq=False)
class Union(Relation):
    """The rows of all inputs, as UNION ALL has them: columns have the same names and types."""

    kind = "union"
    parts: tuple[Relation, ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """All of them."""
        return self.parts

    def _checked(self) -> Schema:
        if not self.parts:
            message = "no input is given"
            raise BadValue(message, hint="give one relation at least")
        return _aligned(self.parts)

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """Those of a single input."""
        return self.parts[0].keys_unique if len(self.parts) == 1 else None


@dataclass(frozen=True, eq=False)
class _TwoSets(Relation):
    left: Relation
    right: Relation
    all: bool = False

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """Left and right."""
        return (self.left, self.right)

    def _checked(self) -> Schema:
        made = _aligned(self.inputs)
        comparable(made, f"rows of {self.kind}")
        return made

    @property
    def detail(self) -> str:
        """Whether equal rows are counted."""
        return "all" if self.all else "distinct"


@dataclass(frozen=True, eq=False)
class Except(_TwoSets):
    """The rows of the left that the right has not; with `all` each as many times as the left has it more often."""

    kind = "except"

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """The left's; without `all`, all columns."""
        return self.left.keys_unique if self.all or self.left.keys_unique is not None else self.schema.names


@dataclass(frozen=True, eq=False)
class Intersect(_TwoSets):
    """The rows that both have; with `all` each row as often as in the one that has it less often."""

    kind = "intersect"

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """Those of either; without `all`, all columns."""
        for one in self.inputs:
            if one.keys_unique is not None:
                return one.keys_unique
        return None if self.all else self.schema.names


def _aligned(parts: Sequence[Relation]) -> Schema:
    """Return the common schema; a column may be null if it may be in one part."""
    first = parts[0].schema
    for other in parts[1:]:
        if [*other.schema.types.items()] != [*first.types.items()]:
            message = "the relations have different columns"
            hint = f"first: {first.ddl}\n  other: {other.schema.ddl}\n  align them with select()"
            raise BadSchema(message, hint=hint)
    nullable = (any(part.schema.field(field.name).nullable for part in parts) for field in first)
    return Schema(tuple(Field(f.name, f.type, null) for f, null in zip(first, nullable, strict=True)))
