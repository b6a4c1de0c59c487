"""What a run says of itself; every figure is counted or measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import datetime


@dataclass
class Counts:
    """Where the rows of one node went: rows_in is the sum of the others."""

    rows_in: int = 0
    used: int = 0
    filtered: int = 0
    late: int = 0
    rejected: int = 0
    duplicate: int = 0
    dropped: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of one more epoch."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


@dataclass
class Progress:
    """The newest epoch, and the totals so far."""

    epoch: int = -1
    epochs: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    rejected: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    epoch_ms: int = 0
    watermark: datetime | None = None
    lag_rows: int | None = None
    state_rows: int = 0


@dataclass
class Report:
    """What a run did, over all epochs of its checkpoint."""

    epochs: int = 0
    watermark: datetime | None = None
    ended: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
