"""Promise: a pipeline whose outputs are given in another order keeps offsets and state where they belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.settings import Settings
from tests.connectors.table_sinks import sqlite_table

ROWS = {"a": [1, 2, 3], "b": [10, 20], "c": [100]}


def put(data: Path, name: str, number: int, values: list[int]) -> None:
    folder = data / name
    folder.mkdir(exist_ok=True)
    rows = [{"k": f"{name}{value % 2}", "v": value} for value in values]
    (folder / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def total(data: Path, name: str) -> ps.Output:
    """Sums of one source: each has the same columns, so that Spark would accept the state of another."""
    rows = ps.read_files(str(data / name), format="json", schema="k string, v bigint").named(name)
    sums = rows.key_by("k").aggregate(total="sum(v)").named(f"total-{name}")
    lite = f"sqlite:///{data}/totals.db"
    return sums.to(ps.table(f"total_{name}", connection=lite, mode="upsert", key="k")).named(f"to-{name}")


# By moving lines, or by running the file with `penstock run` first and in Python then.
@pytest.mark.parametrize("orders", [("abc", "cab"), pytest.param(("abc", "cab", "bca"), marks=pytest.mark.slow)])
def test_outputs_in_another_order_keep_their_rows_and_their_state(
    orders: tuple[str, ...], settings: Settings, tmp_path: Path
) -> None:
    for number, order in enumerate(orders):
        for name, values in ROWS.items():
            put(tmp_path, name, number, values * (number + 1))
        pipeline = ps.Pipeline("totals", *(total(tmp_path, name) for name in order))
        pipeline.run(until="drained", checkpoint=tmp_path / "checkpoint", settings=settings)
    times = sum(range(1, len(orders) + 1))
    for name, values in ROWS.items():
        table = sqlite_table(tmp_path / "totals.db", f"total_{name}")
        found = dict(table.sql(f"SELECT k, total FROM total_{name}"))
        assert found == {
            f"{name}{odd}": times * sum(value for value in values if value % 2 == odd)
            for odd in {value % 2 for value in values}
        }
