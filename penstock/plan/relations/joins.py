"""Joins of relations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from penstock.errors import BadJoin, BadSchema, UnknownColumn, choices
from penstock.plan.relations.relation import Relation, condition, known_names
from penstock.schema import Field, Schema

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Join(Relation):
    """The pairs of rows with equal keys for which `residual` holds; null keys match nothing.

    `on` has pairs of column names (left, right); without any every pair of rows is compared. The result has the columns
    of the left, then those of the right. A key that has the same name on both sides is one column, of whichever side
    has a row, as USING gives; other columns of the right whose names the left has get the `suffix`. `semi` and `anti`
    have the left's columns only. `residual` is a condition over the names of the result (of `semi` and `anti`: of what
    `inner` would have), before rows without a partner are added.
    """

    kind = "join"
    left: Relation
    right: Relation
    on: Pairs
    how: How = "inner"
    residual: str | None = None
    suffix: str = "_right"

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """Left and right."""
        return (self.left, self.right)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The keys that have the same name on both sides."""
        return tuple(left for left, right in self.on if left == right)

    @cached_property
    def right_names(self) -> dict[str, str]:
        """The columns of the right side in a pair, and their names there."""
        mine = {*self.left.schema.names}
        rest = [name for name in self.right.schema.names if name not in self.shared]
        return {name: f"{name}{self.suffix}" if name in mine else name for name in rest}

    @cached_property
    def pair(self) -> Schema:
        """The columns of a pair of rows, which `residual` may use."""
        right = self.right.schema
        rest = (Field(name, right.types[own], right.field(own).nullable) for own, name in self.right_names.items())
        return Schema((*self.left.schema.fields, *rest))

    def _checked(self) -> Schema:
        if self.how not in get_args(How):
            message = f"how={self.how!r} is not a kind of join"
            raise BadJoin(message, hint=choices("kinds", get_args(How), str(self.how)))
        self._check_keys()
        clash = [name for name in self.right_names.values() if [*self.right_names.values()].count(name) > 1]
        clash += [name for name in self.right_names.values() if name in self.left.schema]
        if clash:
            message = f"two columns of the result would be called '{clash[0]}'"
            raise BadJoin(message, hint='choose another suffix="...", or rename one upstream')
        if self.residual is not None:
            condition(self.residual, self.pair, node=self.label)
        return self._made()

    def _check_keys(self) -> None:
        for side, number in (("left", 0), ("right", 1)):
            schema = self.inputs[number].schema
            try:
                for pair in self.on:
                    known_names([pair[number]], schema, f"{side} key")
            except UnknownColumn as error:
                error.message = f"{error.message} on the {side} side"
                error.args = (error.message,)
                raise
        for left, right in self.on:
            kinds = self.left.schema.types[left], self.right.schema.types[right]
            if kinds[0] != kinds[1]:
                message = f"the keys '{left}' and '{right}' have different types: {kinds[0]} and {kinds[1]}"
                raise BadSchema(message, hint=f'cast one of them first: select({left}="cast({left} as ...)")')

    def _made(self) -> Schema:
        if self.how in ("semi", "anti"):
            return self.left.schema
        no_left, no_right = self.how in ("right", "full"), self.how in ("left", "full")
        both = []
        for field in self.pair:
            if field.name in self.shared:
                right = self.right.schema.field(field.name)
                # A null key matches nothing: it remains only where rows without a partner do.
                lacks = (field.nullable and no_right) or (right.nullable and no_left)
            else:
                mine = field.name in self.left.schema
                lacks = field.nullable or (no_left if mine else no_right)
            both.append(Field(field.name, field.type, lacks))
        return Schema(tuple(both))

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """One side's keys, if each of its rows has one partner at most; or those of both."""
        left, right = self.left.keys_unique, self.right.keys_unique
        if self.how in ("semi", "anti"):
            return left
        renamed = None if right is None else tuple(self.right_names.get(name, name) for name in right)
        one_right = right is not None and {*right} <= {pair[1] for pair in self.on}
        one_left = left is not None and {*left} <= {pair[0] for pair in self.on}
        if one_right and left is not None and self.how in ("inner", "left"):
            return left
        if one_left and renamed is not None and self.how in ("inner", "right"):
            return renamed
        if left is None or renamed is None:
            return None
        return tuple(dict.fromkeys((*left, *renamed)))

    @property
    def detail(self) -> str:
        """How, keys and condition."""
        keys = ", ".join(left if left == right else f"{left} = {right}" for left, right in self.on)
        parts = [self.how, f"on {keys}" if keys else "every pair of rows", self.residual and f"where {self.residual}"]
        return " ".join(part for part in parts if part)
