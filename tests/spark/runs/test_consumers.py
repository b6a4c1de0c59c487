"""Promise: every consumer of a stream gets each row once, and the rows of a key in their order, at any parallelism."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.settings import Settings
from tests.conftest import at_parallelism
from tests.spark.sink_targets import Row, Target, Targets

SCHEMA = "k string, n bigint"
ROWS, EPOCHS, KEYS = 3_000, 2, 10
# Further ones are in test_order.py.
CONSUMERS = (("user",), ("sqlite", "topic"), ("files", "files"), ("postgresql", "user", "topic"))


@pytest.fixture(params=[(1, "auto"), (3, "spark")], ids=lambda given: f"parallelism-{given[0]}-{given[1]}")
def where(request: pytest.FixtureRequest, settings: Settings, small_batches: int) -> Settings:
    parallelism, lane = request.param
    return replace(at_parallelism(settings, parallelism), epoch_rows=ROWS // EPOCHS, lane=lane)


@pytest.fixture
def targets(tmp_path: Path, request: pytest.FixtureRequest) -> Targets:
    return Targets(tmp_path, request)


def write_input(folder: Path) -> None:
    """Write csv files, one after the other in time."""
    folder.mkdir()
    for number in range(EPOCHS):
        share = ROWS // EPOCHS
        lines = (f"k{n % KEYS},{n}\n" for n in range(number * share, (number + 1) * share))
        (folder / f"{number}.csv").write_text("k,n\n" + "".join(lines))


def by_key(rows: list[Row]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row["n"])
    return dict(found)


def expected(kind: str) -> dict[str, list[int]]:
    """Return what a sink of this kind holds of each key: a table the newest row, the others all in order."""
    every = {f"k{key}": list(range(key, ROWS, KEYS)) for key in range(KEYS)}
    return {key: values[-1:] for key, values in every.items()} if kind in ("sqlite", "postgresql") else every


def assert_right(target: Target) -> None:
    found = by_key(target.rows())
    if target.kind == "files":
        found = {key: sorted(values) for key, values in found.items()}
    assert found == expected(target.kind)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", CONSUMERS, ids="-".join)
def test_every_consumer_of_a_stream_gets_its_rows_once_and_in_the_order_of_their_key(
    kinds: tuple[str, ...], where: Settings, targets: Targets, tmp_path: Path
) -> None:
    write_input(tmp_path / "in")
    rows = ps.read_files(str(tmp_path / "in"), format="csv", schema=SCHEMA).filter("n >= 0")
    made = [targets.make(kind, f"to{number}", key="k") for number, kind in enumerate(kinds)]
    pipeline = ps.Pipeline("consumers", *(rows.to(target.sink) for target in made))
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=where)
    for target in made:
        assert_right(target)


@pytest.mark.slow
def test_rows_keep_the_order_of_their_key_through_functions_with_two_consumers(
    where: Settings, targets: Targets, tmp_path: Path
) -> None:
    def split(row: Row) -> list[Any]:
        return [row, ("copies", row)]

    async def same(row: Row) -> Row:
        return row

    write_input(tmp_path / "in")
    rows = ps.read_files(str(tmp_path / "in"), format="csv", schema=SCHEMA)
    both = rows.flat_map(split, SCHEMA, sides={"copies": SCHEMA})
    called = rows.map_async(same, SCHEMA, ordered=True)
    streams = {"main": both, "copies": both.side("copies"), "called": called}
    made = {name: targets.make("user", name, key="k") for name in streams}
    pipeline = ps.Pipeline("functions", *(stream.to(made[name].sink) for name, stream in streams.items()))
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=where)
    for target in made.values():
        assert_right(target)
