"""What a driver reports, as events of the state machine. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.control.machine.events import (
    DriverEnded,
    DriverGone,
    DriverRunning,
    Event,
    Outcome,
    SavepointCreated,
    SavepointFailed,
)
from penstock.control.machine.failure import Failure
from penstock.control.store.repositories.epochs import Epoch

# The end of input is a watermark that no window reaches, of the year 9998.
END_OF_INPUT = datetime(9998, 1, 1, tzinfo=UTC).timestamp()
_UNKNOWN = Failure("DriverFailed", "the driver reported no error")


def event_of(message: Mapping[str, Any], run: str, savepoints: str) -> Event | None:
    """Return the event of the state machine in a driver's message; None if it has none.

    `savepoints` is the folder of the job's savepoints.
    """
    match message.get("kind"):
        case "running":
            return DriverRunning(run)
        case "savepoint":
            name = str(message.get("savepoint"))
            return SavepointCreated(run, name, str(message.get("path") or f"{savepoints}/{name}"))
        case "savepoint_failed":
            return SavepointFailed(run, str(message.get("savepoint")), _failure(message.get("error")) or _UNKNOWN)
        case "ended":
            return ended(message, run, savepoints)
        case _:
            return None


def ended(message: Mapping[str, Any], run: str, savepoints: str) -> DriverEnded:
    """Return the end of a run, from an `ended` event or an outcome file."""
    try:
        outcome = Outcome(str(message.get("outcome")))
    except ValueError:
        outcome = Outcome.FAILED
    name = message.get("savepoint")
    return DriverEnded(run, outcome, _failure(message.get("error")), f"{savepoints}/{name}" if name else None)


def gone(run: str, exit_code: int | None) -> DriverGone:
    """Return the end of a run whose driver wrote no outcome."""
    if exit_code is not None and exit_code < 0:
        return DriverGone(run, f"the driver was killed by {_signal(-exit_code)}", exit_code)
    return DriverGone(run, "the driver's process ended without an outcome", exit_code)


def epoch_of(message: Mapping[str, Any], job: str, run: str) -> Epoch:
    """Return the epoch in an `epoch` event."""
    return Epoch(
        job=job,
        number=int(message.get("epoch", -1)),
        run=run,
        at=float(message.get("at") or 0.0),
        rows_in=int(message.get("rows_in") or 0),
        rows_out=int(message.get("rows_out") or 0),
        late=int(message.get("late") or 0),
        rejected=int(message.get("rejected") or 0),
        duration_ms=round(float(message.get("duration_ms") or 0)),
        phases=message.get("phases") or None,
        watermark=seconds(message.get("watermark")),
    )


_SHOWN = (
    "epoch",
    "rows_in",
    "rows_out",
    "late",
    "rejected",
    "rows_in_per_s",
    "duration_ms",
    "watermark",
    "lag",
    "latency_ms",
)


def shown(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what subscribers get of an epoch."""
    return {name: message.get(name) for name in _SHOWN} | watermark_of(message.get("watermark"))


def shown_nodes(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what subscribers of one job get besides: its nodes, and the phases of the epoch."""
    found = message.get("nodes") or {}
    nodes = {name: {**node, **watermark_of(node.get("watermark"))} for name, node in found.items()}
    return {"nodes": nodes, "phases": message.get("phases") or {}}


def watermark_of(text: Any) -> dict[str, Any]:
    """Return a watermark as responses have it: at the end of input there is none.

    >>> watermark_of("9998-12-31T23:59:55+00:00"), watermark_of("2026-11-17T10:00:00+00:00")["ended_input"]
    ({'watermark': None, 'ended_input': True}, False)
    """
    at = seconds(text)
    ended = at is not None and at >= END_OF_INPUT
    return {"watermark": None if ended else text, "ended_input": ended}


def seconds(text: Any) -> float | None:
    """Return a time in ISO format as seconds since 1970.

    >>> seconds("1970-01-01T00:01:00+00:00")
    60.0
    """
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def _failure(value: Any) -> Failure | None:
    return Failure.from_json(value) if isinstance(value, Mapping) else None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
