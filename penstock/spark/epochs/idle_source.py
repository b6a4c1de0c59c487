"""A source without rows, by which Spark makes the state of a new plan."""

from __future__ import annotations

from typing import Any

from penstock.contracts import Offsets, Source


class Idle(Source):
    """A source that says once that it was read, and gives nothing: so Spark makes the state of a plan that is new."""

    def __init__(self, source: Source) -> None:
        self.name, self.schema = source.name, source.schema

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Always the same."""
        return {"0": 1}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> list[Any]:
        """Nothing."""
        return []
