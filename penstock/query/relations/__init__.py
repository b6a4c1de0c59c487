"""From an SQL query over views to a relation: joins, subqueries, groups, ranks, sets; correlated forms decorrelated."""

from penstock.query.relations.query import relation_of

__all__ = ["relation_of"]
