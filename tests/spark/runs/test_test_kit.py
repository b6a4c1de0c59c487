"""The test kit itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.generators.datagen import DataGen
from penstock.contracts import Offsets
from penstock.errors import BadValue
from penstock.settings import Settings
from penstock.testing import EOF, AdvanceClock, assert_rows, check_source, run_to_end


def test_the_clock_of_rate_limited_sources_can_be_moved(settings: Settings) -> None:
    slow = ps.datagen("n bigint", rows=10_000, rate=1)
    items = ps.from_items([], "n bigint").named("items")
    pipeline = ps.Pipeline("p", slow.union(items).to(ps.collect()))
    out = run_to_end(pipeline, {"items": [AdvanceClock("1d")]}, settings=settings)
    assert len(out["collect"]) == 10_000


def test_eof_ends_an_epoch(settings: Settings) -> None:
    rows = ps.from_items([], "n bigint").named("rows")
    totals = rows.with_columns(all="1").key_by("all").aggregate(n="count(*)")
    out = run_to_end(ps.Pipeline("p", totals.to(ps.collect())), {"rows": [(1,), (2,), EOF, (3,)]}, settings=settings)
    assert [row["n"] for row in out["collect"]] == [2, 3]


def test_an_unknown_input_lists_the_sources() -> None:
    pipeline = ps.Pipeline("p", ps.from_items([], "a bigint").named("trades").to(ps.collect()))
    with pytest.raises(BadValue, match="did you mean 'trades'"):
        run_to_end(pipeline, {"trade": []})


def test_rows_that_differ_are_shown() -> None:
    assert_rows([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}])
    with pytest.raises(AssertionError, match=r"missing: \{'a': 3\}\n  extra:   \{'a': 1\}"):
        assert_rows([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 3}])


def test_a_source_that_keeps_its_promise_passes() -> None:
    check_source(lambda: DataGen("trades", rows=50))


class Forgetful(ps.Source):
    """Gives other rows each time."""

    name = "forgetful"
    schema = ps.Schema("v bigint")
    reads = 0

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        return {"0": 3}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        yield pa.RecordBatch.from_pydict({"v": [self.reads] * 3})


def test_a_source_that_cannot_be_read_again_is_caught() -> None:
    with pytest.raises(AssertionError, match="a second read gave other rows"):
        check_source(Forgetful)


class Splitting(DataGen):
    """Splits in another way each time, or does not store where it began."""

    made = 0

    def __init__(self, what: str) -> None:
        super().__init__("n bigint", rows=50)
        self.what, self.number = what, Splitting.made
        Splitting.made += 1

    def initial(self) -> Offsets:
        return {"0": self.number if self.what == "initial" else 0}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Any:
        return super().splits(start, end, parallelism + self.number if self.what == "splits" else parallelism)


@pytest.mark.parametrize(("what", "found"), [("splits", "gave other splits"), ("initial", "begins at other offsets")])
def test_a_source_that_does_not_repeat_its_splits_as_it_promises_is_caught(what: str, found: str) -> None:
    with pytest.raises(AssertionError, match=f"a restarted source {found}"):
        check_source(lambda: Splitting(what))
