"""The crash matrix: `python -m tests.crash.matrix --runs 100 --seed 1` (`make crash`).

Each run makes its input, its cell and its kills from one seed, kills -9 at random moments, restarts what does not
restart itself, and compares what is written in the end with the batch recomputation. Run a seed again by itself:
`make crash RUNS=1 SEED=...`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.cells import cell_of
from tests.crash.judge import Findings
from tests.crash.run import Run
from tests.crash.services import Services


def matrix(runs: int, seed: int, folder: Path) -> Findings:
    """Play so many runs, and return the sum of what they found; the folders of bad ones are kept."""
    total = Findings()
    with Services(folder / "services") as services:
        for number in range(seed, seed + runs):
            total = total.plus(_played(number, folder / f"run-{number}", services))
    return total


def _played(seed: int, folder: Path, services: Services) -> Findings:
    began = time.monotonic()
    folder.mkdir(parents=True)
    run = Run(seed, cell_of(seed), folder, services)
    run.play()
    bad = any(run.total)
    verdict = f"{run.trouble or run.findings}, see {folder}" if bad else "ok"
    kills = ", ".join(run.kills) or "ended before the first kill"
    print(f"seed {seed}: {run.cell}: {kills}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    if not bad:
        shutil.rmtree(folder, ignore_errors=True)
    return run.total


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="seed of the first run; the others follow it")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it ends what it started
    print(f"crash: {given.runs} runs, seeds {seed} to {seed + given.runs - 1}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-crash-"))
    found = matrix(given.runs, seed, folder)
    if not any(found):
        shutil.rmtree(folder, ignore_errors=True)
    print(f"crash: {given.runs} runs, lost {found.lost}, duplicated {found.duplicated}, wrong {found.wrong}")
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
