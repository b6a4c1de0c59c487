"""What is combined with what: blocks of cells, each of which has every pair of two choices."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import combinations, product

SINKS = ("topic", "files", "postgresql", "sqlite")
CHOICES: dict[str, tuple[str, ...]] = {
    "source": ("topic", "files"),
    "sink": SINKS,
    "pipeline": ("windowed", "aggregated", "stateless", "keyed", "process"),
    "lane": ("native", "spark"),
    # A driver is its Python, its JVM or both; of a cluster an executor, a worker node or a task's Python is killed.
    "victim": ("driver", "worker", "task", "sibling", "broker", "cluster", "checkpoint", "disk"),
    "consumers": ("1", "2", "3"),
    "parallelism": ("1", "2", "3"),
    # Narrow rows; wide rows in small Arrow batches; more rows in a partition than Spark's Arrow batch has.
    "rows": ("few", "wide", "many"),
}
# Runs with many rows take longest.
WEIGHTS = {"rows": (9, 9, 2)}
BLOCK = 50
_CANDIDATES = 60
Pair = tuple[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Cell:
    """One way through the matrix."""

    source: str
    sink: str
    pipeline: str
    lane: str
    victim: str
    consumers: str = "1"
    parallelism: str = "2"
    rows: str = "few"

    @property
    def pairs(self) -> set[Pair]:
        """Every two choices that meet here."""
        return set(combinations(asdict(self).items(), 2))

    @property
    def computed(self) -> str:
        """What the job computes: of keyed state, a process function, count windows and an as-of join in turn."""
        kinds = {"1": "counted", "2": "process", "3": "asof"}
        return kinds[self.parallelism] if self.pipeline == "process" else self.pipeline

    @property
    def on_cluster(self) -> bool:
        """Whether it runs on a Spark cluster instead of in one JVM."""
        return self.victim == "cluster"

    @property
    def sinks(self) -> dict[str, str]:
        """The kind of sink by the name of the output: consumers after the first have the next kinds."""
        first = SINKS.index(self.sink)
        kinds = [SINKS[(first + number) % len(SINKS)] for number in range(int(self.consumers))]
        names = ["out", *(f"out{number}" for number in range(2, len(kinds) + 1))]
        return dict(zip(names, kinds, strict=True))

    @property
    def has_topics(self) -> bool:
        """Whether a broker has a part in it."""
        return self.source == "topic" or "topic" in self.sinks.values()

    @property
    def is_possible(self) -> bool:
        """Whether there is something to kill, many rows reach the sinks if there are many, and it ends in time."""
        many_reach_sinks = self.pipeline in ("stateless", "keyed", "process") and self.parallelism != "3"
        return (self.victim != "broker" or self.has_topics) and (self.rows != "many" or many_reach_sinks)

    def __str__(self) -> str:
        sinks = " + ".join(self.sinks.values())
        how = f"{self.lane}, parallelism {self.parallelism}, {self.rows} rows"
        return f"{self.source} -> {self.computed} ({how}) -> {sinks}, kill {self.victim}"


def cell_of(seed: int) -> Cell:
    """Return the cell of a run: its seed alone says which."""
    return block(seed // BLOCK)[seed % BLOCK]


@cache
def block(number: int) -> tuple[Cell, ...]:
    """Return so many cells that every pair is met; blocks differ in what else they combine."""
    chance = random.Random(number)
    missing = set(possible_pairs())
    cells: list[Cell] = []
    while len(cells) < BLOCK:
        cells.append(_most_new(missing, chance))
        missing -= cells[-1].pairs
    assert not missing, f"a block of {BLOCK} cells does not meet every pair"
    chance.shuffle(cells)
    return tuple(cells)


def _most_new(missing: set[Pair], chance: random.Random) -> Cell:
    """Return the cell with the most pairs that are missing, of some that all have one of them."""
    wanted = sorted(missing)
    drawn = (_drawn(chance, dict(chance.choice(wanted)) if wanted else {}) for _ in range(_CANDIDATES))
    return max((cell for cell in drawn if cell.is_possible), key=lambda cell: len(cell.pairs & missing))


def _drawn(chance: random.Random, fixed: dict[str, str]) -> Cell:
    names = [field.name for field in fields(Cell)]
    return Cell(**{name: fixed.get(name) or chance.choices(CHOICES[name], WEIGHTS.get(name))[0] for name in names})


@cache
def possible_pairs() -> frozenset[Pair]:
    """Return the pairs that some cell can have."""
    found: set[Pair] = set()
    for (one, values), (other, others) in combinations(CHOICES.items(), 2):
        for value, another in product(values, others):
            if any(_drawn(random.Random(n), {one: value, other: another}).is_possible for n in range(50)):
                found.add(((one, value), (other, another)))
    return frozenset(found)
