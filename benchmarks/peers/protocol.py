"""What a bench and a system say to each other.

A configuration in JSON on the command line, an outcome in JSON on the last line of the output. The standard
library only: every environment imports this.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

FIELDS = ("symbol", "price", "size", "ts")
TOPIC = "trades"


@dataclass(frozen=True)
class Config:
    """What to run, on what, and how often.

    system       name in the results
    case         "windowed" (the VWAP), "stateless" or "python"
    input        folder of the input files, one per epoch
    closing      folder with the file that closes windows, for systems that close them by the watermark only
    work         folder for outputs and checkpoints
    epoch_rows   rows of an epoch
    started      time.time() when the process was started
    warmups      runs before those that count; the first run of all is the cold one
    warm_input   folder that they read; "" is the input itself
    log          address of the log whose topic is the input, instead of files
    """

    system: str
    case: str
    format: str
    input: str
    closing: str
    work: str
    epoch_rows: int
    cores: int
    started: float
    warmups: int = 1
    runs: int = 3
    warm_input: str = ""
    log: str = ""


@dataclass(frozen=True)
class Folders:
    """Where one run writes; new for every run."""

    output: str
    checkpoint: str


@dataclass
class Outcome:
    """What a system did: seconds of each run that counts, and where the output of the last one is.

    files       which files there are output, as a glob
    cold        seconds from the start of the process to the end of its first run
    epochs_ms   how long each epoch of the last run took, where a system says so
    """

    output: str = ""
    format: str = "parquet"
    files: str = "*.parquet"
    cold: float = 0.0
    seconds: list[float] = field(default_factory=list)
    epochs_ms: list[float] = field(default_factory=list)


Job = Callable[[Config, Folders], "list[float] | None"]


def main(job: Job, format: str = "parquet", files: str | None = None) -> None:
    """Run a system's job as often as the configuration says, and print the outcome."""
    config = Config(**json.loads(sys.argv[1]))
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    outcome = Outcome(format=format, files=files or f"*.{format}")
    for number in range(config.warmups + config.runs):
        warming = number < config.warmups
        given = replace(config, input=config.warm_input or config.input) if warming else config
        folders = _fresh(Path(config.work) / f"run-{number}")
        started = time.perf_counter()
        outcome.epochs_ms = job(given, folders) or []
        seconds = time.perf_counter() - started
        outcome.cold = outcome.cold or time.time() - config.started
        outcome.output = folders.output
        if not warming:
            outcome.seconds.append(seconds)
    print("\n" + json.dumps(asdict(outcome)), flush=True)


def files(config: Config) -> list[str]:
    """Return the input files in the order of their epochs."""
    return sorted(str(path) for path in Path(config.input).iterdir())


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: a bench that is killed leaves none behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _fresh(folder: Path) -> Folders:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("output", "checkpoint"):
        (folder / name).mkdir(parents=True)
    return Folders(str(folder / "output"), str(folder / "checkpoint"))
