"""Offset files: Spark's offset log, and the small files by which planners and the driver exchange offsets."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from penstock.storage.folders import Folder

# In a scan's offset: how many declared times it has emitted.
TICKS = "@ticks"
# In a scan's offset: from where an epoch reads that drops rows, and how many it drops.
FROM = "@from"
# In a scan's offset: it is the end of an epoch without rows that has to be planned again under this number.
EMPTY = "@empty"
# In a scan's offset: for how many tasks the epoch was split, where a sink writes splits as its partitions. A replay
# splits it in the same way, so how sources split, and their least sizes of a split, are part of a checkpoint's format.
SPLITS = "@splits"
REPLAY = "replay.json"


def write_offsets(folder: Folder, offsets: dict[str, Any]) -> None:
    """Write how far a source was read, for the driver: Spark's planner runs in a process of its own."""
    folder.write("offsets.json", json.dumps(offsets).encode(), sync=False)


def read_offsets(folder: Folder) -> dict[str, Any]:
    """Return how far a source was read."""
    found: dict[str, Any] = json.loads(folder.read("offsets.json") or "{}")
    return found


def source_offsets(offsets: dict[str, Any]) -> dict[str, Any]:
    """Return a source's own offsets, without what the scan adds to them."""
    return {key: value for key, value in offsets.items() if key not in (TICKS, FROM, EMPTY, SPLITS)}


def write_planned(
    folder: Folder,
    query: str,
    epoch: int,
    end: dict[str, Any],
    held: int | None = None,
    waiting: Sequence[str] = (),
) -> None:
    """Write up to where an epoch of a query reads a source, and how many rows its limit holds back.

    `waiting` are the partitions that have rows, none of which was read up to here.
    """
    planned = [epoch, end, held, [*waiting]]
    folder.write(f"planned-{query}.json", json.dumps(planned).encode(), sync=False)


class PlannedPartitions(NamedTuple):
    """The partitions of a source in one epoch: all that there are, and those that the watermark waits for."""

    all: Collection[str]
    waiting: Collection[str]


def planned_partitions(folder: Folder, query: str, epoch: int) -> PlannedPartitions | None:
    """Return the planned partitions of a source, if this epoch was planned last."""
    found = folder.read(f"planned-{query}.json")
    planned, end, _, *more = json.loads(found) if found else (None, {}, None)
    return PlannedPartitions(source_offsets(end), more[0]) if planned == epoch and more else None


def reached_offsets(folder: Folder, query: str, epoch: int) -> tuple[dict[str, Any], int | None]:
    """Return up to where an epoch that is done has read a source, if known, and how many rows were held back."""
    found = folder.read(f"planned-{query}.json")
    planned, end, *held = json.loads(found) if found else (epoch, {})
    return (source_offsets(end), held[0] if held else None) if planned <= epoch else ({}, None)


def rate_file(query: str) -> str:
    """Return the name of the file with the rows and seconds of the last epoch, which the planner of a source reads."""
    return f"pace-{query}.json"


def planned_end(folder: Folder, query: str) -> tuple[int, Any]:
    """Return the last epoch that was planned for a source, and up to where it reads; -1 if that is not stored."""
    found = folder.read(f"planned-{query}.json")
    if not found:
        return -1, None
    return parse_planned(found)


def parse_planned(content: bytes) -> tuple[int, Any]:
    """Return the epoch that was planned, and up to where it reads; ValueError if the file is damaged."""
    found = json.loads(content)
    if not isinstance(found, list) or len(found) < 2 or not isinstance(found[0], int):
        message = "not an epoch and its end"
        raise ValueError(message)
    return found[0], found[1]


def replayed_ends(query: Folder) -> dict[str, dict[int, Any]]:
    """Return the ends of epochs that are replayed after a repair, by source: they must be what they were."""
    found = query.read(REPLAY)
    return {} if found is None else parse_replayed(found)


def parse_replayed(content: bytes) -> dict[str, dict[int, Any]]:
    """Return the ends of epochs by source; ValueError if the file is damaged."""
    found = json.loads(content)
    if not isinstance(found, dict) or not all(isinstance(ends, dict) for ends in found.values()):
        message = "not ends by source and epoch"
        raise ValueError(message)
    return {source: {int(epoch): end for epoch, end in ends.items()} for source, ends in found.items()}


def newest_epoch(query: Folder) -> int:
    """Return the newest epoch that Spark planned, or -1."""
    return max((int(name) for name in (query / "offsets").names() if name.isdigit()), default=-1)


def offset_log_entry(query: Folder, epoch: int) -> list[str]:
    """Return the lines of Spark's offset log for an epoch: a version, a header, and one for each source."""
    return (query.read(f"offsets/{epoch}") or b"").decode().splitlines()


def split_for(query: Folder, epoch: int) -> int | None:
    """Return for how many tasks an epoch was split, if a sink writes its splits as partitions."""
    lines = offset_log_entry(query, epoch)[2:]
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    found = logged or [ends[epoch] for ends in replayed_ends(query).values() if epoch in ends]
    return next((end[SPLITS] for end in found if end and SPLITS in end), None)


def watermark_us(query: Folder, epoch: int | None = None) -> int:
    """Return the watermark of an epoch in microseconds; 0 before the first."""
    lines = offset_log_entry(query, newest_epoch(query) if epoch is None else epoch)
    return int(json.loads(lines[1])["batchWatermarkMs"]) * 1000 if lines else 0
