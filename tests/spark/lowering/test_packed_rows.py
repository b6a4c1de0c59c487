"""Promise: rows that the scan packs by their keys have the results, counts and state of rows that Spark packs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock as ps
from penstock.errors import LedgerAhead
from penstock.plan.physical import lanes
from penstock.plan.physical.lanes import split_lanes
from penstock.settings import Settings
from penstock.testing import EOF, Crash, run_to_end
from tests.conftest import at, at_parallelism

SCHEMA = "k string, g int, v bigint, ts timestamp"
PACKED = "native packing, spark state"
Row = dict[str, Any]


def rows(schema: str = SCHEMA) -> ps.Stream:
    return ps.from_items([], schema).named("rows")


def deduplicated(stream: ps.Stream, keys: list[str]) -> ps.Pipeline:
    bad = ps.collect()
    bad.name = "bad"
    kept = stream.event_time("ts", "5s").deduplicate(keys, within="10s")
    return ps.Pipeline("p", kept.to(ps.collect()), kept.side("late").to(ps.collect()).named("late"), rejected_to=bad)


def history(seed: int, epochs: int = 4) -> list[Any]:
    """Epochs that drift forward in time, with rows that are late, keys that are null and times that are missing."""
    chance = random.Random(seed)
    given: list[Any] = []
    for epoch in range(epochs):
        for _ in range(150):
            seconds = epoch * 20 + chance.randrange(0, 30_000) / 1000 - (50 if chance.random() < 0.1 else 0)
            key = chance.choice([None, "", "é", *(f"key-{n}" for n in range(12))])
            row = {"k": key, "g": chance.choice([None, 1, 2]), "v": len(given)}
            given.append(row | {"ts": None if chance.random() < 0.03 else at(seconds)})
        given.append(Crash() if epoch == 1 else EOF)
    return given


def outcome(pipeline: ps.Pipeline, given: list[Any], settings: Settings) -> dict[str, Any]:
    """All that a run shows: the rows of each sink in one order, and where the rows of each node went.

    The lanes may number epochs differently after a crash, so a rejected row is shown without its epoch.
    """
    found = run_to_end(pipeline, {"rows": given}, settings=settings)
    rows = {sink: [{**row, "epoch": None} if sink == "bad" else row for row in found[sink]] for sink in found}
    shown: dict[str, Any] = {sink: sorted((list(row.items()) for row in rows[sink]), key=repr) for sink in rows}
    return shown | {"counts": {node: asdict(counts) for node, counts in found.counts.items()}}


def lane_of(pipeline: ps.Pipeline) -> str:
    return split_lanes(pipeline.graph).lane(pipeline.graph.stateful[0])


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "epochs"), [(["k"], 2), (["k", "g"], 4)])
def test_lanes_give_the_same_rows_late_rows_rejected_rows_and_counts(
    keys: list[str], epochs: int, settings: Settings
) -> None:
    pipeline, given = deduplicated(rows().filter("v % 7 <> 3"), keys), history(3, epochs)
    assert lane_of(pipeline) == PACKED
    packed, spark = (outcome(pipeline, given, replace(settings, lane=lane)) for lane in ("auto", "spark"))
    counts = packed["counts"]["deduplicate"]
    assert min(counts["duplicate"], counts["late"], counts["used"], packed["counts"]["event_time"]["rejected"]) > 0
    assert counts["rows_in"] == counts["used"] + counts["duplicate"] + counts["late"]
    for what, found in packed.items():
        assert found == spark[what], what


def write_files(folder: Path, rows: int, files: int = 2) -> list[tuple[str, int]]:
    """Write one file for each epoch, and return the rows that are no duplicates; times go up by a millisecond."""
    folder.mkdir()
    chance = random.Random(rows)
    times = at(0).timestamp()
    newest: dict[str | None, int] = {}
    kept = []
    for number in range(files):
        numbers = range(number * rows, (number + 1) * rows)
        keys = [None if chance.random() < 0.01 else f"user-{chance.randrange(rows // 20)}" for _ in numbers]
        for key, at_ms in zip(keys, numbers, strict=True):
            if at_ms - newest.get(key, -(10**9)) > 10_000:
                newest[key] = at_ms
                kept.append((str(key), at_ms))
        stamps = pa.array([int(times) * 1000 + ms for ms in numbers], pa.int64()).cast(pa.timestamp("ms", "UTC"))
        table = pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(numbers, pa.int64()), "ts": stamps})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=rows // 5)
    return sorted(kept)


def files_job(tmp_path: Path) -> ps.Pipeline:
    read = ps.read_files(str(tmp_path / "in"), format="parquet", schema="k string, v bigint, ts timestamp")
    kept = read.event_time("ts", "5s").deduplicate("k", within="10s")
    return ps.Pipeline("p", kept.to(ps.files(str(tmp_path / "out"))))


def written(tmp_path: Path) -> list[tuple[str, int]]:
    found = duckdb.sql(f"SELECT coalesce(k, 'None'), v FROM '{tmp_path}/out/*.parquet'").fetchall()
    return sorted(found)


@pytest.mark.parametrize("parallelism", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
def test_partitions_of_several_batches_keep_the_first_row_of_each_key_in_files(
    parallelism: int, tmp_path: Path, settings: Settings
) -> None:
    expected = write_files(tmp_path / "in", 100_000)
    chosen = replace(at_parallelism(settings, parallelism), epoch_rows=100_000)
    report = files_job(tmp_path).run(until="drained", checkpoint=tmp_path / "c", settings=chosen)
    assert written(tmp_path) == expected
    counts = report.counts["deduplicate"]
    assert (counts.rows_in, counts.used) == (200_000, len(expected))
    assert counts.duplicate == 200_000 - len(expected)


@pytest.mark.parametrize("first", ["packed by Spark", pytest.param("packed by the scan", marks=pytest.mark.slow)])
def test_state_is_found_again_when_the_other_lane_packs(
    first: str, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of a version that packed in Spark goes on here, and one of this version there."""
    expected = write_files(tmp_path / "in", 2_000, files=3)
    later = [tmp_path / "in" / f"{number}.parquet" for number in (1, 2)]
    moved = [path.rename(tmp_path / path.name) for path in later]
    for step in range(3):
        by_scan = (first == "packed by the scan") is (step % 2 == 0)
        with monkeypatch.context() as patch:
            if not by_scan:
                patch.setattr(lanes, "KEY_TYPES", frozenset())
            assert (lane_of(files_job(tmp_path)) == PACKED) is by_scan
            files_job(tmp_path).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
        if step < 2:
            moved[step].rename(tmp_path / "in" / moved[step].name)
    assert written(tmp_path) == expected


# In short this is what tests/spark/checkpoints/test_ledgers.py has, for rows that are not packed.
@pytest.mark.slow
def test_an_older_checkpoint_that_is_put_back_is_refused_and_each_row_is_there_once(
    tmp_path: Path, settings: Settings
) -> None:
    expected = write_files(tmp_path / "in", 2_000)
    second = (tmp_path / "in" / "1.parquet").rename(tmp_path / "1.parquet")
    files_job(tmp_path).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    shutil.copytree(tmp_path / "c", tmp_path / "older")
    second.rename(tmp_path / "in" / "1.parquet")
    files_job(tmp_path).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "older").rename(tmp_path / "c")
    with pytest.raises(LedgerAhead, match="does not know"):
        files_job(tmp_path).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    assert written(tmp_path) == expected


class Numbered(ps.Process):
    """Numbers the rows of each key, in their order."""

    output = "k string, v bigint, n bigint"
    seen = ps.state.value(int)

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        self.seen.set(self.seen.get(0) + 1)
        yield {**ctx.key, "v": row["v"], "n": self.seen.get()}


# In short, the results are known without the other lane.
LANES = pytest.mark.parametrize(
    "in_lanes", [("auto",), pytest.param(("auto", "spark"), marks=pytest.mark.slow)], ids=len
)


@LANES
@pytest.mark.parametrize("timed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_process_function_gets_packed_rows_in_their_order(
    timed: bool, in_lanes: tuple[Any, ...], settings: Settings
) -> None:
    stream = rows().event_time("ts", "1d") if timed else rows().filter("v >= 0")
    pipeline = ps.Pipeline("p", stream.key_by("k").process(Numbered()).to(ps.collect()))
    assert lane_of(pipeline) == PACKED
    given = [item for item in history(5, 2 * len(in_lanes)) if not isinstance(item, dict) or item["ts"] is not None]
    packed, *others = (outcome(pipeline, given, replace(settings, lane=lane)) for lane in in_lanes)
    assert all(packed == spark for spark in others)
    last: dict[Any, int] = {}
    numbered = {dict(row)["v"]: dict(row)["n"] for row in packed["collect"]}
    for item in given:
        if isinstance(item, dict):
            last[item["k"]] = last.get(item["k"], 0) + 1
            assert numbered[item["v"]] == last[item["k"]]


def test_explain_says_who_packs_and_why_not() -> None:
    assert f"lane {PACKED}" in deduplicated(rows(), ["k", "g"]).explain()
    other = deduplicated(rows("k double, v bigint, ts timestamp"), ["k"])
    assert "lane spark (the key k is double, whose hash is Spark's)" in other.explain()
    shared = rows().event_time("ts", "5s")
    both = shared.deduplicate("k", within="10s").to(ps.collect()), shared.to(ps.collect()).named("all")
    assert "lane spark (the rows of event_time go several ways)" in ps.Pipeline("p", *both).explain()


@LANES
@pytest.mark.slow
def test_a_window_after_packed_rows_knows_the_watermark(in_lanes: tuple[Any, ...], settings: Settings) -> None:
    stream = rows().event_time("ts", "1s").deduplicate("k", within="5s")
    counts = stream.key_by("g").window(ps.tumbling("10s")).aggregate(n="count(*)")
    pipeline = ps.Pipeline("p", counts.to(ps.collect()), stream.to(ps.collect()).named("kept"))
    assert lane_of(pipeline) == PACKED
    given: list[Any] = [{"k": f"k{n % 4}", "g": 1, "v": n, "ts": at(n)} for n in range(12)]
    given += [EOF, {"k": "z", "g": 1, "v": 99, "ts": at(40)}]
    packed, *others = (outcome(pipeline, given, replace(settings, lane=lane)) for lane in in_lanes)
    assert all(packed == spark for spark in others)
    assert sorted(dict(row)["n"] for row in packed["collect"]) == [1, 2, 6]
    assert len(packed["kept"]) == 9
