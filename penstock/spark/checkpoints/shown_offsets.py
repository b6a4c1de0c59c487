"""Offsets as people are shown them: up to where each source was read, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.connectors.offsets import ID
from penstock.plan.naming import RESERVED


def by_partition(offsets: Mapping[str, Any]) -> dict[str, Any]:
    """Return where each partition was read up to, without what is Penstock's own and the id of a topic.

    >>> by_partition({"0": 17, "1": 4, "@ticks": 1, "id": "vQpPHnXcTIWq0Tqgiz8u6A"})
    {'0': 17, '1': 4}
    >>> by_partition({"id": 3, "name": 4})
    {'id': 3, 'name': 4}
    """
    found = {part: place for part, place in offsets.items() if not part.startswith("@")}
    # A source of the user's own may call its partitions as it likes; those of a topic are numbers.
    of_topic = isinstance(found.get(ID), str) and all(part.isdecimal() for part in found if part != ID)
    return {part: place for part, place in found.items() if not (of_topic and part == ID)}


def by_source(offsets: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the same for all sources, without those that Penstock adds to a query."""
    return {name: by_partition(one) for name, one in offsets.items() if isinstance(one, dict) and name not in RESERVED}
