"""Keyed state over many epochs with compaction: time per epoch, files and bytes of the checkpoint stay flat."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import results
from benchmarks.data import CACHE
from benchmarks.process import answered
from benchmarks.results import OURS, Bar, Result
from benchmarks.soak_jobs import Soak
from penstock.settings import cores

FLAT = 1.5
# Of so many parts of the epochs, the last is compared with the first after the number of files has settled.
_PARTS = 10
NOTE = """
{epochs:,} epochs, each of which touches {touched:,} of {keys:,} keys of a process function in Python, generated rows,
no output, RocksDB. Files and bytes are those of the state: runs and Spark's own. Compared are medians of a tenth of
the epochs: the last with the third, when epochs are no longer retained.
"""


def run(
    json: Path | str | None = None, epochs: int = 2_000, keys: int = 100_000, touched: int = 1_000, cache: Path = CACHE
) -> int:
    """Run the epochs; return 1 if a count is wrong."""
    work = cache.absolute() / "soak"
    shutil.rmtree(work, ignore_errors=True)
    try:
        told, peak_mb = answered("benchmarks.soak_jobs", Soak(str(work), epochs, keys, touched, cores()), "soak")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    # An epoch that was too short to be seen has none.
    seconds = epochs * sum(told["seconds"]) / len(told["seconds"])
    equal = told["rows"] == epochs * touched
    found = Result(OURS, "soak", round(epochs * touched / seconds), round(seconds, 2), peak_mb, equal, _extra(told))
    settings = {"epochs": epochs, "keys": keys, "touched": touched}
    made = {**results.document("soak", settings, [found]), "series": told}
    target = Path(json) if json else cache / "soak.json"
    results.save(made, target)
    draw(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(**settings), bars(told))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if equal else 1


def bars(told: Mapping[str, Sequence[float]]) -> Iterator[Bar]:
    """Say which series stayed flat."""
    for name in ("seconds", "files", "bytes"):
        first, last = _medians(told[name])
        ratio = last / first if first else 1.0
        yield Bar(f"{name}: {ratio:.2f} x from the third tenth to the last, bar {FLAT:.2f}", ratio <= FLAT)


def draw(made: Mapping[str, Any], path: Path) -> None:
    """Write a PNG of the three series over the epochs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(picture)
    for number, name in enumerate(("seconds", "files", "bytes"), start=1):
        axes = picture.add_subplot(3, 1, number)
        values = made["series"][name]
        # Files and bytes are counted after some of the epochs only.
        step = made["settings"]["epochs"] / len(values)
        axes.plot([step * place for place in range(len(values))], values, color="#0b7285", linewidth=0.8)
        axes.set(ylabel=name, ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("epoch")
    where, what = made["machine"], made["settings"]
    keys = f"{what['touched']:,} of {what['keys']:,} keys an epoch"
    picture.suptitle(f"keyed state: {keys}, {where['cores']} cores, {where['date'][:10]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)


def _extra(told: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    ms, megabytes = round(1000 * median(told["seconds"])), round(told["bytes"][-1] / 1e6, 1)
    return {"epoch ms": ms, "files": told["files"][-1], "MB": megabytes}


def _medians(series: Sequence[float]) -> tuple[float, float]:
    part = max(len(series) // _PARTS, 1)
    return median(series[2 * part : 3 * part] or series[:part]), median(series[-part:])
