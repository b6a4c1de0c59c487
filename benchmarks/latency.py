"""How long a record takes from topic to topic, at each pace of Penstock and in Spark by hand."""

from __future__ import annotations

import json as text
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import chart, results
from benchmarks.data import CACHE
from benchmarks.latency_jobs import SPARK, Job
from benchmarks.peers import ROOT
from benchmarks.peers.penstock_log import PenstockServer
from benchmarks.process import Peak, end, environment
from benchmarks.results import Bar, Result
from penstock.settings import cores
from penstock.spark.session.jars import fetch

CASES = ("stateless", "keyed")
SYSTEMS = ("penstock-realtime", "penstock-fast", "penstock-throughput", SPARK)
SHARES = (50, 95, 99)
PARTITIONS = 2
STOP_SECONDS = 60
REALTIME_MS = {"stateless": 5.0, "keyed": 40.0}
FAST_RATIO = {"stateless": 0.6, "keyed": 0.7}
NOTE = """
p50_ms ...: from produce to consume, by one librdkafka client at {rate:,} records/s for {seconds} s, after {warm_up} s
that do not count, through topics of {partitions} partitions of Penstock's own log. keyed: a count and a sum per key
that every row updates; a record has arrived with the first result that counts it. spark-defaults: Spark's Kafka
connector, default trigger and settings but for as many shuffle partitions as cores. peak: resident memory of all
processes of a system, without the log. equal: every record came through.
"""


@dataclass(frozen=True)
class Load:
    """What the client does."""

    rate: int
    seconds: float
    warm_up: float


def run(
    json: Path | str | None = None,
    seconds: float = 30,
    rate: int = 1_000,
    *,
    warm_up: float = 20,
    systems: Sequence[str] = SYSTEMS,
    cases: Sequence[str] = CASES,
    cache: Path = CACHE,
) -> int:
    """Measure each case in each system, one after the other; return 1 if one lost a record."""
    fetch("kafka")
    load = Load(rate, seconds, warm_up)
    cache.mkdir(parents=True, exist_ok=True)
    with PenstockServer(parent=cache) as log:
        found = [_result(log.bootstrap, system, case, load, cache) for case in cases for system in systems]
    settings = {**asdict(load), "partitions": PARTITIONS, "log": "penstock, --sync none"}
    made = results.document("latency", settings, found) | {"ratios": ratios(found)}
    target = Path(json) if json else cache / "latency.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"), "p50_ms", f"ms from topic to topic at {rate:,} records/s, p50")
    results.show(made, NOTE.format(partitions=PARTITIONS, **asdict(load)), bars(found))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def ratios(found: Sequence[Result]) -> dict[str, float]:
    """Return each pace's p50 over that of Spark by hand: less is better."""
    medians = _medians(found)
    return {
        f"{system}/{SPARK}:{case}": round(p50 / medians[SPARK, case], 3)
        for (system, case), p50 in medians.items()
        if system != SPARK and (SPARK, case) in medians
    }


def bars(found: Sequence[Result]) -> list[Bar]:
    """Say which bars were reached."""
    made = []
    for (system, case), p50 in _medians(found).items():
        if system == "penstock-realtime":
            most = REALTIME_MS[case]
            made.append(Bar(f"{system}:{case} p50 {p50:.1f} ms, bar at most {most:.0f}", p50 <= most))
    for pair, ratio in ratios(found).items():
        if pair.startswith("penstock-fast/"):
            bar = FAST_RATIO[pair.split(":")[1]]
            made.append(Bar(f"{pair} p50 {ratio:.2f}, bar at most {bar:.2f}", ratio <= bar))
    return made


def _medians(found: Sequence[Result]) -> dict[tuple[str, str], float]:
    return {(row.system, row.case): p50 for row in found if (p50 := row.extra["p50_ms"])}


def _result(bootstrap: str, system: str, case: str, load: Load, cache: Path) -> Result:
    print(f"{case}: {system} ...", end=" ", flush=True)
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("in", "out")]
    _create(bootstrap, names)
    with tempfile.TemporaryDirectory(dir=cache, prefix="latency-", ignore_cleanup_errors=True) as folder:
        job = Job(system, case, bootstrap, *names, f"{folder}/checkpoint", cores())
        with _running(job, Path(folder)) as peak:
            answer = _client({"bootstrap": bootstrap, "source": names[0], "target": names[1], **asdict(load)})
        said = (Path(folder) / "errors").read_text(errors="replace").strip().splitlines()[-1:]
    times = {f"p{share}_ms": _share(answer["milliseconds"], share) for share in SHARES}
    complete = bool(answer["milliseconds"]) and answer["complete"]
    print(f"p50 {times['p50_ms']:.1f} ms" if complete else f"failed: {answer.get('error', '')} {said}")
    rows = len(answer["milliseconds"])
    return Result(system, case, round(rows / load.seconds), load.seconds, round(peak.mb), complete, times)


def _share(ways: Sequence[float], share: int) -> float:
    return round(percentile(ways, share / 100), 2) if ways else 0.0


def _create(bootstrap: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        made.result()


@contextmanager
def _running(job: Job, folder: Path) -> Iterator[Peak]:
    """Run a system as long as the block lasts, then ask it to stop."""
    with (folder / "errors").open("w") as errors:
        command = [sys.executable, "-m", "benchmarks.latency_jobs", text.dumps(asdict(job))]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": errors, "stderr": errors}
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), **streams)
        peak = Peak(process.pid)
        try:
            yield peak
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            peak.stop()
            end(process, peak.known)


def _client(arguments: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.latency_client", text.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"milliseconds": [], "complete": False, "error": said[-1]}
    answer: dict[str, Any] = text.loads(done.stdout.strip().splitlines()[-1])
    return answer
