"""What the driver reads back from Spark's and the sources' own files."""

from __future__ import annotations

import json
from typing import Any

from penstock.folders import Folder

# In a scan's offset, how many declared times it has given.
TICKS = "@ticks"
REPLAY = "replay.json"


def note_offsets(folder: Folder, offsets: dict[str, Any]) -> None:
    """Note how far a source was read; Spark's planner runs in a process of its own."""
    folder.write("offsets.json", json.dumps(offsets).encode(), sync=False)


def last_offsets(folder: Folder) -> dict[str, Any]:
    """Return how far a source was read."""
    found: dict[str, Any] = json.loads(folder.read("offsets.json") or "{}")
    return found


def note_planned(folder: Folder, query: str, epoch: int, end: dict[str, Any]) -> None:
    """Note up to where an epoch of a query reads a source."""
    folder.write(f"planned-{query}.json", json.dumps([epoch, end]).encode(), sync=False)


def reached_offsets(folder: Folder, query: str, epoch: int) -> dict[str, Any]:
    """Return up to where a source was read by an epoch that is done, if that was noted."""
    noted = folder.read(f"planned-{query}.json")
    planned, end = json.loads(noted) if noted else (epoch, {})
    return {key: value for key, value in end.items() if key != TICKS} if planned <= epoch else {}


def noted_end(folder: Folder, query: str, epoch: int) -> dict[str, Any] | None:
    """Return up to where an epoch reads a source, if it was the last that was planned for it."""
    noted = folder.read(f"planned-{query}.json")
    planned, end = json.loads(noted) if noted else (None, None)
    return end if planned == epoch else None


def replayed_ends(query: Folder) -> dict[str, dict[int, Any]]:
    """Return the bounds of epochs that run again, by source: after damage they must be what they were."""
    found = json.loads(query.read(REPLAY) or "{}")
    return {source: {int(epoch): end for epoch, end in ends.items()} for source, ends in found.items()}


def newest_epoch(query: Folder) -> int:
    """Return the newest epoch that Spark planned, or -1."""
    return max((int(name) for name in (query / "offsets").names() if name.isdigit()), default=-1)


def planned_epoch(query: Folder, epoch: int) -> list[str]:
    """Return what Spark noted when it planned an epoch: a version, a header, and a line for each source."""
    return (query.read(f"offsets/{epoch}") or b"").decode().splitlines()


def watermark_us(query: Folder, epoch: int | None = None) -> int:
    """Return the watermark of an epoch in microseconds; 0 before the first."""
    lines = planned_epoch(query, newest_epoch(query) if epoch is None else epoch)
    return int(json.loads(lines[1])["batchWatermarkMs"]) * 1000 if lines else 0
