"""Views: the incremental graph in process, and views on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import chart, results, views_process, views_spark
from benchmarks.data import CACHE
from benchmarks.results import Bar, Result


@dataclass(frozen=True)
class Part:
    """A part of the bench: how it is measured with its own sizes, what it has to reach, and what it means."""

    sizes: Callable[[], Any]
    measured: Callable[[Any], Iterable[Result]]
    bars: Callable[[Sequence[Result]], Iterator[Bar]]
    note: str


PARTS = {
    "process": Part(views_process.Sizes, views_process.measured, views_process.bars, views_process.NOTE),
    "spark": Part(views_spark.Sizes, views_spark.measured, views_spark.bars, views_spark.NOTE),
}


def run(json: Path | str | None = None, parts: Sequence[str] = (), *, cache: Path = CACHE, **sizes: Any) -> int:
    """Measure parts, by default all; return 1 if a result is wrong. `sizes` has those of a part by its name."""
    chosen = {name: PARTS[name] for name in parts or PARTS}
    found: dict[str, list[Result]] = {}
    settings: dict[str, Any] = {}
    for name, part in chosen.items():
        size = sizes.get(name) or part.sizes()
        settings |= {name: asdict(size)}
        found[name] = list(part.measured(size))
    all_found = [result for part in found.values() for result in part]
    made = results.document("views", settings, all_found)
    target = Path(json) if json else cache / "views.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"), label="changes per second")
    note = " ".join(part.note.format(**settings[name]) for name, part in chosen.items())
    results.show(made, note, [bar for name, part in chosen.items() for bar in part.bars(found[name])])
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in all_found) else 1
