"""What the control bench measures: requests and events of a full store, submissions, and jobs of a pool."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.control_jobs import READY_SECONDS, ROWS, FirstEpochs, SmallJob, wait_for_epochs
from benchmarks.control_server import ManagerProcess
from benchmarks.control_store import STATES, fill
from benchmarks.latency import percentile
from benchmarks.peers import ROOT
from benchmarks.process import Peak, environment
from benchmarks.results import OURS, Result
from penstock.control.client.client import Client

PAGE = 50
POOL = "bench"
IN_POOL = 10
NO_FIGURES: dict[str, float | None] = {"p50_ms": None, "p99_ms": None, "cpu_percent": None}
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Sizes:
    """How much a run does; `runs` submissions, none with 0."""

    jobs: int
    epochs: int
    rate: int
    seconds: float
    clients: int
    runs: int
    idle_seconds: float


def measure_requests(sizes: Sizes, folder: Path) -> Iterator[Result]:
    """Yield list, get, epochs and events over a full store."""
    ids = fill(folder, sizes.jobs, sizes.epochs)
    with ManagerProcess(folder) as manager:
        complete = _is_complete(manager.url, ids)
        before = manager.cpu_seconds()
        found = _client("requests", url=manager.url, paths=_paths(ids), rate=sizes.rate, seconds=sizes.seconds)
        share = _percent(manager.cpu_seconds() - before, found["seconds"])
        for kind, times in found["milliseconds"].items():
            right = complete and not found["failed"][kind] and bool(times)
            speed = round(len(times) / found["seconds"])
            figures = {**_percentiles(times), "cpu_percent": share}
            yield Result(OURS, kind, speed, round(found["seconds"], 2), round(manager.peak_mb, 1), right, figures)
        heard = _client("events", url=manager.url, clients=sizes.clients, job=ids[0])
        times = heard["milliseconds"]
        right = heard["status"] == 202 and len(times) == sizes.clients
        slowest = round(max(times, default=0.0) / 1000, 3)
        figures = {**NO_FIGURES, **_percentiles(times)}
        yield Result(OURS, "events", 0, slowest, round(manager.peak_mb, 1), right, figures)


def measure_submissions(sizes: Sizes, folder: Path) -> Iterator[Result]:
    """Yield the seconds to the first epoch with a spare driver and by spark-submit, in turn; medians."""
    job = SmallJob(folder / "job")
    job.write()
    ours: list[tuple[float, int]] = []
    theirs: list[tuple[float, int]] = []
    with ManagerProcess(folder / "data", spares=1) as manager, Client(manager.url) as client:
        epochs = FirstEpochs(client)
        for number in range(sizes.runs):
            _wait_for_spare(manager.url)
            ours.append(job.seconds_to_first_epoch(client, epochs, f"small-{number}"))
            _wait_for_spare(manager.url)
            theirs.append(job.seconds_of_spark_submit(f"spark-{number}"))
    for system, found in ((OURS, ours), ("spark-submit", theirs)):
        seconds = statistics.median(took for took, _ in found)
        right = all(rows == ROWS for _, rows in found)
        yield Result(
            system, "submit", 0, round(seconds, 2), None, right, {**NO_FIGURES, "p50_ms": round(seconds * 1e3)}
        )


def measure_pool(sizes: Sizes, folder: Path) -> Iterator[Result]:
    """Yield the memory of one job and of ten in one driver, then what the manager of the ten takes while all idle."""
    job = SmallJob(folder / "job")
    job.write()
    with ManagerProcess(folder / "data") as manager, Client(manager.url) as client:
        ids: list[str] = []
        for count in (1, IN_POOL):
            started = time.monotonic()
            ids += [job.submit(client, f"pooled-{number}", POOL) for number in range(len(ids), count)]
            right = wait_for_epochs(client, ids)
            seconds = round(time.monotonic() - started, 2)
            drivers = {client.job(one).pid for one in ids}
            right = right and len(drivers) == 1
            memory = _peak_mb(drivers.pop() or 0, sizes.idle_seconds / 2)
            yield Result(OURS, f"pool-{count}", 0, seconds, memory, right, NO_FIGURES)
        before, started = manager.cpu_seconds(), time.monotonic()
        time.sleep(sizes.idle_seconds)
        seconds = time.monotonic() - started
        share = {**NO_FIGURES, "cpu_percent": _percent(manager.cpu_seconds() - before, seconds)}
        right = all(client.job(one).state == "RUNNING" for one in ids)
        yield Result(OURS, "idle", 0, round(seconds, 2), round(manager.peak_mb, 1), right, share)
        for one in ids:
            client.cancel(one)


def _paths(ids: Sequence[str]) -> dict[str, list[str]]:
    spread = ids[:: max(1, len(ids) // 97)]
    filters = ["", *(f"&state={state}" for state in STATES), "&name=orders-000", f"&state={STATES[0]}&name=1"]
    return {
        "list": [f"/api/v1/jobs?limit={PAGE}{one}" for one in filters],
        "get": [f"/api/v1/jobs/{job}" for job in spread],
        "epochs": [f"/api/v1/jobs/{job}/epochs?limit={PAGE}" for job in spread],
    }


def _is_complete(url: str, ids: Sequence[str]) -> bool:
    """Say whether the pages of the list have every job once."""
    with Client(url) as client:
        return sorted(job.id for job in client.jobs()) == sorted(ids)


def _wait_for_spare(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}/api/v1/cluster") as answer:
            drivers = json.load(answer)["drivers"]
        # The driver of the job before may still be ending, and would take time from what is measured.
        if drivers and all(one["spare"] and one["connected"] for one in drivers):
            return
        time.sleep(_POLL_SECONDS)
    raise SystemExit(f"no spare driver was ready within {READY_SECONDS} s: {drivers}")


def _peak_mb(pid: int, seconds: float) -> float:
    peak = Peak(pid)
    time.sleep(seconds)
    peak.stop()
    return round(peak.mb)


def _percent(cpu_seconds: float, seconds: float) -> float:
    return round(100 * cpu_seconds / seconds, 2)


def _percentiles(times: Sequence[float]) -> dict[str, float | None]:
    return {f"p{share}_ms": round(percentile(times, share / 100), 2) if times else None for share in (50, 99)}


def _client(case: str, **arguments: Any) -> Mapping[str, Any]:
    command = [sys.executable, "-m", "benchmarks.control_client", case, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr[-2000:]}")
    answer: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
