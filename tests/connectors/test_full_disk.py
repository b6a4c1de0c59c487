"""A disk that is full at any write of a sink, staging and ledger among them: an error, and then every row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from penstock.errors import DiskFull
from tests.connectors.files.test_power_loss import EPOCHS, expected, rows, started, visible, write
from tests.connectors.table_sinks import TargetTable, prepare, sqlite_table
from tests.crash.disk import SmallDisk

PAGE = 4096
# From no room at all to enough for everything, a page more each time: whatever is written is the victim once.
MOST_PAGES = 200
SHAPE = "n bigint, d string"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not SmallDisk.can_be_had():
        pytest.skip("only root may mount a small disk")
    made = SmallDisk.mounted(tmp_path / "disk", megabytes=2)
    try:
        yield made
    finally:
        made.end()


class Job(Protocol):
    """A sink that epochs are written to, by a run that starts or restarts, and what its readers see."""

    def write(self, first: int, last: int) -> None: ...
    def visible(self) -> Counter[int]: ...


@dataclass
class Files:
    """Files in a folder."""

    folder: Path

    def write(self, first: int, last: int) -> None:
        write(started(self.folder), first, last)

    def visible(self) -> Counter[int]:
        return visible(self.folder)


@dataclass
class Table:
    """A table of SQLite."""

    folder: Path

    @property
    def _target(self) -> TargetTable:
        return sqlite_table(self.folder / "out.db", "out")

    def write(self, first: int, last: int) -> None:
        sink = self._target.sink(SHAPE)
        for number in range(first, last):
            both = [row for part in range(2) for batch in rows(number, part) for row in batch.to_pylist()]
            prepare(sink, number, SHAPE, both)

    def visible(self) -> Counter[int]:
        return Counter(n for (n,) in self._target.sql("SELECT n FROM out"))


def is_full(job: Job) -> bool:
    """Write the other epochs, and return whether there was no space for them."""
    try:
        job.write(1, EPOCHS)
    except DiskFull as error:
        return "free some space" in str(error.hint)
    return False


@pytest.mark.parametrize("kind", [Files, Table])
def test_every_row_is_there_once_whichever_write_finds_the_disk_full(
    kind: type[Files | Table], disk: SmallDisk
) -> None:
    was_full, committed = [], set()
    for pages in range(MOST_PAGES):
        job = kind(disk.folder / str(pages))
        job.write(0, 1)
        disk.fill(leave_bytes=pages * PAGE)
        was_full.append(is_full(job))
        disk.free()
        seen = job.visible()
        assert seen in [expected(upto) for upto in range(1, EPOCHS + 1)], f"{pages} pages: half of an epoch is visible"
        committed.add(seen.total() // expected(1).total())
        job.write(0, EPOCHS)
        assert job.visible() == expected(EPOCHS), f"{pages} pages"
        if not was_full[-1]:
            break
    assert len(was_full) > 3, "several writes found the disk full"
    assert {1, EPOCHS} <= committed
