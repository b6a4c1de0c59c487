"""The pipelines of `examples/` with the native lane and without it, in one process and by turns.

A lane that made one of them slower would have to be left out. Two are missing: `large_trades` runs at real-time, which
has no lanes, and `word_count` reads a terminal.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

import penstock as ps
from benchmarks import results
from benchmarks.bars import NEVER_SLOWER
from benchmarks.data import CACHE
from penstock.entry_points import load_entry

ROOT = Path(__file__).parent.parent
LANES = {results.OURS: "auto", "spark": "spark"}
NOTE = """
seconds: best of {runs} runs after {warm} warm-up, in one process and by turns, until all results are written.
penstock: the native lane takes what it can; spark: lane="spark", all of the pipeline is Spark's. equal: both lanes
gave the same rows.
"""


@dataclass(frozen=True)
class Example:
    """One file of `examples/`: how many rows it is given, and where its results are."""

    name: str
    rows: int
    folder: str
    pattern: str
    output: str

    def pipeline(self, folder: Path, scale: float) -> ps.Pipeline:
        """Build it, writing below a folder."""
        sets = [f"{self.output}={folder}", f"rows={round(self.rows * scale)}"]
        return load_entry(f"{ROOT}/examples/{self.name}.py", sets)

    def answer(self, folder: Path) -> list[tuple[object, ...]]:
        """Return what it wrote, sorted; sums of floats may differ in the last digits."""
        with duckdb.connect() as db:
            found = db.sql(f"FROM '{folder}/{self.folder}{self.pattern}'")
            columns = [
                f'round("{name}", 6) AS "{name}"' if kind == "DOUBLE" else f'"{name}"'
                for name, kind in zip(found.columns, map(str, found.types), strict=True)
            ]
            return found.select(", ".join(columns)).order("ALL").fetchall()


EXAMPLES = (
    Example("vwap", 4_000_000, "vwap/", "*.parquet", "data"),
    Example("user_activity", 400_000, "", "*.parquet", "out"),
    Example("sessionization", 60_000, "", "*.json", "out"),
)


def run(
    json: Path | str | None = None,
    *,
    scale: float = 1.0,
    runs: int = 3,
    warmups: int = 1,
    examples: Sequence[Example] = EXAMPLES,
    cache: Path = CACHE,
    settings: ps.Settings | None = None,
) -> int:
    """Time each example in both lanes; return 1 if the results differ."""
    settings = settings or ps.Settings()
    found = [result for example in examples for result in _measured(example, scale, runs, warmups, settings)]
    made = results.document("examples", {"scale": scale, "runs": runs, "warm_up": warmups}, found)
    target = Path(json) if json else cache / "examples.json"
    results.save(made, target)
    bars = [
        results.Bar(f"{pair} {ratio:.2f}, bar {NEVER_SLOWER:.2f}", ratio >= NEVER_SLOWER)
        for pair, ratio in made["ratios"].items()
    ]
    results.show(made, NOTE.format(runs=runs, warm=warmups), bars)
    print(f"written: {target}")
    return 0 if all(result.equal for result in found) else 1


def _measured(
    example: Example, scale: float, runs: int, warmups: int, settings: ps.Settings
) -> Iterator[results.Result]:
    best = dict.fromkeys(LANES, float("inf"))
    answers: dict[str, list[tuple[object, ...]]] = {}
    for number in range(warmups + runs):
        for system, lane in LANES.items():
            with _folder() as folder:
                seconds = _timed(lambda: _run(example, folder, scale, replace(settings, lane=lane)))  # noqa: B023 - called at once
                answers[system] = example.answer(folder)
            print(f"{example.name}, {system}: {seconds:.2f} s", flush=True)
            if number >= warmups:
                best[system] = min(best[system], seconds)
    equal = answers[results.OURS] == answers["spark"] != []
    for system, seconds in best.items():
        rate = round(example.rows * scale / seconds)
        yield results.Result(system, example.name, rate, round(seconds, 3), None, equal)


def _run(example: Example, folder: Path, scale: float, settings: ps.Settings) -> None:
    example.pipeline(folder, scale).run(until="ended", checkpoint=folder / "_checkpoint", settings=settings)


def _timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def _folder() -> Iterator[Path]:
    folder = CACHE.absolute() / "examples"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
