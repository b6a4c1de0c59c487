"""Promise: a source with `repeats_splits` gives a replay the splits that the run before it had, row by row."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.file_log import LoggedFile, pieces
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.stdin import _LEAST_PIECE, StdinSource
from penstock.connectors.generators.datagen import DataGen
from penstock.connectors.generators.items import ItemSource
from penstock.connectors.ranges import split_range
from penstock.connectors.topics.offsets import Range, TopicMetadata, clipped, cut, planned_ranges, ranges
from penstock.contracts import Offsets, Source
from penstock.schema import Schema
from tests.waiting import wait_for

NUMBERS = Schema("n bigint")
ROWS = 20_000
TASKS = (1, 2, 3, 5)


def files(folder: Path) -> Source:
    """Files of every kind that is split in another way, each of several splits."""
    lines = [f"{n},{'x' * 60}\n" for n in range(ROWS)]
    (folder / "0.csv").write_text("".join(lines[:9_000]))
    (folder / "1.csv").write_text("".join(lines[9_000:9_010]))
    (folder / "2.csv.gz").write_bytes(gzip.compress("".join(lines[9_010:11_000]).encode()))
    (folder / "3.csv").write_text("".join(lines[11_000:]))
    return FileSource(str(folder / "*.csv*"), Schema("n bigint, filler string"), "csv")


def parquet(folder: Path) -> Source:
    for number in range(3):
        table = pa.table({"n": range(number * 7_000, min(ROWS, (number + 1) * 7_000))})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=1_500)
    return FileSource(str(folder / "*.parquet"), NUMBERS)


def stdin(folder: Path) -> Source:
    return StdinSource(Schema("n bigint, filler string"), "csv")


def items(folder: Path) -> Source:
    return ItemSource([(n,) for n in range(ROWS)], NUMBERS)


def made_up(folder: Path) -> Source:
    return DataGen("n bigint", rows=ROWS)


def splits_of(source: Source, start: Offsets, end: Offsets, tasks: int) -> list[list[Any]]:
    return [
        [row for item in source.read_split(split) for row in item.to_pylist()]  # type: ignore[union-attr]
        for split in source.splits(start, end, tasks)
    ]


@pytest.mark.parametrize("make", [files, parquet, stdin, items, made_up], ids=lambda make: make.__name__)
def test_a_restarted_source_gives_every_split_the_same_rows(make: Any, tmp_path: Path) -> None:
    checkpoint, data = tmp_path / "checkpoint", tmp_path / "data"
    checkpoint.mkdir()
    data.mkdir()
    source = make(data)
    source.open(str(checkpoint))
    if isinstance(source, StdinSource):
        source.stream = io.BufferedReader(io.BytesIO(b"".join(b"%d,%s\n" % (n, b"x" * 60) for n in range(ROWS))))
        source.start_background()
        wait_for(lambda: (checkpoint / "end").exists())
    start = source.initial()
    middle = source.latest(start, ROWS // 2)
    before = [
        (begin, end, tasks)
        for begin, end in ((start, middle), (middle, source.latest(middle, None)))
        for tasks in TASKS
    ]
    found = [splits_of(source, *one) for one in before]
    again = make(data)
    again.open(str(checkpoint))
    assert again.repeats_splits
    assert [splits_of(again, *one) for one in before] == found
    numbers = sorted(row["n"] for at, one in enumerate(before) if one[2] == 3 for rows in found[at] for row in rows)
    assert len(numbers) == ROWS
    assert max(map(len, found)) > 2, "there was something to split"


def test_splits_are_cut_as_in_checkpoints_that_are_there(tmp_path: Path) -> None:
    """An epoch that was started before an upgrade is read again after it: change no number here without a new mark."""
    start, end = {"0": 1_000}, {"0": 5_000}
    assert items(tmp_path).splits(start, end, 3) == [("0", 1_000, 2_333), ("0", 2_333, 3_666), ("0", 3_666, 5_000)]
    assert len(items(tmp_path).splits({"0": 0}, {"0": 2_999}, 3)) == 2
    assert made_up(tmp_path).splits(start, end, 3) == items(tmp_path).splits(start, end, 3)
    assert split_range(0, 700_000, 3, _LEAST_PIECE) == [(0, 350_000), (350_000, 700_000)]
    assert [len(cut([Range(0, 0, rows)], 3)) for rows in (9_999, 10_000, 14_999, 15_000)] == [1, 2, 2, 3]
    assert cut([Range(0, 3, 10_003), Range(1, 0, 5_000)], 2) == [
        (Range(0, 3, 7_503),),
        (Range(0, 7_503, 10_003), Range(1, 0, 5_000)),
    ]
    text, groups = LoggedFile("a.csv", 600_000, 600_000), LoggedFile("b.parquet", 9, 4, (100, 300, 200, 400))
    assert [[part[:3] for part in split] for split in pieces([(text, 0, 600_000), (text, 0, 300_000)], 3)] == [
        [("a.csv", 0, 300_000)],
        [("a.csv", 300_000, 600_000)],
        [("a.csv", 0, 300_000)],
    ]
    assert [[part[:3] for part in split] for split in pieces([(groups, 0, 4)], 3)] == [
        [("b.parquet", 0, 2)],
        [("b.parquet", 2, 3)],
        [("b.parquet", 3, 4)],
    ]


OFFSETS = st.integers(0, 12_000)
PARTITIONS = st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS, OFFSETS), max_size=4)


@given(PARTITIONS, st.integers(1, 5))
def test_what_a_topic_loses_before_a_replay_moves_no_offset_to_another_split(
    partitions: list[tuple[int, int, int, int]], tasks: int
) -> None:
    pairs = [(sorted(given[:2]), sorted(given[2:])) for given in partitions]
    start, end = ({str(n): read[at] for n, (read, _) in enumerate(pairs)} for at in (0, 1))
    lows, highs = ({n: there[at] for n, (_, there) in enumerate(pairs)} for at in (0, 1))
    there = {one.partition: one for one in ranges(start, end, TopicMetadata("", lows, highs))}
    planned = cut(planned_ranges(start, end), tasks)
    left = clipped(planned, [*there.values()])
    assert len(left) == len(planned) or (not planned and len(left) == any(one.lost for one in there.values()))
    for before, now in zip(planned, left, strict=False):
        rows = {(one.partition, n) for one in before for n in range(one.first, one.last)}
        assert {(one.partition, n) for one in now for n in range(one.first, one.last)} == {
            (part, n) for part, n in rows if part in there and there[part].first <= n < there[part].last
        }
    assert [one.lost for split in left for one in split if one.lost] == [one.lost for one in there.values() if one.lost]


def test_the_splits_of_a_recreated_topic_start_at_its_first_offset() -> None:
    start, end = {"0": 500, "id": "old"}, {"0": 100, "id": "new"}
    there = ranges(start, end, TopicMetadata("new", {0: 20}, {0: 100}))
    (split,) = clipped(cut(planned_ranges(start, end), 2), there)
    assert [one[:3] for one in split] == [(0, 20, 20), (0, 20, 100)]
    assert "recreated" in split[0].lost
