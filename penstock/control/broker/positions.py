"""Positions in a topic: the beginning, the end, an offset or a time."""

from __future__ import annotations

from datetime import datetime

from penstock.control.broker.client import KafkaClient
from penstock.errors import UnknownSetting


def start_offsets(
    client: KafkaClient,
    topic: str,
    partitions: list[int],
    *,
    to: str | None = None,
    offset: int | None = None,
    time: datetime | None = None,
) -> dict[int, int]:
    """Return the offset of a position in each partition; an offset out of range is refused."""
    asked = [(topic, each) for each in partitions]
    first = {number: found for (_, number), found in client.offsets(asked, "beginning").items()}
    if to == "beginning":
        return first
    ends = {number: found for (_, number), found in client.offsets(asked, "end").items()}
    if time is not None:
        found = client.offsets(asked, time)
        return {number: offset if offset >= 0 else ends[number] for (_, number), offset in found.items()}
    if offset is None:
        return ends
    for number in partitions:
        if not first[number] <= offset <= ends[number]:
            message = f"partition {number} of '{topic}' has no offset {offset}"
            hint = f"it has offsets {first[number]} to {ends[number]}"
            raise UnknownSetting(message, hint=f"{hint}; `partition` chooses one" if len(partitions) > 1 else hint)
    return dict.fromkeys(partitions, offset)
