"""The watermark of a source is the smallest over its partitions: rows in order within a delay there are on time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.cli.run_summary import summary
from penstock.cli.watermark_text import watermark_holder
from penstock.contracts import Offsets
from penstock.settings import Settings
from penstock.testing import EOF, Crash, run_to_end
from tests.conftest import at, at_parallelism
from tests.connectors.kafka_topics import fresh

SCHEMA = "k string, v bigint, ts timestamp"
DELAY = 5
Rows = list[tuple[int, float]]


class Uneven(ps.Source):
    """Partitions that are read at different speeds; how much of each is there is kept in a file."""

    name = "uneven"
    schema = ps.Schema(SCHEMA)

    def __init__(self, folder: Path, rows: Mapping[str, Rows], seed: int = 0) -> None:
        self.folder, self.rows, self.seed = folder, dict(rows), seed
        self.give({part: len(found) for part, found in rows.items()})

    def give(self, there: Mapping[str, int]) -> None:
        (self.folder / "there.json").write_text(json.dumps(there))

    @property
    def there(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.folder / "there.json").read_text())
        return found

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        end = {}
        for part, last in self.there.items():
            first = int(start.get(part) or 0)
            speed = random.Random(f"{self.seed} {part} {first}").randint(1, max_rows or 1)
            end[part] = last if max_rows is None else min(last, first + speed)
        return end

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        rows = self.rows[partition][int(start or 0) : int(end)]
        made = [{"k": f"k{v % 3}", "v": v, "ts": at(seconds)} for v, seconds in rows]
        yield pa.RecordBatch.from_pylist(made, schema=self.schema.arrow)

    def ended(self, offsets: Offsets) -> bool:
        return dict(offsets) == {part: len(rows) for part, rows in self.rows.items()}


def disordered(count: int, begin: float, step: float, disorder: float, seed: int) -> Rows:
    """Rows that are at most so many seconds older than one before them."""
    draw = random.Random(seed)
    return [(seed * 1000 + n, begin + n * step - draw.uniform(0, disorder)) for n in range(count)]


def skewed(rows: int = 8) -> dict[str, Rows]:
    """The partitions lie hours apart; one has no rows."""
    begins = {"0": 0, "1": 3 * 3600, "2": 300}
    return {p: disordered(rows, begin, 60.0, 4.0, int(p)) for p, begin in begins.items()} | {"3": []}


def counts(rows: ps.Stream, **more: Any) -> ps.Stream:
    return (
        rows.event_time("ts", f"{DELAY}s", **more)
        .key_by("k")
        .window(ps.tumbling("60s"))
        .aggregate(n="count(*)", total="sum(v)")
    )


def expected(parts: Mapping[str, Rows]) -> list[tuple[Any, ...]]:
    """What DuckDB finds over all rows."""
    flat = [(f"k{v % 3}", v, round(seconds * 1e6)) for rows in parts.values() for v, seconds in rows]
    table = pa.Table.from_pylist([dict(zip("kvt", row, strict=True)) for row in flat])  # noqa: F841 (DuckDB reads it)
    sql = "SELECT k, CAST(floor(t / 60e6) AS BIGINT) AS w, count(*), CAST(sum(v) AS BIGINT) FROM table GROUP BY 1, 2"
    return sorted(duckdb.sql(sql.replace("table", '"table"')).fetchall())


def shown(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    begin = at(0)
    found = ((row["k"], (row["window_start"] - begin).total_seconds() // 60, row["n"], row["total"]) for row in rows)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize(("lane", "parallelism"), [("auto", 3), ("spark", 1)])
def test_no_row_is_late_when_partitions_are_hours_apart(
    tmp_path: Path, settings: Settings, lane: Any, parallelism: int
) -> None:
    parts, out = skewed(), ps.collect()
    source = Uneven(tmp_path, parts)
    pipeline = ps.Pipeline("p", counts(ps.read(source)).to(out))
    chosen = replace(at_parallelism(settings, parallelism), lane=lane, epoch_rows=12 if lane == "auto" else 5)
    # The first run has a part of the rows only; the second goes on from its checkpoint.
    source.give({"0": 3, "1": 8, "2": 2, "3": 0})
    report = pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=chosen)
    slowest = report.watermarks[0].times[0].slowest
    assert slowest is not None
    assert slowest.name == "uneven/0"
    assert report.watermark == max(at(seconds) for _, seconds in parts["0"][:3]) - timedelta(seconds=DELAY)
    assert watermark_holder(report.watermarks[0]) == "held by uneven/0"
    assert "(uneven/0 is the slowest of 3 partitions)" in summary("p", report)
    source.give({part: len(rows) for part, rows in parts.items()})
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=chosen)
    assert report.counts["aggregate"].late == 0
    assert shown(out.rows) == expected(parts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("lane", ["auto", "spark"])
def test_rows_in_order_within_the_delay_are_never_late_wherever_epochs_end(
    tmp_path: Path, settings: Settings, lane: Any, seed: int
) -> None:
    draw = random.Random(seed)
    sizes = [draw.randint(0, 12) for _ in range(draw.randint(2, 5))]
    parts = {
        str(n): disordered(size, draw.uniform(0, 9000), draw.uniform(0.5, 90), draw.uniform(0, DELAY), n)
        for n, size in enumerate([3, *sizes])
    }
    out = ps.collect()
    pipeline = ps.Pipeline("p", counts(ps.read(Uneven(tmp_path, parts, seed))).to(out))
    chosen = replace(at_parallelism(settings, draw.choice([1, 3])), lane=lane, epoch_rows=draw.randint(1, 6))
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=chosen)
    assert report.counts["aggregate"].late == 0
    assert shown(out.rows) == expected(parts)


def as_json(rows: Rows) -> list[bytes]:
    return [json.dumps({"k": f"k{v % 3}", "v": v, "ts": at(seconds).isoformat()}).encode() for v, seconds in rows]


@pytest.mark.parametrize(
    ("lane", "reader", "columns"),
    [
        ("auto", "penstock", {}),
        pytest.param("auto", "penstock", {"v": "v + 0"}, marks=pytest.mark.slow),
        pytest.param("spark", "penstock", {}, marks=pytest.mark.slow),
        pytest.param("auto", "spark", {}, marks=pytest.mark.slow),
    ],
)
def test_no_row_of_a_topic_is_late_when_its_partitions_are_hours_apart(
    event_log: str, tmp_path: Path, settings: Settings, lane: Any, reader: Any, columns: Any
) -> None:
    parts, out = skewed(), ps.collect()
    topic = fresh(event_log).create(4)
    rows = ps.read_topic(topic.name, schema=SCHEMA, connection=event_log).named("rows")
    pipeline = ps.Pipeline("p", counts(rows.with_columns(**columns) if columns else rows).to(out))
    chosen = replace(at_parallelism(settings, 1), lane=lane, epoch_rows=9, kafka_reader=reader)
    for part, found in parts.items():
        topic.produce(as_json(found[:5]), int(part))
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=chosen)
    for part, found in parts.items():
        topic.produce(as_json(found[5:]), int(part))
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=chosen)
    assert report.counts["aggregate"].late == 0
    assert {one.name for one in report.watermarks[0].times[0].partitions} == {"rows/0", "rows/1", "rows/2"}
    assert shown(out.rows) == expected(parts)


@pytest.fixture
def started() -> Iterator[Callable[[ps.Pipeline, Path, Settings], Any]]:
    """Start a job that is stopped after the test, however that ends."""
    runs: list[Any] = []

    def start(pipeline: ps.Pipeline, folder: Path, settings: Settings) -> Any:
        runs.append(pipeline.start(until="stopped", checkpoint=folder / "c", settings=settings))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
        run.wait()


def test_an_idle_partition_is_left_out_until_it_gives_rows_again(
    tmp_path: Path, settings: Settings, started: Callable[..., Any]
) -> None:
    parts: dict[str, Rows] = {"0": [(0, 10), (1, 11), (2, 200)], "1": [(3, 100), (4, 400)], "2": []}
    out, late = ps.collect(), ps.collect()
    source = Uneven(tmp_path, parts)
    source.give({"0": 1, "1": 1, "2": 0})
    made = counts(ps.read(source), idle_after="30s")
    pipeline = ps.Pipeline("p", made.to(out), made.side("late").to(late).named("late"))
    run = started(pipeline, tmp_path, settings)
    run.process_available()
    run.check_idle_sources()
    (before,) = run.report().watermarks
    assert (before.at, watermark_holder(before)) == (at(10 - DELAY), "held by uneven/0")
    (tmp_path / "c" / "clock-shift").write_text("20000000")
    source.give({"0": 1, "1": 2, "2": 0})
    run.process_available()
    run.check_idle_sources()
    (tmp_path / "c" / "clock-shift").write_text("31000000")
    run.check_idle_sources()
    run.process_available()
    (left_out,) = run.report().watermarks
    # Partition 0 has given nothing for 31 seconds, and partition 1 for 11.
    assert (left_out.at, watermark_holder(left_out)) == (at(400 - DELAY), "held by uneven/1; idle: uneven/0")
    source.give({"0": 3, "1": 2, "2": 0})
    run.process_available()
    run.check_idle_sources()
    (awake,) = run.report().watermarks
    # The watermark does not go back, and it is partition 0 again that holds it.
    assert (awake.at, watermark_holder(awake)) == (at(400 - DELAY), "held by uneven/0")
    run.end()
    run.wait()
    assert sorted(row["v"] for row in late.rows) == [1, 2]
    assert shown(out.rows) == [("k0", 0, 1, 0), ("k0", 1, 1, 3), ("k1", 6, 1, 4)]


@pytest.mark.slow
def test_a_partition_that_comes_while_the_job_runs_has_a_watermark_of_its_own(
    tmp_path: Path, settings: Settings, started: Callable[..., Any]
) -> None:
    parts: dict[str, Rows] = {"0": [(0, 10), (1, 4000)], "1": [(3, 20), (4, 100)], "2": [(5, 90), (6, 150)]}
    out = ps.collect()
    source = Uneven(tmp_path, parts)
    source.give({"0": 1})
    pipeline = ps.Pipeline("p", counts(ps.read(source)).to(out))
    run = started(pipeline, tmp_path, settings)
    for there in ({"0": 1, "1": 1, "2": 1}, {"0": 2, "1": 1, "2": 2}, {"0": 2, "1": 2, "2": 2}):
        run.process_available()
        source.give(there)
    run.process_available()
    assert run.report().watermark == at(100 - DELAY)
    run.end()
    run.wait()
    assert run.report().counts["aggregate"].late == 0
    assert shown(out.rows) == expected(parts)


@pytest.mark.slow
def test_sources_that_meet_before_the_event_time_each_have_their_own(settings: Settings) -> None:
    def rows(*seconds: float) -> list[Any]:
        return [{"k": "a", "v": int(one), "ts": at(one)} for one in seconds]

    left, right = (ps.from_items([], SCHEMA).named(name) for name in ("left", "right"))
    made = counts(left.union(right))
    inputs = {
        "left": [*rows(5000), EOF, *rows(5100), Crash(), *rows(5200)],
        "right": [*rows(10), EOF, *rows(80, 20), Crash(), *rows(100)],
    }
    out = run_to_end(ps.Pipeline("p", made.to(ps.collect())), inputs, settings=settings)
    assert out.counts["aggregate"].late == 0
    assert [row["n"] for row in sorted(out["collect"], key=lambda row: row["window_start"])] == [2, 2, 1, 1, 1]


class OneByOne(Uneven):
    """Reads a partition to its end before it begins with the next."""

    name = "uneven"

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        there = self.there
        if max_rows is None:
            return there
        first = {part: int(start.get(part) or 0) for part in there}
        part = next((part for part in there if first[part] < there[part]), None)
        return first if part is None else first | {part: min(there[part], first[part] + max_rows)}


def test_a_partition_that_has_rows_and_was_not_read_yet_holds_the_watermark(tmp_path: Path, settings: Settings) -> None:
    parts = {"0": disordered(4, 4000, 70, 4.0, 0), "1": disordered(4, 0, 70, 4.0, 1)}
    out = ps.collect()
    pipeline = ps.Pipeline("p", counts(ps.read(OneByOne(tmp_path, parts)).filter("v <> 1000")).to(out))
    chosen = replace(settings, epoch_rows=4)
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=chosen)
    assert report.counts["aggregate"].late == 0
    assert shown(out.rows) == expected(parts | {"1": parts["1"][1:]})
