"""The operator that maintains the first n rows of each group. Only the driver imports this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from penstock.incremental.circuit.appended_top import AppendedTopRows
from penstock.incremental.circuit.ranking import First
from penstock.incremental.circuit.state import Arrangement
from penstock.incremental.circuit.top import TopRows, top_schemas

NewArrangement = Callable[[pa.Schema, Iterable[str]], Arrangement]


def top_operator(
    schema: pa.Schema, rows: pa.Schema, first: First, rank: str | None, new: NewArrangement, *, append_only: bool
) -> TopRows | AppendedTopRows:
    """Return the operator; `rows` is the schema of its input, `schema` that of its result, both with the weight."""
    if append_only:
        return AppendedTopRows(schema, new(rows, first.keys), first, rank)
    nodes, roots = (new(one, first.keys) for one in top_schemas(pa.schema([*rows][:-1]), first.keys))
    return TopRows(schema, nodes, roots, first, rank)
