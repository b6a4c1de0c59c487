"""Relations of groups of rows: aggregates, distinct rows, the first n rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.errors import BadValue, choices, whole_number
from penstock.plan.operators.grouped import is_ordered
from penstock.plan.relations.aggregate_calls import Calls, decomposed
from penstock.plan.relations.relation import Columns, OneInput, Relation, comparable, computed, known_names
from penstock.plan.sql_expressions.expression import aggregate
from penstock.schema import Field, Schema

Direction = Literal["asc", "desc"]
Nulls = Literal["first", "last"]
Ties = Literal["row_number", "rank", "dense_rank"]
Order = tuple[tuple[str, Direction, Nulls], ...]


@dataclass(frozen=True, eq=False)
class Aggregate(OneInput):
    """One row for each group: its keys, and aggregates of its rows; without keys one row, also of no rows."""

    kind = "aggregate"
    input: Relation
    keys: tuple[str, ...]
    aggregates: Columns

    def _checked(self) -> Schema:
        keys = known_names(self.keys, self.input.schema, "key")
        if not self.keys and not self.aggregates:
            message = "neither a key nor an aggregate is given"
            raise BadValue(message, hint='write aggregate(total="sum(amount)")')
        made = Schema(keys + tuple(self._column(name, sql) for name, sql in self.aggregates))
        decomposed(self.aggregates, self.input.schema, self.keys)
        return made

    def _column(self, name: str, sql: str) -> Field:
        found = aggregate(sql, self.input.schema, keys=self.keys, node=f"{self.kind} '{name}'")
        return Field(name, found.type, found.nullable)

    @property
    def calls(self) -> Calls:
        """The aggregate calls, and the results as expressions over them."""
        return decomposed(self.aggregates, self.input.schema, self.keys)

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """The keys of the groups."""
        return self.keys

    @property
    def detail(self) -> str:
        """Keys and aggregates."""
        by = f"by {', '.join(self.keys)}: " if self.keys else ""
        return by + ", ".join(f"{sql} as {name}" for name, sql in self.aggregates)


@dataclass(frozen=True, eq=False)
class Distinct(OneInput):
    """Each row once."""

    kind = "distinct"
    input: Relation

    def _checked(self) -> Schema:
        comparable(self.input.schema, "distinct rows")
        return self.input.schema

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """The input's, or all columns."""
        return self.input.keys_unique if self.input.keys_unique is not None else self.schema.names


@dataclass(frozen=True, eq=False)
class Top(OneInput):
    """The first n rows of each group by an order: (expression, "asc" | "desc", nulls "first" | "last").

    Rows that are equal in the order are ordered by all of their columns, so that the result depends on the content
    only. `ties` is what is compared with n; `rank` is the name of a column for it, or None.
    """

    kind = "top"
    input: Relation
    keys: tuple[str, ...]
    n: int
    by: Order
    rank: str | None = None
    ties: Ties = "row_number"

    def _checked(self) -> Schema:
        given = self.input.schema
        known_names(self.keys, given, "key")
        whole_number(1, self.label, {"n": self.n})
        comparable(given, "rows of top")
        if self.ties not in get_args(Ties):
            message = f"ties={self.ties!r} is not a kind of rank"
            raise BadValue(message, hint=choices("kinds", get_args(Ties), str(self.ties)))
        for sql, direction, nulls in self.by:
            found = computed(sql, given, node=self.label)
            if not is_ordered(found.type):
                message = f'"{sql}" is {found.type}, which has no order'
                raise BadValue(message, hint="rank by a number, a text or a time")
            if direction not in get_args(Direction) or nulls not in get_args(Nulls):
                message = f'the order of "{sql}" is {direction!r} with nulls {nulls!r}'
                raise BadValue(message, hint='write "asc" or "desc", and "first" or "last"')
        if self.rank is None:
            return given
        if self.rank in given:
            message = f"the rows have a column '{self.rank}' already"
            raise BadValue(message, hint="choose another name for the rank")
        return Schema((*given.fields, Field(self.rank, "int", nullable=False)))

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """Of one row the group; otherwise the input's, or group and row number."""
        if self.ties == "row_number" and self.n == 1:
            return self.keys
        if self.input.keys_unique is not None:
            return self.input.keys_unique
        return (*self.keys, self.rank) if self.rank is not None and self.ties == "row_number" else None

    @property
    def detail(self) -> str:
        """Number, order and keys."""
        order = ", ".join(f"{sql} {direction} nulls {nulls}" for sql, direction, nulls in self.by)
        of = f" of each {', '.join(self.keys)}" if self.keys else ""
        ties = "" if self.ties == "row_number" else f", {self.ties}"
        return f"{self.n}{of} by {order or 'all columns'}{ties}"
