"""What is combined with what: an order of cells in which any hundred that follow one another meet every pair."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations, product

CHOICES = {
    "source": ("topic", "files"),
    "sink": ("topic", "files", "postgresql"),
    "pipeline": ("windowed", "aggregated", "stateless"),
    "lane": ("native", "spark"),
    # The last two are parts of a Spark cluster.
    "victim": ("driver", "worker", "broker", "executor", "node"),
}
Pair = tuple[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Cell:
    """One way through the matrix."""

    source: str
    sink: str
    pipeline: str
    lane: str
    victim: str

    @property
    def pairs(self) -> set[Pair]:
        """Every two choices that meet here."""
        return set(combinations(asdict(self).items(), 2))

    @property
    def on_cluster(self) -> bool:
        """Whether it runs on a Spark cluster instead of in one JVM."""
        return self.victim in ("executor", "node")

    @property
    def has_topics(self) -> bool:
        """Whether a broker has a part in it."""
        return "topic" in (self.source, self.sink)

    def __str__(self) -> str:
        return f"{self.source} -> {self.pipeline} ({self.lane}) -> {self.sink}, kill {self.victim}"


def cell_of(seed: int) -> Cell:
    """Return the cell of a run: its seed alone says which."""
    order = ordered()
    return order[seed % len(order)]


@cache
def ordered() -> tuple[Cell, ...]:
    """Return all cells, in rounds that each meet every pair as far as cells are left."""
    cells = [cell for cell in map(Cell, *zip(*product(*CHOICES.values()), strict=True)) if _is_possible(cell)]
    random.Random(6).shuffle(cells)
    order: list[Cell] = []
    while cells:
        order += _round(cells)
    return tuple(order)


def _round(left: list[Cell]) -> list[Cell]:
    """Take cells out of those left, the most telling first, until another one tells nothing new."""
    taken: list[Cell] = []
    met: set[Pair] = set()
    while left:
        best = max(left, key=lambda cell: len(cell.pairs - met))
        if taken and best.pairs <= met:
            break
        left.remove(best)
        taken.append(best)
        met |= best.pairs
    return taken


def _is_possible(cell: Cell) -> bool:
    return cell.victim != "broker" or cell.has_topics
