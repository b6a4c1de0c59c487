"""What the driver reads back from Spark's and the sources' own files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def note_offsets(folder: Path, offsets: dict[str, Any]) -> None:
    """Note how far a source was read; Spark's planner runs in a process of its own."""
    temporary = folder / ".offsets"
    temporary.write_text(json.dumps(offsets))
    os.replace(temporary, folder / "offsets.json")


def last_offsets(folder: Path) -> dict[str, Any]:
    """Return how far a source was read."""
    path = folder / "offsets.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def note_planned(folder: Path, query: str, epoch: int, end: dict[str, Any]) -> None:
    """Note up to where an epoch of a query reads a source."""
    temporary = folder / f".planned-{query}"
    temporary.write_text(json.dumps([epoch, end]))
    os.replace(temporary, folder / f"planned-{query}.json")


def reached_offsets(folder: Path, query: str, epoch: int) -> dict[str, Any]:
    """Return up to where a source was read by an epoch that is done, if that was noted."""
    path = folder / f"planned-{query}.json"
    planned, end = json.loads(path.read_text()) if path.exists() else (epoch, {})
    return end if planned <= epoch else {}


def newest_epoch(query_folder: Path) -> int:
    """Return the newest epoch that Spark planned, or -1."""
    offsets = query_folder / "offsets"
    if not offsets.exists():
        return -1
    return max((int(path.name) for path in offsets.iterdir() if path.name.isdigit()), default=-1)


def watermark_us(query_folder: Path, epoch: int | None = None) -> int:
    """Return the watermark of an epoch in microseconds; 0 before the first."""
    number = newest_epoch(query_folder) if epoch is None else epoch
    path = query_folder / "offsets" / str(number)
    if not path.exists():
        return 0
    header = json.loads(path.read_text().splitlines()[1])
    return int(header["batchWatermarkMs"]) * 1000
