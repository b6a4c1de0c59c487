"""What the epochs of one query did, kept in the checkpoint so that a restart goes on counting.

A record holds the totals up to its epoch; a replayed epoch adds to the record before it, so nothing counts twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from penstock.report import Counts, Report


@dataclass
class Totals:
    """Sums over all epochs so far."""

    epochs: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def plus(self, rows: dict[str, int], counts: dict[str, dict[str, int]]) -> Totals:
        """Return the totals with one epoch more."""
        return Totals(
            self.epochs + 1,
            _sum(self.rows, rows),
            {n: _sum(self.counts.get(n, {}), counts.get(n, {})) for n in {**self.counts, **counts}},
        )


class Records:
    """The newest two records of one query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def before(self, epoch: int) -> Totals:
        """Return the totals before an epoch; epochs that ran elsewhere may be missing."""
        numbers = [number for number in self._numbers() if number < epoch]
        return self._read(max(numbers)) if numbers else Totals()

    def newest(self) -> Totals:
        """Return the totals after the last epoch."""
        numbers = self._numbers()
        return self._read(max(numbers)) if numbers else Totals()

    def write(self, epoch: int, totals: Totals) -> None:
        """Keep the totals after an epoch."""
        temporary = self.folder / f".{epoch}"
        temporary.write_text(json.dumps(totals.__dict__))
        os.replace(temporary, self.folder / f"{epoch}.json")
        for number in self._numbers():
            if number < epoch - 1:
                (self.folder / f"{number}.json").unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob("*.json")]

    def _read(self, number: int) -> Totals:
        return Totals(**json.loads((self.folder / f"{number}.json").read_text()))


def reported(newest: Iterable[Totals], *, watermark: datetime | None, ended: bool = False) -> Report:
    """Put the totals of a run's queries together."""
    report = Report(watermark=watermark, ended=ended)
    for totals in newest:
        report.epochs = max(report.epochs, totals.epochs)
        report.rows = _sum(report.rows, totals.rows)
        report.counts |= {name: Counts(**counted) for name, counted in totals.counts.items()}
    return report


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}
