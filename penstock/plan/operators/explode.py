"""Explode: one row for each element of an array or a map (SQL's generators)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import BadExpression, BadSchema
from penstock.plan.operators.node import OneInput
from penstock.plan.operators.stateless import final_only
from penstock.plan.sql_expressions.expression import scalar
from penstock.plan.sql_expressions.types import INT, Type, read
from penstock.schema import Field, Schema

GENERATORS = ("explode", "posexplode", "inline")


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(OneInput):
    """The columns of a row, and those of each element; with `outer`, a row without elements comes once, with nulls."""

    kind = "explode"
    makes_rows = True
    function: str
    argument: str
    names: tuple[str, ...]
    outer: bool = False

    def _checked(self) -> Schema:
        final_only(self)
        made = generated(self.function, self.argument, self.input.schema, outer=self.outer)
        renamed = (Field(name, one.type, one.nullable) for name, one in zip(self.names, made, strict=True))
        return Schema((*self.input.schema, *renamed))

    @property
    def detail(self) -> str:
        """The call, and its columns."""
        return f"{self.function}{'_outer' if self.outer else ''}({self.argument}) as {', '.join(self.names)}"

    @property
    def row_sql(self) -> tuple[str, ...]:
        """What is taken apart."""
        return (self.argument,)


def generated(
    function: str, argument: str, schema: Schema, *, outer: bool, where: str | None = None
) -> tuple[Field, ...]:
    """Return the columns that a generator makes, under the names that Spark gives them.

    >>> [field.name for field in generated("posexplode", "tags", Schema("tags array<string>"), outer=False)]
    ['pos', 'col']
    """
    kind = read(scalar(argument, schema, node=where or function).type)
    columns = _columns(function, kind)
    if columns is None:
        needs = "an array of structs" if function == "inline" else "an array or a map"
        message = f'{function}(...) needs {needs}, and "{argument}" is {kind}'
        raise BadSchema(message, node=where or function, hint="cast() it, or use split() or from_json() to make one")
    position = [Field("pos", str(INT), outer)] if function == "posexplode" else []
    # The key of a map is never null; an element may be.
    keys = ("key",) if kind.name == "map" else ()
    return (*position, *(Field(name, str(one), outer or name not in keys) for name, one in columns))


def _columns(function: str, kind: Type) -> list[tuple[str, Type]] | None:
    if function == "inline":
        rows = kind.parts[0] if kind.name == "array" else None
        return list(zip(rows.fields, rows.parts, strict=True)) if rows is not None and rows.name == "struct" else None
    names = {"array": ("col",), "map": ("key", "value")}.get(kind.name)
    return None if names is None else list(zip(names, kind.parts, strict=True))


def check_names(function: str, names: Sequence[str], made: Sequence[Field], where: str) -> None:
    """Raise if a generator makes another number of columns than it is given names."""
    if len(names) != len(made):
        found = ", ".join(field.name for field in made)
        message = f"{function}(...) makes {len(made)} columns ({found}), and {len(names)} names are given"
        raise BadExpression(message, node=where, hint="give as many names: LATERAL VIEW posexplode(x) t AS pos, item")
