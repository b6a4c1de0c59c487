"""A power cut at any moment, after which a job runs again: each committed epoch is there once and whole."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.files.compaction import Compaction
from penstock.connectors.files.sink import FileSink
from penstock.contracts import Epoch
from penstock.schema import Schema
from penstock.storage import durable_files as durable
from penstock.storage.folders import LocalFolder
from penstock.storage.stores import LocalStore
from tests.connectors.files.power_loss import Recorder, Recording, State

# A process that is killed closes no files.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

ROWS = Schema("n bigint, d string")
EPOCHS = 3


def rows(epoch: int, partition: int) -> list[pa.RecordBatch]:
    found = [{"n": 100 * epoch + 10 * partition + n, "d": "ab"[n % 2]} for n in range(2)]
    return [pa.RecordBatch.from_pylist(found, schema=ROWS.nullable().arrow)]


def expected(upto: int) -> Counter[int]:
    made = (rows(epoch, part)[0].column("n").to_pylist() for epoch in range(upto) for part in range(2))
    return Counter(n for one in made for n in one)


def epoch(number: int) -> Epoch:
    return Epoch("line", "out", number)


def started(path: Path, **options: object) -> FileSink:
    """A sink as a run that starts or restarts has it."""
    sink = FileSink(str(path / "deep" / "out"), "json", **options)  # type: ignore[arg-type]
    sink.name = "out"
    sink.check()
    sink.open(ROWS, ())
    sink.bind_lineage("line", "out")
    return sink


def write(sink: FileSink, first: int, last: int, recording: Recording | None = None) -> None:
    """Write epochs as a run does: what the ledger has is not prepared again."""
    for number in range(first, last):
        if not sink.committed(epoch(number)):
            tokens = [sink.prepare(epoch(number), part, rows(number, part)) for part in range(2)]
            sink.commit(epoch(number), tokens)
        if recording is not None:
            recording.mark(number)


def visible(path: Path) -> Counter[int]:
    """What a reader sees: every row of every file that is not Penstock's own."""
    files = (file for file in path.rglob("*.json") if "_penstock" not in file.parts)
    return Counter(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())


def restarted(state: State, here: Path, **options: object) -> None:
    """Start the job again on what is left, and judge it."""
    state.put(here)
    done = max([-1, *(mark for mark in state.marks if isinstance(mark, int))]) + 1
    sink = started(here, **options)
    seen = visible(here)
    assert seen in (expected(done), expected(done + 1)), f"{state.said}: {done} epochs were committed"
    # The checkpoint of the last one may be lost too: it is asked for again.
    write(sink, max(0, done - 1), EPOCHS)
    assert visible(here) == expected(EPOCHS), state.said


def chosen(kills: range, telling: list[int]) -> list[Any]:
    """All moments of a kill; those that are not telling are slow tests."""
    return [at if at in telling else pytest.param(at, marks=pytest.mark.slow) for at in kills]


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut off here for real, so that nothing needs to reach the disk; and all is in one order."""

    class Pool:
        def __init__(self, workers: int) -> None:
            self.map = map

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(durable, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def places(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        made = folder / str(number)
        made.mkdir(parents=True)
        yield made


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"partition_by": "d"}, marks=pytest.mark.slow)], ids=["plain", "in folders"]
)
def test_a_power_cut_loses_and_doubles_no_committed_epoch_of_files(tmp_path: Path, options: dict[str, str]) -> None:
    recorder = Recorder(tmp_path / "job")
    (tmp_path / "job").mkdir()
    with recorder.watching() as recording:
        write(started(tmp_path / "job", **options), 0, EPOCHS, recording)
    assert visible(tmp_path / "job") == expected(EPOCHS)
    here = places(tmp_path / "cuts")
    count = 0
    for state in recording.states(few=bool(options)):
        restarted(state, next(here), **options)
        count += 1
    assert count > 100


def test_a_power_cut_loses_no_epoch_of_files_that_are_written_at_least_once(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    recorder = Recorder(job)
    with recorder.watching() as recording:
        write(started(job, guarantee="at_least_once"), 0, EPOCHS, recording)
    here = places(tmp_path / "cuts")
    for state in recording.states(few=True):
        path = next(here)
        state.put(path)
        done = max([-1, *state.marks]) + 1
        assert expected(done) <= visible(path), state.said


@pytest.mark.parametrize("kill_at", chosen(range(1, 68), telling=[15]))
def test_a_power_cut_after_a_kill_loses_and_doubles_no_committed_epoch(tmp_path: Path, kill_at: int) -> None:
    """The restart finds names as the killed process left them, which need not be on the disk."""
    job = tmp_path / "job"
    job.mkdir()
    recorder = Recorder(job)
    with recorder.watching() as recording:
        with recorder.killed_at(kill_at):
            write(started(job, partition_by="d"), 0, 1, recording)
        killed_at = len(recording.events)
        again = started(job, partition_by="d")
        # An epoch is committed after the one that was under way, if that is in the ledger.
        write(again, 0, 2 if again.committed(epoch(0)) else 1, recording)
    here = places(tmp_path / "cuts")
    for state in recording.states(since=killed_at, few=True):
        restarted(state, next(here), partition_by="d")


def compact(path: Path) -> None:
    Compaction(LocalStore(str(path / "deep" / "out"))).run(1 << 20)


def judge_compaction(states: Iterator[State], here: Iterator[Path], **options: object) -> None:
    for state in states:
        path = next(here)
        state.put(path)
        write(started(path, **options), EPOCHS - 1, EPOCHS)
        assert visible(path) == expected(EPOCHS), state.said
        compact(path)
        assert visible(path) == expected(EPOCHS), state.said


def test_a_power_cut_in_a_compaction_loses_and_doubles_no_row(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    recorder = Recorder(job)
    with recorder.watching() as recording:
        write(started(job), 0, EPOCHS, recording)
        since = len(recording.events)
        compact(job)
    judge_compaction(recording.states(since=since), places(tmp_path / "cuts"))


@pytest.mark.parametrize("kill_at", chosen(range(1, 40), telling=[11]))
def test_a_power_cut_after_a_killed_compaction_loses_and_doubles_no_row(tmp_path: Path, kill_at: int) -> None:
    job = tmp_path / "job"
    job.mkdir()
    recorder = Recorder(job)
    with recorder.watching() as recording:
        write(started(job, partition_by="d"), 0, EPOCHS, recording)
        since = len(recording.events)
        with recorder.killed_at(since + kill_at):
            compact(job)
        compact(job)
    judge_compaction(recording.states(since=since, few=True), places(tmp_path / "cuts"), partition_by="d")


@pytest.mark.parametrize("once", [False, True])
def test_a_file_that_a_folder_has_written_survives_a_power_cut_whole(tmp_path: Path, once: bool) -> None:
    job = tmp_path / "job"
    job.mkdir()
    recorder = Recorder(job)
    names = ["a/b/1.json", "a/b/2.json", "a/c/d/3.json"]
    with recorder.watching() as recording:
        for name in names:
            (LocalFolder(job) / "store").write(name, name.encode() * 10, once=once)
            recording.mark(name)
        if not once:
            (LocalFolder(job) / "store").write(names[0], b"new", once=once)
            recording.mark("new")
    here = places(tmp_path / "cuts")
    for state in recording.states():
        path = next(here)
        state.put(path)
        store = LocalFolder(path) / "store"
        for name in names:
            old = [name.encode() * 10] if name in state.marks else [None, name.encode() * 10]
            new = [b"new"] if "new" in state.marks else [*old, b"new"]
            assert store.read(name) in (new if name == names[0] and not once else old), state.said


def test_files_that_were_copied_into_a_folder_survive_a_power_cut(tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "from" / "x").mkdir(parents=True)
    (job / "from" / "x" / "1").write_bytes(b"one")
    recorder = Recorder(job)
    with recorder.watching() as recording:
        LocalFolder(job / "from").copy(["x/1"], LocalFolder(job / "to"))
        recording.mark("copied")
    here = places(tmp_path / "cuts")
    for state in recording.states():
        path = next(here)
        state.put(path)
        if state.marks:
            assert (LocalFolder(path) / "to").read("x/1") == b"one", state.said
