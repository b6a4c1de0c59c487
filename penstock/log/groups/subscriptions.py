"""The topics in a consumer's metadata. Groups need not be consumers, so anything else is none of our business."""

from __future__ import annotations

import struct

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics that a consumer subscribes to, or None if these bytes do not say."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
        return frozenset(_strings(metadata, 6, count))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _strings(data: bytes, at: int, count: int) -> list[str]:
    found = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        text = data[at + 2 : at + 2 + size]
        if size < 0 or len(text) < size:
            msg = "a topic's name is cut short"
            raise ValueError(msg)
        found.append(text.decode())
        at += 2 + size
    return found
