"""The crash matrix: `python -m tests.crash.matrix --runs 100 --seed 1` (`make crash`).

Each run makes its input, its cell and its kills from one seed, kills or fails something at random moments, restarts
what does not restart itself, and compares what is written in the end with the batch recomputation. Run a seed again by
itself: `make crash RUNS=1 SEED=...`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from tests.crash.cells import Cell, cell_of
from tests.crash.disk import SmallDisk
from tests.crash.expected_output import Findings
from tests.crash.run import Run
from tests.crash.services import Services

# Drivers that are killed before their job has begun, too: each life is a process of its own.
COLD_SHARE = 0.3


def matrix(seeds: range, folder: Path, jobs: int) -> Iterator[Run]:
    """Play a run for each seed, so many at a time, and yield each when it is over."""
    with Services(folder / "services") as services, ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_played, seed, folder / f"run-{seed}", services) for seed in seeds]):
            yield done.result()


def _played(seed: int, folder: Path, services: Services) -> Run:
    began = time.monotonic()
    folder.mkdir(parents=True)
    cell = _here(cell_of(seed))
    cold = cell.victim == "driver" and random.Random(f"cold {seed}").random() < COLD_SHARE
    run = Run(seed, cell, folder, services, cold=cold)
    run.play()
    run.seconds = time.monotonic() - began
    return run


def _here(cell: Cell) -> Cell:
    """Kill the driver instead where no small disk can be had."""
    return cell if cell.victim != "disk" or SmallDisk.can_be_had() else replace(cell, victim="driver")


def _line(run: Run, number: int, runs: int) -> str:
    verdict = "ok"
    if any(run.total):
        verdict = f"{run.trouble or run.findings}, see {run.folder}; again: make crash RUNS=1 SEED={run.seed}"
    kills = ", ".join(run.kills) or "nothing was killed"
    return f"[{number}/{runs}] seed {run.seed}: {run.cell}: {kills}: {verdict} ({run.seconds:.0f} s)"


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="seed of the first run; the others follow it")
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at the same time")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it ends what it started
    print(f"crash: {given.runs} runs, seeds {seed} to {seed + given.runs - 1}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-crash-"))
    began, total, bad = time.monotonic(), Findings(), []
    for number, run in enumerate(matrix(range(seed, seed + given.runs), folder, given.jobs), 1):
        print(_line(run, number, given.runs), flush=True)
        total = total.plus(run.total)
        if any(run.total):
            bad.append(run.seed)
        else:
            shutil.rmtree(run.folder, ignore_errors=True)
    if not bad:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"crash: {time.monotonic() - began:.0f} s; seeds of bad runs: {', '.join(map(str, sorted(bad))) or 'none'}")
    print(f"crash: {given.runs} runs, lost {total.lost}, duplicated {total.duplicated}, wrong {total.wrong}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
