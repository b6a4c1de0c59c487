"""What a crash costs: from kill -9 to the first new output, and a whole input read again."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from benchmarks.answer import answer, is_equal
from benchmarks.data import Trades
from benchmarks.peers import ROOT
from benchmarks.peers.protocol import Outcome
from benchmarks.process import Peak, end, environment
from benchmarks.results import OURS, Result
from benchmarks.sinks_jobs import Job
from penstock.settings import cores

SPARK = "spark-defaults"
KINDS = {OURS: "vwap", SPARK: "spark"}
# A second of trades in each epoch, so that each closes windows of a second.
RESTART_EPOCHS, RESTART_EVENTS = 60, 600_000
# Epochs before the kill: the state has rows of many, and the query is warm.
BEFORE = 6
WAIT_SECONDS = 600
POLL_SECONDS = 0.005


def restarts(cache: Path, runs: int) -> list[Result]:
    """Kill the same windowed job of Penstock and of Spark by hand, start each again, and time its next output."""
    trades = Trades(RESTART_EVENTS, 1_000, "parquet", RESTART_EPOCHS, cache)
    trades.prepare()
    seconds: dict[str, list[float]] = {system: [] for system in KINDS}
    for _ in range(runs):
        for system in KINDS:
            print(f"restart: {system} ...", end=" ", flush=True)
            seconds[system].append(_restart(trades, system))
            print(f"{seconds[system][-1]:.2f} s")
    return [
        Result(system, "restart", 0.0, round(statistics.median(found), 3), None, True)
        for system, found in seconds.items()
    ]


def replay(cache: Path, events: int, symbols: int) -> list[Result]:
    """Kill the VWAP in its only epoch, before anything is written, and time the whole of it again."""
    print("replay: penstock ...", end=" ", flush=True)
    trades = Trades(events, symbols, "parquet", 12, cache)
    trades.prepare()
    job = _job(trades, OURS, window="60s", delay="5s", epoch_rows=events)
    work = Path(job.work)
    try:
        with Process(job) as first:
            first.wait(lambda: _planned(work), "the epoch never began")
        started = time.time()
        with Process(job) as second:
            second.wait(lambda: second.done, "the replay did not end")
            said = second.said()
        whole, warm = said["done"] - started, said["done"] - said["ready"]
        expected = answer("windowed", trades.input, "parquet")
        equal = is_equal("windowed", expected, Outcome(f"{work}/output"))
        print(f"{whole:.2f} s, {warm:.2f} s without the start of the JVM")
        return [
            Result(OURS, "replay", round(events / whole), round(whole, 3), round(second.peak.mb), equal),
            Result(OURS, "replay-warm", round(events / warm), round(warm, 3), round(second.peak.mb), equal),
        ]
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _restart(trades: Trades, system: str) -> float:
    job = _job(trades, system, window="1s", delay="1s", epoch_rows=trades.epoch_rows)
    output = Path(job.work) / "output"
    shown = _shown_by_spark if system == SPARK else _shown
    try:
        with Process(job) as first:
            first.wait(lambda: shown(output) >= BEFORE, "there is no output")
        before, started = shown(output), time.perf_counter()
        with Process(job) as second:
            second.wait(lambda: shown(output) > before, "there is no output after the restart")
            return time.perf_counter() - started
    finally:
        shutil.rmtree(job.work, ignore_errors=True)


def _shown(output: Path) -> int:
    """Count the epochs in the folder, as its readers see them: a file's name tells its epoch."""
    return len({path.name.rsplit("-", 1)[0] for path in output.glob("*.parquet")})


def _shown_by_spark(output: Path) -> int:
    """Count the epochs in the sink's own log, without which a file is none of its output."""
    return len([path for path in output.glob("_spark_metadata/[0-9]*") if path.stat().st_size])


def _planned(work: Path) -> bool:
    """Say whether the epoch's offsets are noted, so that a restart has to read the same."""
    return any(work.glob("checkpoint/**/offsets/0"))


def _job(trades: Trades, system: str, window: str, delay: str, epoch_rows: int) -> Job:
    work = trades.folder / "work" / f"crash-{system}"
    shutil.rmtree(work, ignore_errors=True)
    return Job(KINDS[system], str(trades.input), str(work), epoch_rows, cores(), window, delay)


class Process:
    """A job in a process of its own, killed -9 with all that belongs to it at the end of the block."""

    def __init__(self, job: Job) -> None:
        Path(job.work).mkdir(parents=True, exist_ok=True)
        self._output = Path(job.work) / "said"
        command = [sys.executable, "-m", "benchmarks.sinks_jobs", json.dumps(asdict(job))]
        with self._output.open("wb") as out, (Path(job.work) / "errors").open("wb") as errors:
            self._process = _started(command, out, errors)
        self._errors = Path(job.work) / "errors"
        self.peak = Peak(self._process.pid)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.peak.stop()
        self._process.kill()
        for one in self.peak.known[1:]:
            _kill(one)
        end(self._process, self.peak.known)

    def wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait until something is true; a process that ends before is an error, unless that was waited for."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            ended = self._process.poll() is not None
            if (ended and not condition()) or time.monotonic() > deadline:
                raise SystemExit(f"{otherwise}: {self._errors.read_text(errors='replace')[-1000:]}")
            time.sleep(POLL_SECONDS)

    def said(self) -> dict[str, float]:
        """Return the times that the job told so far."""
        lines = [line for line in self._output.read_text().splitlines() if line.startswith('{"') and line.endswith("}")]
        return {name: at for line in lines for name, at in json.loads(line).items()}

    @property
    def done(self) -> bool:
        """Whether the job came to its end."""
        return "done" in self.said()


def _started(command: list[str], out: IO[Any], errors: IO[Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=errors)


def _kill(process: Any) -> None:
    import psutil

    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
