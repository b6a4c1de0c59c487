"""Messages between manager and driver: JSON objects, one a line; and what they contain of progress and errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError
from penstock.masking import HIDDEN, masked_text
from penstock.report import NodeProgress, Progress, Report

Message = dict[str, Any]
LONGEST_LINE = 4 * 1024 * 1024
# A value of a secret that is shorter could be part of any word.
_SHORTEST_SECRET = 4
# The end of input is a watermark so large that every window closes; it has no lag.
_LAST_YEAR = 9998


class Rejected(Exception):
    """Why a driver does not carry out a message."""


class BadMessage(Exception):
    """A line that is not a message."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message in a line; raises BadMessage."""
    try:
        message = json.loads(line)
    except ValueError as error:
        text = f"not JSON: {error}"
        raise BadMessage(text) from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        text = "a message is a JSON object with a type"
        raise BadMessage(text)
    return message


def describe_error(error: BaseException, secrets: Iterable[str] = ()) -> Message:
    """Return an error as messages and outcomes have it, without secrets."""
    if isinstance(error, PenstockError):
        where = f"{error.node}: " if error.node else ""
        text, hint = f"{where}{error.message}", error.hint
        code, transient = error.exit_code, error.transient
    else:
        text = str(error) or "no message"
        hint = None if isinstance(error, Rejected) else "this may be a bug in Penstock: see the log of the driver"
        code, transient = 1, isinstance(error, OSError | MemoryError)
    return {
        "type": type(error).__name__,
        "message": _without(text, secrets),
        "hint": _without(hint, secrets) if hint else None,
        "transient": transient,
        "exit_code": code,
    }


def _without(text: str, secrets: Iterable[str]) -> str:
    for value in secrets:
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, HIDDEN)
    return masked_text(text)


def describe_progress(progress: Progress, now: float) -> Message:
    """Return the newest epoch and the totals so far; `now` is in seconds since 1970."""
    return {
        "epoch": progress.epoch,
        "epochs": progress.epochs,
        "rows_in": progress.rows_in,
        "rows_out": progress.rows_out,
        "late": progress.late,
        "rejected": progress.rejected,
        "filtered": progress.filtered,
        "rows_in_per_s": progress.rows_in_per_s,
        "rows_out_per_s": progress.rows_out_per_s,
        "duration_ms": progress.epoch_ms,
        "phases": progress.phases,
        "watermark": progress.watermark.isoformat() if progress.watermark else None,
        "watermark_lag_ms": _watermark_lag(progress.watermark, now),
        "lag": progress.lag_rows,
        "partition_lags": progress.partition_lags,
        "state_rows": progress.state_rows,
        "state_bytes": progress.state_bytes,
        "backpressure": progress.backpressure_ratio,
        "latency_ms": progress.latency_ms,
    }


# Of these an epoch event has what was added since the event before.
_COUNTED = ("rows_in", "rows_out", "late", "rejected", "filtered")


def describe_epoch(progress: Progress, before: Progress, now: float) -> Message:
    """Return an epoch: rows since the event before, `totals` with those of all epochs, and `nodes` with each node."""
    whole = describe_progress(progress, now)
    added = {name: getattr(progress, name) - getattr(before, name) for name in _COUNTED}
    nodes = {name: describe_node(node) for name, node in progress.nodes.items()}
    return {**whole, **added, "totals": {name: whole[name] for name in _COUNTED}, "nodes": nodes}


def describe_node(node: NodeProgress) -> Message:
    """Return a node: its counts over all epochs, and what the newest one shows of it."""
    counts = node.counts.as_dict()
    return {
        "in": counts.pop("rows_in"),
        **counts,
        "rate": round(node.rows_in_per_s, 3),
        "state_rows": node.state_rows,
        "state_bytes": node.state_bytes,
        "watermark": node.watermark.isoformat() if node.watermark else None,
        "backpressure": node.backpressure_ratio,
    }


def describe_report(report: Report) -> Message:
    """Return a run's report."""
    content = asdict(report)
    content.pop("watermarks")
    content["watermark"] = report.watermark.isoformat() if report.watermark else None
    return content


def _watermark_lag(watermark: datetime | None, now: float) -> int | None:
    if watermark is None or watermark.year >= _LAST_YEAR:
        return None
    at = watermark if watermark.tzinfo else watermark.replace(tzinfo=UTC)
    return round((now - at.timestamp()) * 1000)
