"""Promise: a journal of declared entries stays short, whatever is killed when, and entries keep their numbers."""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.errors import CheckpointDamaged
from penstock.spark.epochs.journal_compaction import JournalCompaction, JournalReaders
from penstock.spark.tasks.control_journal import ControlJournal, DeclaredTimes
from penstock.storage.folders import Folder, LocalFolder
from penstock.storage.hadoop_folders import HadoopFolder
from penstock.storage.journals import BATCH, copy_journal
from penstock.storage.object_folders import ObjectFolder
from tests.conftest import at
from tests.s3 import BUCKET

RETAINED = 5
# Of journals in property tests: they are compacted often.
FEW = 3


class Killed(BaseException):
    """A process ended here."""


@dataclass
class Counting:
    """A folder that counts its operations, and kills the process before one of them."""

    inner: Folder
    counts: Counter[str] = field(default_factory=Counter)
    fuse: list[int | None] = field(default_factory=lambda: [None])
    local: None = None

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def hadoop(self) -> str:
        return self.inner.hadoop

    def __truediv__(self, name: str) -> Counting:
        return Counting(self.inner / name, self.counts, self.fuse)

    def read(self, name: str) -> bytes | None:
        self._count("read")
        return self.inner.read(name)

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        self._count("write")
        self.inner.write(name, data, once=once, sync=sync)

    def names(self) -> list[str]:
        self._count("list")
        return self.inner.names()

    def files(self) -> dict[str, int]:
        self._count("list")
        return self.inner.files()

    def remove(self, name: str) -> None:
        self._count("remove")
        self.inner.remove(name)

    def copy(self, names: Iterable[str], to: Folder) -> None:
        self.inner.copy(names, to)

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        if self.fuse[0] is not None:
            self.fuse[0] -= 1
            if self.fuse[0] < 0:
                raise Killed


def _store(path: Path) -> Folder:
    """A folder whose journals are kept as in an object store."""
    return Counting(HadoopFolder(f"file://{path}"))


KINDS: dict[str, Callable[[Path], Folder]] = {"disk": LocalFolder, "store": _store}


class Job(RuleBasedStateMachine):
    """A driver that declares and compacts, a planner that reads, and a list of what was declared."""

    kind = "disk"

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(mkdtemp())
        self.folder = KINDS[self.kind](self.path)
        self.model: list[bytes] = []
        self.bounds: dict[int, int] = {}
        self.done = -1
        self.start()

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    def start(self) -> None:
        self.driver, self.planner = self.opened(), self.opened()
        self.compaction = JournalCompaction(
            {"ticks": self.driver}, [JournalReaders(self.query, ["clock"], frozenset())]
        )

    def opened(self) -> ControlJournal:
        return ControlJournal(self.folder, "ticks", FEW)

    @property
    def query(self) -> Folder:
        return self.folder / "queries" / "q"

    @rule(count=st.integers(1, 2 * FEW), by_planner=st.booleans())
    def declare(self, count: int, by_planner: bool) -> None:
        for _ in range(count):
            line = str(len(self.model)).encode()
            (self.planner if by_planner else self.driver).declare(line)
            self.model.append(line)

    @rule(part=st.floats(0, 1))
    def epoch(self, part: float) -> None:
        before = self.bounds.get(self.done, 0)
        end = before + round((self.planner.end() - before) * part)
        self.plan(end)
        self.commit()

    def plan(self, end: int) -> None:
        number, start = self.done + 1, self.bounds.get(self.done, 0)
        self.bounds[number] = end
        self.query.write(f"offsets/{number}", f'v1\n{{}}\n{{"0": {end}}}'.encode())
        assert self.planner.between(start, end) == self.expected(start, end)

    def commit(self) -> None:
        self.done += 1
        self.query.write(f"commits/{self.done}", b"v1\n{}")
        for log in ("offsets", "commits"):
            self.query.remove(f"{log}/{self.done - RETAINED}")
        self.planner.forget(self.bounds[self.done])
        self.compaction.run()

    def expected(self, start: int, end: int) -> list[bytes]:
        """Who has read nothing yet gets what is kept."""
        return self.model[start:end] if start else self.model[self.planner.first : end]

    @rule()
    def restart(self) -> None:
        self.start()

    @rule(steps=st.integers(0, 12))
    @precondition(lambda self: self.kind == "store" and self.done >= 0)
    def kill_while_compacting(self, steps: int) -> None:
        assert isinstance(self.folder, Counting)
        self.folder.fuse[0] = steps
        try:
            bounds = [self.bounds[max(self.done - RETAINED + 1, 0)], self.bounds[self.done]]
            self.driver.compact(bounds[0] if self.done >= RETAINED else 0, bounds[1])
        except Killed:
            pass
        self.folder.fuse[0] = None
        self.start()

    @rule(data=st.data())
    @precondition(lambda self: self.done >= RETAINED)
    def replay_an_older_epoch(self, data: st.DataObject) -> None:
        """Damage sent the job back: all epochs since are planned again with the bounds that they had."""
        self.start()
        first = data.draw(st.integers(self.done - RETAINED + 2, self.done))
        for epoch in range(first, self.done + 1):
            start, end = self.bounds[epoch - 1], self.bounds[epoch]
            assert self.planner.between(start, end) == self.expected(start, end)

    @rule(data=st.data())
    @precondition(lambda self: self.done >= RETAINED)
    def fork(self, data: st.DataObject) -> None:
        epoch = data.draw(st.integers(self.done - RETAINED + 1, self.done))
        target = KINDS[self.kind](self.path / uuid.uuid4().hex)
        copy_journal(self.folder, target, "ticks", self.bounds[epoch])
        forked = ControlJournal(target, "ticks")
        assert forked.end() == self.bounds[epoch]
        forked.declare(b"fork")
        assert forked.between(self.bounds[epoch], self.bounds[epoch] + 1) == [b"fork"]

    @invariant()
    def numbers_stay(self) -> None:
        fresh = self.opened()
        assert fresh.end() == self.driver.end() == self.planner.end() == len(self.model)
        assert fresh.newest() == (self.model[-1] if self.model else None)
        assert fresh.between(0, len(self.model)) == self.model[fresh.first :]

    @invariant()
    def what_a_kept_epoch_needs_is_there(self) -> None:
        fresh = self.opened()
        fresh.end()
        if self.done >= RETAINED:
            needed = self.bounds[self.done - RETAINED + 1]
            assert fresh.first <= needed


class StoreJob(Job):
    kind = "store"


_EXAMPLES = hypothesis_settings(max_examples=30, stateful_step_count=30, deadline=None)
TestJournalOnADisk = Job.TestCase
TestJournalOnADisk.settings = _EXAMPLES
TestJournalInAStore = StoreJob.TestCase
TestJournalInAStore.settings = _EXAMPLES


def _run_epochs(folder: Folder, count: int, *, each: int = 1) -> tuple[ControlJournal, ControlJournal]:
    """Declare, plan and commit as a job does; epochs are kept as Spark keeps them."""
    query = folder / "queries" / "q"
    driver, planner = ControlJournal(folder, "ticks"), ControlJournal(folder, "ticks")
    compaction = JournalCompaction({"ticks": driver}, [JournalReaders(query, ["rows"], frozenset({"rows"}))])
    for epoch in range(count):
        for number in range(each):
            driver.declare(json.dumps(epoch * each + number).encode())
        end = planner.end()
        query.write(f"offsets/{epoch}", f'v1\n{{}}\n{{"0": 1, "@ticks": {end}}}'.encode(), sync=False)
        query.write(f"commits/{epoch}", b"v1\n{}", sync=False)
        for log in ("offsets", "commits"):
            query.remove(f"{log}/{epoch - RETAINED}")
        planner.forget(end)
        compaction.run()
    return driver, planner


@pytest.mark.parametrize("kind", ["arrow", pytest.param("s3", marks=pytest.mark.slow)])
def test_a_declaration_costs_a_few_operations_of_a_store_after_thousands(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "s3":
        inner: Folder = ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", request.getfixturevalue("s3"))
    else:
        inner = HadoopFolder(f"file://{tmp_path}")
    folder = Counting(inner)
    driver, planner = _run_epochs(folder, 400, each=8 if kind == "arrow" else 1)
    declared = driver.end()
    folder.counts.clear()
    for number in range(20):
        driver.declare(str(declared + number).encode())
    assert folder.counts == {"write": 20, "read": 20}
    folder.counts.clear()
    assert planner.end() == declared + 20
    assert folder.counts["read"] == 21

    folder.counts.clear()
    assert ControlJournal(folder, "ticks").end() == declared + 20
    assert folder.counts["read"] <= 2 * BATCH + 2
    assert folder.counts["list"] == 1
    assert len((inner / "ticks").files()) <= 2 * BATCH + 2


def test_a_journal_on_a_disk_stays_short(tmp_path: Path) -> None:
    driver, planner = _run_epochs(LocalFolder(tmp_path), 300)
    assert len((tmp_path / "ticks.jsonl").read_bytes().splitlines()) <= BATCH + RETAINED + 2
    assert driver.end() == planner.end() == 300
    assert pickle.loads(pickle.dumps(planner)).between(297, 300) == [b"297", b"298", b"299"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_entry_is_never_dropped(kind: str, tmp_path: Path) -> None:
    ticks = DeclaredTimes(KINDS[kind](tmp_path))
    for second in range(200):
        ticks.tick(at(second))
    ticks.compact(200, 200)
    again = DeclaredTimes(KINDS[kind](tmp_path))
    assert (again.end(), again.times(199, 200)) == (200, ticks.times(199, 200))
    assert again.first > 100


@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_are_asked_for_and_not_there_are_an_error_and_no_gap(kind: str, tmp_path: Path) -> None:
    ticks = DeclaredTimes(KINDS[kind](tmp_path))
    for second in range(200):
        ticks.tick(at(second))
    ticks.compact(150, 200)
    for start, end in ((100, 200), (199, 201)):
        with pytest.raises(CheckpointDamaged, match=rf"ticks.* holds the entries 1\d\d to 200, not {start} to {end}"):
            DeclaredTimes(KINDS[kind](tmp_path)).times(start, end)


def test_a_part_that_was_deleted_is_named(tmp_path: Path) -> None:
    ticks = DeclaredTimes(_store(tmp_path))
    for second in range(4):
        ticks.tick(at(second))
    (tmp_path / "ticks" / "000000002.jsonl").unlink()
    with pytest.raises(CheckpointDamaged, match=r"ticks/000000002\.jsonl is missing"):
        DeclaredTimes(_store(tmp_path)).end()


def test_a_driver_that_waited_for_a_file_that_was_replaced_appends_to_the_new_one(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    first, second = ControlJournal(folder, "ticks"), ControlJournal(folder, "ticks")
    for number in range(100):
        first.declare(str(number).encode())
    second.end()
    first.compact(90, 100)
    second.declare(b"100")
    first.declare(b"101")
    assert ControlJournal(folder, "ticks").between(90, 102) == [str(number).encode() for number in range(90, 102)]


def test_a_compaction_that_ends_late_leaves_the_newer_base_alone(tmp_path: Path) -> None:
    folder = _store(tmp_path)
    late, current = ControlJournal(folder, "ticks"), ControlJournal(folder, "ticks")
    for number in range(100):
        late.declare(str(number).encode())
    for number in range(100, 300):
        current.declare(str(number).encode())
    current.compact(250, 300)
    late_journal = late._journal
    late_journal.compact(10, 100, [str(number).encode() for number in range(10, 100)])
    fresh = ControlJournal(folder, "ticks")
    assert (fresh.end(), fresh.first) == (300, 250)
