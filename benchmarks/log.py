"""Penstock's log beside Apache Kafka: the same client, the same machine, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import chart, results
from benchmarks.data import CACHE
from benchmarks.log_cases import NO_FIGURES, PARTITIONS, RATE, SIZE, Sizes, measure
from benchmarks.peers.broker import Broker, NotStarted
from benchmarks.peers.kafka import KafkaServer, install
from benchmarks.peers.penstock_log import PenstockServer
from benchmarks.results import OURS, Bar, Result
from penstock.errors import PenstockError
from penstock.spark.session.jars import fetch

SERVERS: dict[str, Callable[[Path], Broker]] = {
    "kafka": KafkaServer,
    OURS: lambda parent: PenstockServer("none", parent),
    "penstock-always": lambda parent: PenstockServer("always", parent),
}
AT_LEAST = {"produce-1": 0.8, "produce-8": 0.8, "consume-1": 1.0, "consume-8": 1.0, "spark-json": 0.9}
AT_MOST = {"latency p50": 2.0, "peak memory": 0.3}
START_SECONDS = 1.0
NOTE = """
The client is librdkafka (acks=all, idempotent) in a process of its own; records of 1 KB, on 1 and 8 partitions;
the best of {runs}. kafka and penstock acknowledge before a record is on the disk (Kafka's default, --sync none),
penstock-always after that (--sync always). latency: from produce to consume at {rate:,} records/s. start: until
the process answers its first request. spark-json: read by Spark's Kafka connector and parsed. peak: resident memory
of the broker during the case. equal: every record was there, once.
"""


def run(
    json: Path | str | None = None,
    records: int = 1_000_000,
    seconds: int = 20,
    *,
    spark: bool = True,
    json_records: int = 1_000_000,
    runs: int = 3,
    systems: Sequence[str] = tuple(SERVERS),
    cache: Path = CACHE,
) -> int:
    """Measure one broker after the other; return 1 if one failed, lost a record or gave one twice."""
    skipped = _missing(systems, spark)
    sizes = Sizes(records, seconds, json_records if spark and "spark-json" not in skipped else 0, runs)
    found = [result for name in systems if name not in skipped for result in _measure(name, sizes, cache)]
    settings = {**asdict(sizes), "size": SIZE, "rate": RATE, "partitions": PARTITIONS, "skipped": skipped}
    made = results.document("log", settings, found) | {"ratios": ratios(found)}
    target = Path(json) if json else cache / "log.json"
    results.save(made, target)
    _draw(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(runs=runs, rate=RATE), bars(found))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def ratios(found: Iterable[Result]) -> dict[str, float]:
    """Return Penstock's figures over Kafka's: more is better but for latency, start and memory."""
    ours, other = (_figures(found, system) for system in (OURS, "kafka"))
    both = [name for name in ours if ours[name] and other.get(name)]
    return {f"{OURS}/kafka:{name}": round(ours[name] / other[name], 3) for name in both}


def bars(found: Sequence[Result]) -> list[Bar]:
    """Say which bars were reached."""
    made = []
    for pair, ratio in ratios(found).items():
        name = pair.split(":")[1]
        if name in AT_LEAST:
            made.append(Bar(f"{pair} {ratio:.2f}, bar at least {AT_LEAST[name]:.2f}", ratio >= AT_LEAST[name]))
        if name in AT_MOST:
            made.append(Bar(f"{pair} {ratio:.2f}, bar at most {AT_MOST[name]:.2f}", ratio <= AT_MOST[name]))
    if start := _figures(found, OURS).get("start"):
        made.append(Bar(f"{OURS} starts in {start:.2f} s, bar under {START_SECONDS:.2f}", start < START_SECONDS))
    return made


def _figures(found: Iterable[Result], system: str) -> dict[str, float]:
    rows = [result for result in found if result.system == system]
    figures = {row.case: row.rows_per_s for row in rows if row.case in AT_LEAST}
    for row in rows:
        if row.case == "latency":
            figures |= {f"latency {name}": row.extra[f"{name}_ms"] or 0.0 for name in ("p50", "p99")}
        if row.case == "start":
            figures["start"] = row.seconds
    return figures | {"peak memory": max((row.peak_mb for row in rows), default=0.0)}


def _missing(systems: Sequence[str], spark: bool) -> dict[str, str]:
    """Fetch what takes part; return what could not be had, and why."""
    parts: dict[str, Callable[[], object]] = {"kafka": install} if "kafka" in systems else {}
    if spark:
        parts["spark-json"] = lambda: fetch("kafka")
    missing = {}
    for name, get in parts.items():
        try:
            get()
        except PenstockError as error:
            missing[name] = str(error)
    return missing


def _measure(system: str, sizes: Sizes, cache: Path) -> Iterator[Result]:
    """Start a broker as often as there are runs, and put the last one through all cases."""
    print(f"{system}:", end=" ", flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    starts = []
    try:
        for _ in range(sizes.runs - 1):
            with SERVERS[system](cache) as broker:
                starts.append(broker.start_seconds)
        with SERVERS[system](cache) as broker:
            best = min([*starts, broker.start_seconds])
            yield Result(system, "start", 0, round(best, 3), round(broker.peak_mb), True, NO_FIGURES)
            yield from measure(system, broker, sizes, cache)
    except NotStarted as error:
        print(f"failed: {error}", end="")
        yield Result(system, "start", 0, 0.0, 0.0, False, NO_FIGURES)
    print(flush=True)


def _draw(made: dict[str, object], path: Path) -> None:
    rows = [row for row in made["results"] if row["case"] in AT_LEAST]  # type: ignore[attr-defined]
    chart.draw({**made, "results": rows}, path, label="records per second")
