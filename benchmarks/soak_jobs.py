"""The job of the soak: `python -m benchmarks.soak_jobs CONFIG` prints a series for each figure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from benchmarks.child import end_with_parent

# Measuring lists all files, which takes longer than an epoch may.
_EVERY = 5
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Soak:
    """What to run."""

    work: str
    epochs: int
    keys: int
    touched: int
    cores: int


class Counted(ps.Process):
    """A count of the rows of each key."""

    output = "key string, n bigint"
    n = ps.state.value(int)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[dict[str, Any]]:
        """Count."""
        self.n.set(self.n.get(0) + 1)
        yield {"key": row["key"], "n": self.n.get()}


def soak(job: Soak) -> dict[str, Any]:
    """Run the epochs, and measure after each."""
    folder = Path(job.work) / "checkpoint"
    made: dict[str, Any] = {"seconds": [], "files": [], "bytes": [], "rows": 0}
    rows = ps.datagen("key string", rows=job.epochs * job.touched, keys=job.keys)
    settings = ps.Settings(epoch_rows=job.touched, parallelism=job.cores, state="rocksdb")
    pipeline = ps.Pipeline("soak", rows.key_by("key").process(Counted()).to(ps.callback(_ignored)))
    run = pipeline.start(until="drained", checkpoint=folder, settings=settings)
    seen = 0
    while not run.wait(_POLL_SECONDS):
        progress = run.progress()
        if progress.epochs > seen:
            made["seconds"].append(progress.epoch_ms / 1000)
        if progress.epochs // _EVERY > seen // _EVERY:
            sizes = [*_sizes(folder)]
            made["files"].append(len(sizes))
            made["bytes"].append(sum(sizes))
        seen = progress.epochs
    made["rows"] = run.progress().rows_out
    return made


def _ignored(epoch: Any, table: Any) -> None:
    """Drop rows."""


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the sizes of the files of state; some may be deleted meanwhile."""
    for part in ("keyed", "queries"):
        for path in (folder / part).rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file() and path.suffix != ".crc":
                    yield path.stat().st_size


if __name__ == "__main__":
    end_with_parent()
    print("\n" + json.dumps(soak(Soak(**json.loads(sys.argv[1])))), flush=True)
