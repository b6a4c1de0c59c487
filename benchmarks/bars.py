"""What `penstock bench vwap` has to reach: more where a run is of the size that a bar was set for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.results import BATCH, OURS, Bar

FULL_EVENTS = 6_000_000
NEVER_SLOWER = 0.95
EVENTS_PER_S = 2_160_000
# On a machine that does not give plain Spark this, the bar above says nothing.
SPARK_EVENTS_PER_S = 2_000_000


def bars(made: Mapping[str, Any]) -> list[Bar]:
    """Say which bars a run reached; a batch system has none."""
    found = {row["system"]: row for row in made["results"] if row["rows_per_s"]}
    return [*_speeds(made), *_memory(found), *_rate(made["settings"], found)]


def least(system: str, settings: Mapping[str, Any]) -> float:
    """Return how many times as fast as a system Penstock has to be."""
    full = settings["events"] >= FULL_EVENTS
    match system, settings["source"], settings["format"], settings["epochs"]:
        case "spark-defaults", _, _, _:
            return 1.2
        case "flink", _, "csv", _ if full:
            return 4.0
        case "spark", "topic", "json", _ if full:
            return 2.5
        case "spark", "files", "parquet", _ if full:
            return 1.3
        case "spark", "files", "csv" | "json", 1 if full:
            return 3.0
        case "spark", "files", "csv" | "json", 12 if full:
            return 2.0
        case "spark", _, _, _:
            return NEVER_SLOWER
    return 1.0


def _speeds(made: Mapping[str, Any]) -> Iterator[Bar]:
    for pair, ratio in made["ratios"].items():
        other = pair.split("/")[1].split(":")[0]
        if other not in BATCH:
            wanted = least(other, made["settings"])
            yield Bar(f"{pair} {ratio:.2f}, bar {wanted:.2f}", ratio >= wanted)


def _memory(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Bar]:
    if OURS in found and "spark" in found:
        ratio = found[OURS]["peak_mb"] / found["spark"]["peak_mb"]
        yield Bar(f"{OURS}/spark {ratio:.2f} in peak memory, bar at most 1.00", ratio <= 1)


def _rate(settings: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Iterator[Bar]:
    kind = settings["source"], settings["format"]
    if kind != ("files", "parquet") or settings["events"] < FULL_EVENTS or not {OURS, "spark"} <= set(found):
        return
    ours, spark = (found[name]["rows_per_s"] for name in (OURS, "spark"))
    text = f"{OURS} {ours:,.0f} rows/s from parquet, bar over {EVENTS_PER_S:,}"
    if ours > EVENTS_PER_S or spark >= SPARK_EVENTS_PER_S:
        yield Bar(text, ours > EVENTS_PER_S)
    else:
        yield Bar(f"{text}; not judged: plain Spark got {spark:,.0f} here, of its usual 2M and more", None)
