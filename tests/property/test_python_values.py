"""Promise: what Python returns comes out exactly as it was, or its row is rejected with the value and its type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.generators.items import ItemSource
from penstock.errors import FunctionFailed
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.testing import run_to_end
from penstock.values import rows_of
from penstock.values.scalars import shown
from tests.property.python_values import TYPES, Case, cases, is_same

Row = dict[str, Any]
COLUMNS = {kind: f"c{number}" for number, kind in enumerate(TYPES)}
SCHEMA = Schema({"id": "bigint", **{column: kind for kind, column in COLUMNS.items()}})


def row_of(number: int, case: Case) -> Row:
    return {"id": number, COLUMNS[case.kind]: case.value}


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
def test_a_value_fits_or_is_named_with_its_type(seed: int) -> None:
    given = cases(seed, 4_000)
    array, wrong = rows_of(SCHEMA).converted([row_of(number, case) for number, case in enumerate(given)])
    for number, (case, found) in enumerate(zip(given, array.to_pylist(), strict=True)):
        check(case, found, str(wrong[number]) if number in wrong else None)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
def test_a_column_of_values_that_all_fit_is_the_same_as_each_alone(seed: int) -> None:
    chance = Random(seed)
    for kind, (good, _) in TYPES.items():
        fits = rows_of(Schema({"x": kind}))
        # Of one Python type, as most functions return, so that Arrow converts them all at once.
        values = [good(chance) for _ in range(200)]
        for python in {type(value) for value in values}:
            same = [value for value in values if type(value) is python]
            array, wrong = fits.converted([{"x": value} for value in same])
            assert not wrong
            assert all(is_same(row["x"], value, kind) for row, value in zip(array.to_pylist(), same, strict=True))


def check(case: Case, found: Row | None, reason: str | None) -> None:
    """A value that fits comes out as it was; for another the reason names it and its type, or those of a part."""
    if case.fits:
        assert reason is None, f"{case}: {reason}"
        assert found is not None, case
        assert is_same(found[COLUMNS[case.kind]], case.value, case.kind), f"{case} came out as {found}"
        return
    assert found is None, f"{case} came out as {found}"
    assert reason is not None, case
    if "<" not in case.kind:
        assert f"column '{COLUMNS[case.kind]}' is {case.kind}, and was given {shown(case.value)}" in reason, reason
    else:
        assert f"column '{COLUMNS[case.kind]}" in reason, reason
        assert " is " in reason, reason
        assert "and was given" in reason, reason


class Giving(ps.Process):
    """Yields the value that belongs to a row."""

    output = SCHEMA
    seen = ps.state.value(int)

    def __init__(self, given: list[Case]) -> None:
        self.given = given

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        self.seen.set(self.seen.get(0) + 1)
        yield row_of(row["id"], self.given[row["id"]])


def nodes(given: list[Case]) -> dict[str, Callable[[ps.Stream], ps.Stream]]:
    """Every node that calls a Python function on rows."""

    def one(row: Row) -> Row:
        number = row.pop("id")
        return row_of(number, given[number])

    def two(row: Row) -> Iterator[Any]:
        yield {"id": row["id"]}
        yield "side", row_of(row["id"], given[row["id"]])

    async def asked(row: Row) -> Row:
        return one(row)

    return {
        "map": lambda rows: rows.map(one, SCHEMA),
        "stored": lambda rows: rows.map(one, SCHEMA, deterministic=False),
        "flat_map": lambda rows: rows.flat_map(two, "id bigint", sides={"side": SCHEMA}),
        "map_async": lambda rows: rows.map_async(asked, SCHEMA),
        "unordered": lambda rows: rows.map_async(asked, SCHEMA, ordered=False),
        "process": lambda rows: rows.key_by("half").process(Giving(given)),
    }


# In short without the two that store answers in the same way as `map_async`.
SHORT = ("map", "flat_map", "map_async", "process")


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 5))])
def test_every_row_comes_out_exactly_or_is_rejected_with_the_value_and_its_type(settings: Settings, seed: int) -> None:
    given = cases(seed, 400)
    rows = [{"id": number, "half": number // 2} for number in range(len(given))]
    chosen = SHORT if seed == 1 else NAMES
    made = {name: build(source()).named(name) for name, build in nodes(given).items() if name in chosen}
    outputs = [stream.to(ps.collect()).named(f"{name}-out") for name, stream in made.items()]
    side = made["flat_map"].side("side").to(ps.collect()).named("side-out")
    pipeline = ps.Pipeline("values", *outputs, side, rejected_to=ps.console())
    out = run_to_end(pipeline, {"rows": rows}, settings=settings)
    good = {number for number, case in enumerate(given) if case.fits}
    assert {row["id"] for row in out["flat_map-out"]} == good, "of a row that is rejected nothing else comes out"
    for name in made:
        found = {row["id"]: row for row in out["side-out" if name == "flat_map" else f"{name}-out"]}
        rejected = {json.loads(row["row"])["id"]: row["reason"] for row in out["console"] if row["node"] == name}
        assert len(found) + len(rejected) == len(given), name
        for number, case in enumerate(given):
            check(case, found.get(number), rejected.get(number))
        counts = out.counts[name]
        assert (counts.rows_in, counts.used, counts.rejected) == (len(given), len(good), len(rejected)), name


def source() -> ps.Stream:
    return ps.read(ItemSource([], "id bigint, half bigint", "rows"))


NAMES = [*nodes([])]


@pytest.mark.parametrize("name", ["map", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_without_rejected_to_the_job_stops_and_names_node_row_value_and_type(settings: Settings, name: str) -> None:
    given = [Case("bigint", 2**63, fits=False)]
    stream = nodes(given)[name](source()).named("it")
    with pytest.raises(FunctionFailed) as failed:
        run_to_end(ps.Pipeline("values", stream.to(ps.collect())), {"rows": [{"id": 0, "half": 0}]}, settings=settings)
    text = str(failed.value)
    assert "'it'" in text
    assert f"is bigint, and was given {2**63} (int): it is out of range" in text
    assert "the input row was {'id': 0, 'half': 0}" in text


class Last(ps.Aggregator):
    """The value that belongs to the newest row: through the accumulator and the result."""

    def __init__(self, kind: str, values: list[Any]) -> None:
        super().__init__("id")
        self.state = self.result = kind
        self.values = values

    def start(self) -> Any:
        return None

    def add(self, acc: Any, *values: Any) -> Any:
        return self.values[values[0]]

    def merge(self, a: Any, b: Any) -> Any:
        return b

    def finish(self, acc: Any) -> Any:
        return acc


@pytest.mark.parametrize(
    ("types", "kinds"),
    [
        (sorted(TYPES)[::4], ("running",)),
        pytest.param(sorted(TYPES), ("windows", "running"), marks=pytest.mark.slow),
    ],
    ids=len,
)
def test_accumulators_and_results_of_aggregators_are_exact(
    settings: Settings, types: list[str], kinds: tuple[str, ...]
) -> None:
    chance = Random(1)
    values = {kind: [TYPES[kind][0](chance) for _ in range(30)] for kind in types}
    keyed = source().key_by("id")
    last = {COLUMNS[kind]: Last(kind, mine) for kind, mine in values.items()}
    made = {"windows": keyed.window(ps.count_window(1)).aggregate(**last), "running": keyed.aggregate(**last)}
    outputs = [made[kind].named(kind).to(ps.collect()).named(f"to-{kind}") for kind in kinds]
    pipeline = ps.Pipeline("values", *outputs)
    out = run_to_end(pipeline, {"rows": [{"id": number, "half": 0} for number in range(30)]}, settings=settings)
    for name in kinds:
        assert len(out[f"to-{name}"]) == 30
        for row in out[f"to-{name}"]:
            for kind, mine in values.items():
                assert is_same(row[COLUMNS[kind]], mine[row["id"]], kind), f"{name}: {kind} {mine[row['id']]!r}"


@pytest.mark.parametrize(
    ("value", "windowed"), [(1.5, False), pytest.param(1.5, True, marks=pytest.mark.slow)], ids=["running", "window"]
)
def test_an_aggregator_that_does_not_give_what_it_declares_stops_the_job(
    settings: Settings, value: Any, windowed: bool
) -> None:
    keyed = source().key_by("id")
    grouped: Any = keyed.window(ps.count_window(1)) if windowed else keyed
    pipeline = ps.Pipeline("values", grouped.aggregate(n=Last("bigint", [value])).named("last").to(ps.collect()))
    with pytest.raises(FunctionFailed, match=r"'last': Last does not give .* is bigint, and was given 1.5 \(float\)"):
        run_to_end(pipeline, {"rows": [{"id": 0, "half": 0}]}, settings=settings)
