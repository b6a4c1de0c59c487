"""Which relations are append-only: no row ever leaves them. Operators over them need less state."""

from __future__ import annotations

from collections.abc import Collection
from functools import singledispatch

from penstock.plan.relations.groups import Distinct
from penstock.plan.relations.joins import Join
from penstock.plan.relations.relation import Relation
from penstock.plan.relations.rows import Filter, Project
from penstock.plan.relations.sets import Intersect, Union
from penstock.plan.relations.sources import Input, Latest


@singledispatch
def append_only(relation: Relation, inputs: Collection[str]) -> bool:
    """Return whether no row ever leaves a relation, if none leaves the inputs with these names.

    >>> from penstock.plan.relations import Aggregate
    >>> from penstock.schema import Schema
    >>> bids = Latest(Input("bids", Schema("auction bigint, price bigint")))
    >>> append_only(Filter(bids, "price > 10"), {"bids"})
    True
    >>> append_only(Aggregate(bids, ("auction",), (("best", "max(price)"),)), {"bids"})
    False
    """
    return False


@append_only.register
def _input(relation: Input, inputs: Collection[str]) -> bool:
    return relation.name in inputs


@append_only.register
def _latest(relation: Latest, inputs: Collection[str]) -> bool:
    return not relation.key and relation.remove is None and append_only(relation.input, inputs)


@append_only.register
def _join(relation: Join, inputs: Collection[str]) -> bool:
    return relation.how in ("inner", "semi") and _all(relation, inputs)


@append_only.register(Distinct)
@append_only.register(Filter)
@append_only.register(Intersect)
@append_only.register(Project)
@append_only.register(Union)
def _all(relation: Relation, inputs: Collection[str]) -> bool:
    return all(append_only(one, inputs) for one in relation.inputs)
