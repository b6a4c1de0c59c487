"""Joins: tables of FROM that WHERE or ON connects by equalities are joined by keys; the rest is filtered."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.plan.relations import Filter, Join, Relation
from penstock.plan.relations.joins import How
from penstock.query.relations.context import Context
from penstock.query.relations.keys import equality, with_keys
from penstock.query.relations.trees import columns_of, condition_text


def filtered(relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
    """Return the rows for which all conditions hold."""
    text = condition_text(conditions)
    return Filter(relation, text) if text else relation


def inner(pool: Sequence[Relation], conditions: Sequence[exp.Expr], context: Context) -> Relation:
    """Join relations, in their order where it can be: by equalities, and without one only what nothing connects."""
    left, rest = list(pool), list(conditions)
    left = [_filtered_by(one, rest) for one in left]
    while len(left) > 1:
        one, other = _connected(left, rest) or (0, 1)
        joined = pair(left[one], left[other], rest, context)
        left[one] = _filtered_by(joined, rest)
        del left[other]
    return filtered(left[0], rest)


def _filtered_by(relation: Relation, conditions: list[exp.Expr]) -> Relation:
    """Apply the conditions that the relation has all columns of, and take them off the list."""
    names = {*relation.schema.names}
    mine = [one for one in conditions if columns_of(one) and columns_of(one) <= names]
    conditions[:] = [one for one in conditions if one not in mine]
    return filtered(relation, mine)


def _connected(pool: Sequence[Relation], conditions: Sequence[exp.Expr]) -> tuple[int, int] | None:
    for one in range(len(pool)):
        for other in range(one + 1, len(pool)):
            if any(equality(each, pool[one].schema, pool[other].schema) for each in conditions):
                return one, other
    return None


def pair(left: Relation, right: Relation, conditions: list[exp.Expr], context: Context) -> Relation:
    """Join two relations by the equalities among conditions, which are taken off the list."""
    found = [(each, equality(each, left.schema, right.schema)) for each in conditions]
    used = [(each, equal) for each, equal in found if equal is not None]
    conditions[:] = [each for each, equal in found if equal is None]
    left, right, on = with_keys(left, right, [equal for _, equal in used], context)
    return Join(left, right, on, "inner")


def outer(left: Relation, right: Relation, conditions: Sequence[exp.Expr], how: How, context: Context) -> Relation:
    """Join two relations so that rows without a partner count: only conditions on the other side are filters."""
    found = [(each, equality(each, left.schema, right.schema)) for each in conditions]
    rest = [each for each, equal in found if equal is None]
    if how in ("left", "semi", "anti"):
        right = _filtered_by(right, rest)
    if how == "right":
        left = _filtered_by(left, rest)
    left, right, on = with_keys(left, right, [equal for _, equal in found if equal is not None], context)
    return Join(left, right, on, how, condition_text(rest))
