"""A sample of the rows of a node, as JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.driver.previews import path_to, preview
from penstock.driver.stored_rows import rows_of_sink, rows_of_source
from penstock.errors import RequestRefused, UnknownJob, choices
from penstock.pipeline import Pipeline
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Read, Write
from penstock.rejected.rows import row_dicts, row_json
from penstock.settings import Settings

LONGEST_TEXT = 10_000
# So many rows of the source for each one that is wanted, for a filter may leave most of them out.
_MORE = 20


def sample(pipeline: Pipeline, settings: Settings, name: str, limit: int) -> dict[str, Any]:
    """Return some rows of a node: of a source or sink as they are stored, else what it makes of its source's."""
    node = _node(pipeline, name)
    if isinstance(node, Read):
        stored = rows_of_source(node.source, pipeline.name, settings, limit)
        return _shown(stored.rows, stored.where, stored.note)
    if isinstance(node, Write):
        try:
            stored = rows_of_sink(node.sink, node.schema, pipeline.name, settings, limit)
        except RequestRefused:
            return _preview(pipeline, settings, node, limit)
        return _shown(stored.rows, "sink", stored.note)
    return _preview(pipeline, settings, node, limit)


def _preview(pipeline: Pipeline, settings: Settings, node: Node, limit: int) -> dict[str, Any]:
    read, steps = path_to(node, pipeline.graph)
    stored = rows_of_source(read.source, pipeline.name, settings, limit * _MORE)
    rows = preview(stored.rows, read, steps, pipeline.graph)
    note = f"computed now from {stored.rows.num_rows:,} rows: {stored.note}"
    return _shown(rows.slice(0, limit), "preview", note)


def _node(pipeline: Pipeline, name: str) -> Node:
    found = next((node for node, known in pipeline.graph.names.items() if known == name), None)
    if found is None:
        message = f"the pipeline has no node {name!r}"
        raise UnknownJob(message, hint=choices("nodes", pipeline.graph.names.values(), name))
    return found


def _shown(rows: pa.Table, source: str, note: str) -> dict[str, Any]:
    return {"columns": rows.column_names, "rows": plain_rows(rows), "source": source, "note": note}


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON has them: times and decimals as text, bytes in base64, long texts cut off."""
    return [_cut(json.loads(row_json(row))) for row in row_dicts(rows)]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[:LONGEST_TEXT] + "..."
    if isinstance(value, dict):
        return {name: _cut(part) for name, part in value.items()}
    return [_cut(part) for part in value] if isinstance(value, list) else value
