"""The crash matrix itself: its judge misses nothing, and its cells meet every pair."""

from __future__ import annotations

from itertools import chain

import duckdb
import pyarrow as pa
import pytest

from tests.crash import outputs
from tests.crash.cells import cell_of, ordered
from tests.crash.inputs import made
from tests.crash.judge import EXPECTED, LATE, Findings, judge

GIVEN = made(seed=3, count=1_000, epochs=10)


def right(pipeline: str) -> dict[str, pa.Table]:
    """What a run should have written, in the types of its readers."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("input", GIVEN.table)
        out, late = (db.sql(query).to_arrow_table().to_pylist() for query in (EXPECTED[pipeline], LATE))
    rejected = [{"raw": line.encode()} for line in GIVEN.bad]
    columns = {"out": outputs.COLUMNS[pipeline], "late": outputs.COLUMNS["late"], "rejected": ("raw",)}
    rows = {"out": out, "late": late, "rejected": rejected}
    return {name: outputs.table(rows[name], columns[name]) for name in outputs.NAMES}


@pytest.mark.parametrize("pipeline", EXPECTED)
def test_the_right_output_has_no_findings(pipeline: str) -> None:
    written = right(pipeline)
    assert all(table.num_rows for table in written.values()), "there are late and rejected rows too"
    assert set(judge(GIVEN, pipeline, written).values()) == {Findings()}


@pytest.mark.parametrize("output", outputs.NAMES)
def test_a_lost_a_doubled_and_a_changed_row_are_found_in_every_output(output: str) -> None:
    whole = right("windowed")
    rows = whole[output].to_pylist()

    def found(rows: list[outputs.Row]) -> Findings:
        changed = pa.Table.from_pylist(rows, schema=whole[output].schema)
        return judge(GIVEN, "windowed", whole | {output: changed})[output]

    name = "raw" if output == "rejected" else "symbol"
    assert found(rows[1:]) == Findings(lost=1)
    assert found([*rows, rows[2]]) == Findings(duplicated=1)
    assert found([rows[0] | {name: "another"}, *rows[1:]]) == Findings(lost=1, wrong=1)


def test_an_empty_output_is_all_lost() -> None:
    whole = right("aggregated")
    found = judge(GIVEN, "aggregated", whole | {"out": whole["out"].slice(0, 0)})
    assert found["out"] == Findings(lost=whole["out"].num_rows)


def test_a_hundred_runs_meet_every_pair_whatever_the_first_seed() -> None:
    every = set(chain.from_iterable(cell.pairs for cell in ordered()))
    for seed in range(len(ordered())):
        assert set(chain.from_iterable(cell_of(seed + run).pairs for run in range(100))) == every
