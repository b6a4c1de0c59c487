"""The crash matrix itself: its judge misses nothing, and its cells meet every pair."""

from __future__ import annotations

from itertools import chain

import duckdb
import pyarrow as pa
import pytest

from tests.crash import outputs
from tests.crash.cells import BLOCK, Cell, cell_of, possible_pairs
from tests.crash.expected_output import EXPECTED, LATE, NEWEST, Findings, judge
from tests.crash.inputs import made

GIVEN = made(seed=3, count=1_000, epochs=10)
NAMES = ("out", "late", "rejected")


def cell(pipeline: str, sink: str = "topic") -> Cell:
    return Cell("files", sink, pipeline, "native", "driver")


def stateful(parallelism: str) -> Cell:
    return Cell("files", "topic", "process", "native", "driver", parallelism=parallelism)


def right(pipeline: str, query: str | None = None) -> dict[str, pa.Table]:
    """What a run should have written, in the types of its readers."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("input", GIVEN.table)
        out, late = (db.sql(one).to_arrow_table().to_pylist() for one in (query or EXPECTED[pipeline], LATE))
    if pipeline == "keyed":
        out.sort(key=lambda row: row["id"])
    rejected = [{"raw": line.encode()} for line in GIVEN.bad]
    columns = {"out": outputs.COLUMNS[pipeline], "late": outputs.COLUMNS["late"], "rejected": ("raw",)}
    rows = {"out": out, "late": late, "rejected": rejected}
    return {name: outputs.table(rows[name], columns[name]) for name in NAMES}


@pytest.mark.parametrize("pipeline", EXPECTED)
def test_the_right_output_has_no_findings(pipeline: str) -> None:
    written = right(pipeline)
    assert all(table.num_rows for table in written.values()), "there are late and rejected rows too"
    found = next(one for one in (cell(pipeline), *map(stateful, "123")) if one.computed == pipeline)
    assert set(judge(GIVEN, found, written).values()) == {Findings()}


def test_an_upsert_table_has_to_hold_the_newest_row_of_each_key() -> None:
    whole = right("keyed", NEWEST)
    assert judge(GIVEN, cell("keyed", "sqlite"), whole)["out"] == Findings()
    older = next(row for row in right("keyed")["out"].to_pylist() if row["symbol"] == "S03")
    rows = [older if row["symbol"] == "S03" else row for row in whole["out"].to_pylist()]
    changed = whole | {"out": pa.Table.from_pylist(rows, schema=whole["out"].schema)}
    assert judge(GIVEN, cell("keyed", "sqlite"), changed)["out"] == Findings(lost=1, wrong=1)


def test_a_row_of_a_keyed_topic_after_a_later_one_of_its_key_is_wrong() -> None:
    whole = right("keyed")
    rows = whole["out"].to_pylist()
    first, second = [number for number, row in enumerate(rows) if row["symbol"] == "S03"][:2]
    rows[first], rows[second] = rows[second], rows[first]
    changed = whole | {"out": pa.Table.from_pylist(rows, schema=whole["out"].schema)}
    assert judge(GIVEN, cell("keyed"), changed)["out"] == Findings(wrong=1)
    assert judge(GIVEN, cell("keyed", "files"), changed)["out"] == Findings(), "files have no order"


@pytest.mark.parametrize("output", NAMES)
def test_a_lost_a_doubled_and_a_changed_row_are_found_in_every_output(output: str) -> None:
    whole = right("windowed")
    rows = whole[output].to_pylist()

    def found(rows: list[outputs.Row]) -> Findings:
        changed = pa.Table.from_pylist(rows, schema=whole[output].schema)
        return judge(GIVEN, cell("windowed"), whole | {output: changed})[output]

    name = "raw" if output == "rejected" else "symbol"
    assert found(rows[1:]) == Findings(lost=1)
    assert found([*rows, rows[2]]) == Findings(duplicated=1)
    assert found([rows[0] | {name: "another"}, *rows[1:]]) == Findings(lost=1, wrong=1)


def test_an_empty_output_is_all_lost() -> None:
    whole = right("aggregated")
    found = judge(GIVEN, cell("aggregated"), whole | {"out": whole["out"].slice(0, 0)})
    assert found["out"] == Findings(lost=whole["out"].num_rows)


def test_a_hundred_runs_meet_every_pair_whatever_the_first_seed() -> None:
    for seed in (0, 7, 3 * BLOCK - 1):
        met = set(chain.from_iterable(cell_of(seed + run).pairs for run in range(100)))
        assert met >= possible_pairs()
