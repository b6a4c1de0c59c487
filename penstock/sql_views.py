"""SQL over views: a query becomes one view, which follows all of its inputs."""

from __future__ import annotations

from penstock.errors import BadValue, choices
from penstock.plan.relations import Input
from penstock.query.relations import relation_of
from penstock.query.relations.trees import NODE
from penstock.stream import View
from penstock.views import combined


def sql_view(query: str, /, **inputs: View) -> View:
    """Query views with Spark SQL; each table name is a keyword.

    >>> import penstock as ps
    >>> bid = ps.from_items([], "auction bigint, bidder bigint, price bigint").view(["auction", "bidder"])
    >>> sql_view("SELECT auction, max(price) AS best, count(*) AS bids FROM bid GROUP BY auction", bid=bid).schema
    Schema('auction bigint, best bigint, bids bigint not null')

    Joins, subqueries (also correlated ones), WITH, groups of groups, ranks with a bound, DISTINCT, set operators,
    windows of time and ORDER BY ... LIMIT are supported; a clause that is not is refused by its name.
    """
    for name, view in inputs.items():
        if not isinstance(view, View):
            message = f"{name} is {view!r}, not a view"
            hint = "pass views by their table name: bid=bids.view(key)"
            raise BadValue(message, node=NODE, hint=hint)
    if not inputs:
        message = "no view is given"
        raise BadValue(message, node=NODE, hint=choices("write", ['sql_view("SELECT ... FROM bid", bid=view)']))
    relations, streams = combined([*inputs.values()])
    relation = relation_of(query, dict(zip(inputs, relations, strict=True)))
    read = {one.name for one in relation.operators if isinstance(one, Input)}
    return View(relation, tuple(stream for stream in streams if stream.name in read))
