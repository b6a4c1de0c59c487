"""The base class of relations, and the checks that they share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from penstock.errors import BadExpression, BadSchema, BadValue, choices
from penstock.plan.checked_operator import CheckedOperator
from penstock.plan.operators.grouped import is_ordered
from penstock.plan.sql_expressions.expression import Expression, predicate, scalar
from penstock.plan.translation import why_not, why_not_rows
from penstock.schema import Field, Schema

Columns = tuple[tuple[str, str], ...]
# Of a row of changes: how many times it is added, or, if negative, taken out.
WEIGHT = "__penstock_weight"


class Relation(CheckedOperator):
    """One relational operator. Frozen; checked and typed when it is built; two that are alike are one.

    Invariants: `inputs` were built before it; `schema` holds for every row of the result; a relation is a bag of rows,
    and its content is a function of the contents of its inputs alone; only for `Latest` the order of rows counts.
    """

    def _accepted(self, schema: Schema) -> Schema:
        """Refuse also types that the engine cannot carry."""
        super()._accepted(schema)
        if not len(schema):
            message = "no column is left"
            raise BadValue(message, hint="keep one column at least")
        if reason := why_not_rows(schema):
            message = f"a view cannot have {reason}"
            raise BadSchema(message, hint="cast or rename the column where it is read")
        return schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """The relations that it is made of, in order."""
        return ()

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """Columns that no two rows have in common; `()` if there is one row at most, None if nothing is known."""
        return None

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of all that it means: what state of it depends on."""
        from penstock.plan.relations.codec import fingerprint  # it knows all relations

        return fingerprint(self)

    @property
    def operators(self) -> tuple[Relation, ...]:
        """All relations of the tree, each once, inputs first."""
        found: dict[Relation, None] = {}
        _walk(self, found)
        return tuple(found)


class OneInput(Relation):
    """A relation of one other."""

    input: Relation

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """The one input."""
        return (self.input,)


def _walk(relation: Relation, found: dict[Relation, None]) -> None:
    if relation in found:
        return
    for one in relation.inputs:
        _walk(one, found)
    found[relation] = None


def computed(sql: str, schema: Schema, *, node: str) -> Expression:
    """Check an expression over one row, and that it can be evaluated here as Spark would."""
    found = scalar(sql, schema, node=node)
    _check_translated(sql, schema, node)
    return found


def condition(sql: str, schema: Schema, *, node: str) -> Expression:
    """Check a condition on one row, as `computed` does."""
    found = predicate(sql, schema, node=node)
    _check_translated(sql, schema, node)
    return found


def _check_translated(sql: str, schema: Schema, node: str) -> None:
    if reason := why_not(sql, schema):
        message = f'a view cannot evaluate "{sql}": {reason}'
        hint = "compute it in the stream upstream: stream.with_columns(...).view(...)"
        raise BadExpression(message, node=node, hint=hint)


def known_names(names: Iterable[str], schema: Schema, what: str) -> tuple[Field, ...]:
    """Return the columns of some names, each of which must be there, once, and be comparable."""
    wanted = tuple(names)
    for name in wanted:
        found = schema.field(name)
        if not is_ordered(found.type):
            message = f"the {what} '{name}' is {found.type}, and maps cannot be compared"
            raise BadValue(message, hint=f"use one value of it: {name}['x']")
    twice = [name for name in wanted if wanted.count(name) > 1]
    if twice:
        message = f"the {what} '{twice[0]}' is given twice"
        raise BadValue(message, hint=choices("columns here", schema.names))
    return tuple(schema.field(name) for name in wanted)


def comparable(schema: Schema, why: str) -> None:
    """Refuse rows that cannot be compared as a whole."""
    for field in schema:
        if not is_ordered(field.type):
            message = f"column '{field.name}' is {field.type}, and maps cannot be compared, as {why} must"
            raise BadValue(message, hint=f"leave '{field.name}' out, or turn it into an array: map_entries(...)")
