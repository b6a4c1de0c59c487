"""A windowed job that tests stop, save, damage and go on with; its results are known without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

import penstock as ps
from penstock.settings import Settings
from penstock.spark.session.spark_session import session
from tests.conftest import at

WINDOW = 10
Row = dict[str, Any]


def rows(number: int, count: int = 60) -> list[Row]:
    """The rows of one input file: two keys, four a second, each file 15 seconds after the one before."""
    return [
        {"k": "ab"[i % 2], "v": number * 1000 + i, "ts": at(number * count / 4 + i / 4).isoformat()}
        for i in range(count)
    ]


def feed(folder: Path, number: int) -> None:
    """Put one input file in place, at once."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f".{number}").write_text("".join(json.dumps(row) + "\n" for row in rows(number)))
    (folder / f".{number}").rename(folder / f"{number:03}.json")


def job(data: Path, name: str = "sums", out: str = "out") -> ps.Pipeline:
    """Sums per key and window."""
    (data / "in").mkdir(parents=True, exist_ok=True)
    values = ps.read_files(str(data / "in"), schema="k string, v bigint, ts timestamp", format="json").named("values")
    windows = values.event_time("ts", "5s").key_by("k").window(ps.tumbling(f"{WINDOW}s"))
    sums = windows.aggregate(total="sum(v)", n="count(*)", mean="avg(v)").named("sums")
    return ps.Pipeline(name, sums.to(ps.files(str(data / out), format="parquet")))


def expected(files: int) -> list[tuple[str, float, int, int]]:
    """The results of so many files, computed by hand."""
    groups: dict[tuple[str, float], list[int]] = {}
    for row in (row for number in range(files) for row in rows(number)):
        second = (ps.testing.instant(row["ts"], "ts") - at(0)).total_seconds()
        groups.setdefault((row["k"], second // WINDOW * WINDOW), []).append(row["v"])
    return sorted((k, start, sum(values), len(values)) for (k, start), values in groups.items())


def written(folder: Path) -> list[tuple[str, float, int, int]]:
    """All rows of a folder that a file sink writes, each as often as it is there."""
    files = [str(path) for path in folder.rglob("*.parquet") if "_penstock" not in path.parts]
    found = ds.dataset(files).to_table().to_pylist() if files else []
    return sorted((r["k"], (r["window_start"] - at(0)).total_seconds(), r["total"], r["n"]) for r in found)


@contextmanager
def snapshots_soon(settings: Settings) -> Iterator[None]:
    """Let Spark write snapshots of state after two epochs, and at once: else it takes a minute."""
    spark: Any = session(settings)
    soon = {"minDeltasForSnapshot": "2", "maintenanceInterval": "100ms"}
    store = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    store.stop()
    for key, value in soon.items():
        spark.conf.set(f"spark.sql.streaming.stateStore.{key}", value)
    try:
        yield
    finally:
        for key in soon:
            spark.conf.unset(f"spark.sql.streaming.stateStore.{key}")
        store.stop()


def on(settings: Settings, state: Any) -> Settings:
    """The same settings with another kind of state."""
    return replace(settings, state=state)
