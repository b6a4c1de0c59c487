"""Rejected and late rows of a job: those in their sinks, and the replay of rejected ones into their source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.contracts import REJECTED
from penstock.driver.sampling import plain_rows
from penstock.driver.stored_rows import RECORD, StoredRows, rows_of_sink
from penstock.errors import RequestRefused
from penstock.pipeline import Pipeline
from penstock.plan.graph import late_output_of
from penstock.rejected.reading import read_rejected, resolve_location
from penstock.rejected.replay import replay
from penstock.settings import Settings
from penstock.storage.folders import folder

# As in `rejected_to`: TOPIC/PARTITION@OFFSET.
_POSITION = re.compile(r".*/(\d+)@(\d+)")
_RECORD_COLUMNS = tuple(f"_{name}" for name in RECORD)


def diverted(pipeline: Pipeline, settings: Settings, kind: str, limit: int) -> dict[str, Any]:
    """Return the newest rejected or late rows of a job, the newest first."""
    if kind == "late":
        return _late(pipeline, settings, limit)
    sink = pipeline.graph.rejected_to
    if sink is None:
        message = "rejected rows are counted only: the pipeline has no rejected_to"
        raise RequestRefused(message, hint='give it a sink: ps.Pipeline(..., rejected_to=ps.topic("rejected"))')
    stored = rows_of_sink(sink, REJECTED, pipeline.name, settings, limit, RECORD)
    items = [_rejected(row) for row in plain_rows(stored.rows)]
    return _answer(kind, sink.describe_target(), items, stored.note, limit)


def _late(pipeline: Pipeline, settings: Settings, limit: int) -> dict[str, Any]:
    found: list[tuple[str, str, StoredRows]] = []
    for write in pipeline.graph.writes:
        side = late_output_of(write)
        if side is not None:
            stored = rows_of_sink(write.sink, write.schema, pipeline.name, settings, limit, RECORD)
            found.append((pipeline.graph.name(side.input), write.sink.describe_target(), stored))
    if not found:
        message = "late rows are counted only: no node of the pipeline has late_to"
        raise RequestRefused(message, hint='give them a sink: .window(..., late_to=ps.topic("late"))')
    items = [_late_row(node, row) for node, _, stored in found for row in plain_rows(stored.rows)]
    targets, notes = (
        ", ".join(dict.fromkeys(texts)) for texts in zip(*((t, s.note) for _, t, s in found), strict=True)
    )
    return _answer("late", targets, items, notes, limit)


def _answer(kind: str, target: str, items: list[dict[str, Any]], note: str, limit: int) -> dict[str, Any]:
    newest = sorted(items, key=lambda item: item["at"] or "", reverse=True)[:limit]
    return {"kind": kind, "target": target, "items": newest, "note": note}


def _rejected(row: Mapping[str, Any]) -> dict[str, Any]:
    position = _POSITION.fullmatch(row.get("position") or "")
    return {
        "at": row.get("_timestamp"),
        "node": row.get("node"),
        "reason": row.get("reason"),
        "source": row.get("source"),
        "position": row.get("position"),
        "partition": int(position[1]) if position else None,
        "offset": int(position[2]) if position else None,
        "epoch": row.get("epoch"),
        # What was cut off is still base64.
        "raw_base64": row["raw"].removesuffix("...") if row.get("raw") else None,
        "row": _object(row.get("row")),
    }


def _late_row(node: str, row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in row.items() if name not in _RECORD_COLUMNS}
    return {"at": row.get("_timestamp"), "node": node, "reason": "it came after the watermark", "row": values}


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text) if text else None
    except ValueError:  # it was cut off
        return {"row": text}
    return found if isinstance(found, dict) else None


def replay_rejected(pipeline: Pipeline, settings: Settings, checkpoint: str, limit: int | None) -> dict[str, Any]:
    """Send rejected rows back to their sources, each once, as `penstock replay` does."""
    if pipeline.graph.rejected_to is None:
        message = "there are no rejected rows to replay: the pipeline has no rejected_to"
        raise RequestRefused(message, hint='give it a sink: ps.Pipeline(..., rejected_to=ps.topic("rejected"))')
    place = resolve_location(None, pipeline.graph.rejected_to)
    rows = read_rejected(place, pipeline.name, settings)
    done = replay(pipeline, rows, folder(checkpoint), settings, limit=limit)
    return {
        "replayed": sum(done.rows.values()),
        "to": ", ".join(dict.fromkeys(done.into[name] for name in done.rows)) or None,
        "before": done.before,
        "rejected": len(rows),
        "lost": [{"node": node, "reason": why, "rows": count} for (node, why), count in done.lost.items()],
    }
