"""Random relations as views of streams: their inputs as bags whose rows have a column for deletions."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from penstock.plan.relations import Input, Latest, Relation
from penstock.schema import Field, Schema
from tests.incremental.circuit.harness import Epoch
from tests.incremental.circuit.random_relations import LOG, A, B

GONE = "gone"


def as_views(relation: Relation) -> Relation:
    """Return a relation whose inputs are streams."""
    if relation in (A, B):
        assert isinstance(relation, Input)
        schema = Schema((*relation.schema.fields, Field(GONE, "boolean")))
        return Latest(Input(relation.name, schema), (), relation.schema.names, GONE)
    if isinstance(relation, Input):
        return relation
    changed: dict[str, Any] = {}
    for part in fields(relation):  # type: ignore[arg-type]
        value = getattr(relation, part.name) if part.init else None
        if isinstance(value, Relation):
            changed[part.name] = as_views(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Relation):
            changed[part.name] = tuple(map(as_views, value))
    return replace(relation, **changed)  # type: ignore[type-var]


def as_rows(name: str, epoch: Epoch) -> list[dict[str, Any]]:
    """Return the changes of an input as rows of a stream: a row comes before it is deleted."""
    changes = epoch.get(name, [])
    names = LOG.schema.names
    if name == LOG.name:
        return [dict(zip(names, row, strict=True)) for row, _ in changes]
    ordered = sorted(changes, key=lambda change: -change[1])
    return [dict(zip(names, (*row, n < 0), strict=True)) for row, n in ordered]


def as_table(name: str, epoch: Epoch) -> pa.Table:
    """Return the same as a table."""
    return pa.Table.from_pylist(as_rows(name, epoch), schema=LOG.schema.nullable().arrow)
