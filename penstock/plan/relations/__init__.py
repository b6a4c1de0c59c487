"""Relations: what a view computes, as a tree of relational operators. Checked and typed when built, without data."""

from penstock.plan.relations.codec import relation_from_json, relation_to_json
from penstock.plan.relations.groups import Aggregate, Distinct, Top
from penstock.plan.relations.joins import Join
from penstock.plan.relations.relation import Relation
from penstock.plan.relations.rows import Filter, Project
from penstock.plan.relations.sets import Except, Intersect, Union
from penstock.plan.relations.sources import Input, Latest

__all__ = [
    "Aggregate",
    "Distinct",
    "Except",
    "Filter",
    "Input",
    "Intersect",
    "Join",
    "Latest",
    "Project",
    "Relation",
    "Top",
    "Union",
    "relation_from_json",
    "relation_to_json",
]
