"""Promise: exactly once, whatever the pipeline: random pipelines with random faults give what DuckDB computes."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import CheckpointError, PenstockError
from penstock.settings import Settings
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.session.spark_session import session
from tests.conftest import at_parallelism
from tests.crash.driver import kill_worker
from tests.crash.faults import failing_tasks
from tests.crash.outputs import of_files
from tests.property.pipelines import BRANCHES, Row, Values, added_up, expected, expected_rejects, plain, rows
from tests.property.places import Places

# A crash, a killed Python worker, tasks that fail, or a crash after which an older copy of the checkpoint is put back.
FAULTS = ("crash", "worker", "task", "older")
MOMENTS = ("prepared", "committed")
MOST_LIVES = 6
_ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True)
class Fault:
    """Something that happens to one life of the job, at an epoch or at a moment of it."""

    kind: str
    epoch: int
    moment: str


@dataclass(frozen=True)
class Example:
    """A pipeline, its input and what happens to it."""

    seed: int
    count: int
    source: str
    branches: tuple[tuple[str, str], ...]
    faults: tuple[Fault, ...]
    parallelism: int
    lane: str
    arrow_rows: int
    epoch_rows: int

    @property
    def rejects(self) -> bool:
        """Whether rejected rows have a sink: in part of the pipelines that need none, too."""
        return self.seed % 2 == 0 or any(BRANCHES[branch].rejects for branch, _ in self.branches)


FAULT = st.builds(Fault, st.sampled_from(FAULTS), st.integers(0, 2), st.sampled_from(MOMENTS))
EXAMPLES = st.builds(
    Example,
    seed=st.integers(0, 10**6),
    count=st.integers(130, 200),  # at least four epochs, so that the first fault happens
    source=st.sampled_from(["items", "files", "topic"]),
    branches=st.lists(
        st.tuples(st.sampled_from([*BRANCHES]), st.sampled_from(["files", "sqlite", "topic"])), min_size=1, max_size=3
    ).map(tuple),
    faults=st.lists(FAULT, min_size=1, max_size=2).map(tuple),
    parallelism=st.integers(1, 3),
    lane=st.sampled_from(["auto", "spark"]),
    arrow_rows=st.sampled_from([3, 20, 65_536]),
    epoch_rows=st.integers(10, 40),
)
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@hypothesis_settings(max_examples=2, deadline=None, print_blob=True, suppress_health_check=QUIET)
@given(example=EXAMPLES)
def test_a_random_pipeline_with_random_faults_writes_what_a_batch_query_gives(
    example: Example, settings: Settings, event_log: str
) -> None:
    check(example, settings, event_log)


@pytest.mark.slow
@hypothesis_settings(max_examples=40, deadline=None, print_blob=True, suppress_health_check=QUIET)
@given(example=EXAMPLES)
def test_many_random_pipelines_with_random_faults_write_what_a_batch_query_gives(
    example: Example, settings: Settings, event_log: str
) -> None:
    check(example, settings, event_log)


def check(example: Example, settings: Settings, event_log: str) -> None:
    """Run a pipeline through its faults, and compare all that it wrote."""
    input_rows = rows(example.seed, example.count)
    where = replace(at_parallelism(settings, example.parallelism), lane=example.lane, epoch_rows=example.epoch_rows)
    with tempfile.TemporaryDirectory(prefix="penstock-property-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        places = Places(folder, event_log)
        stream = places.source(example.source, input_rows)
        outputs, readers = [], {}
        for number, (branch, kind) in enumerate(example.branches):
            made = BRANCHES[branch]
            sink, readers[number] = places.sink(kind, number, made.key)
            node = made.build(stream).named(f"b{number}")
            outputs.append(node.to(sink).named(f"out{number}"))
            if made.has_late:
                outputs.append(node.side("late").to(ps.files(str(folder / f"late{number}"))))
        with arrow_batches(where, example.arrow_rows):
            live(outputs, example, where, folder)
        for number, (branch, kind) in enumerate(example.branches):
            found = read(readers[number](), branch, kind)
            if BRANCHES[branch].has_late:
                found = added_up(found, of_files(folder / f"late{number}"))
            assert Counter(found) == Counter(expected(branch, input_rows)), f"output {number}: {branch} to {kind}"
        rejected = Counter(row["node"] for row in of_files(folder / "rejected"))
        per_branch = {f"b{n}": expected_rejects(name, input_rows) for n, (name, _) in enumerate(example.branches)}
        assert rejected == +Counter(per_branch)


def read(found: list[Row], branch: str, kind: str) -> list[Values]:
    """Return what a reader of an output sees in the end: of rows that replace one another, the newest of each key."""
    made = BRANCHES[branch]
    values = [tuple(plain(row[name]) for name in made.columns) for row in found]
    return list({value[0]: value for value in values}.values()) if made.key and kind == "topic" else values


def live(outputs: list[ps.Output], example: Example, where: Settings, folder: Path) -> None:
    """Run to the end; at most one fault for each life, and none for the last.

    Each life has the outputs in another order: rows and state must stay where they belong.
    """
    faults: list[Fault | None] = [*example.faults, None]
    rejected_to = ps.files(str(folder / "rejected")) if example.rejects else None
    for life in range(MOST_LIVES):
        first = life % len(outputs)
        pipeline = ps.Pipeline("random", *outputs[first:], *outputs[:first], rejected_to=rejected_to)
        fault = faults.pop(0) if faults else None
        error = one_life(pipeline, fault, example.seed, where, folder, life)
        if error is None and not faults:
            return
        # A worker may be killed when another life has begun.
        assert fault or error is None or error.transient, f"it fails though nothing happened to it: {error}"
        if fault is not None and fault.kind == "older" and (folder / "older").exists():
            put_back(pipeline, where, folder)
    raise AssertionError("the job fails again and again")


def one_life(
    pipeline: ps.Pipeline, fault: Fault | None, seed: int, where: Settings, folder: Path, life: int
) -> PenstockError | None:
    """Run until the job ends or fails, and return the error; the fault of the first life happens for sure."""
    happened: list[str] = []
    error = None
    try:
        with broken_by(fault, seed, folder, life, happened):
            pipeline.run(until="ended", checkpoint=folder / "checkpoint", settings=where)
    except PenstockError as failed:
        error = failed
    assert life or fault is None or fault.kind == "task" or happened, f"{fault} did not happen: {error!r}"
    return error


def put_back(pipeline: ps.Pipeline, where: Settings, folder: Path) -> None:
    """Run with the older copy of the checkpoint: it is refused, or ends with the same epochs; then go on."""
    (folder / "checkpoint").rename(folder / "newest")
    (folder / "older").rename(folder / "checkpoint")
    try:
        pipeline.run(until="drained", checkpoint=folder / "checkpoint", settings=where)
    except CheckpointError:
        shutil.rmtree(folder / "checkpoint")
        (folder / "newest").rename(folder / "checkpoint")
    else:
        shutil.rmtree(folder / "newest")


class Crashed(Exception):
    """The job dies here."""


@contextmanager
def arrow_batches(where: Settings, rows: int) -> Iterator[None]:
    spark = session(where)
    before = spark.conf.get(_ARROW)
    spark.conf.set(_ARROW, str(rows))
    try:
        yield
    finally:
        session(where).conf.set(_ARROW, str(before))


def broken_by(fault: Fault | None, seed: int, folder: Path, life: int, happened: list[str]) -> Any:
    """Return a context in which a fault happens to the job that is run; it is added to those that happened."""
    if fault is None:
        return nullcontext()
    if fault.kind == "task":
        return failing_tasks({"kind": "task", "folder": str(folder / f"faults-{life}"), "seed": seed})
    if fault.kind == "older":
        return at_moments(fault, [lambda: copy_checkpoint(folder), die], happened)
    return at_moments(fault, [die if fault.kind == "crash" else lambda: kill_a_worker_soon(seed)], happened)


def copy_checkpoint(folder: Path) -> None:
    """Keep what is in the checkpoint now."""
    shutil.rmtree(folder / "older", ignore_errors=True)
    shutil.copytree(folder / "checkpoint", folder / "older")


def die() -> None:
    raise Crashed("the job dies")


def kill_a_worker_soon(seed: int) -> None:
    """Kill a Python worker in the middle of what comes next."""
    chance = random.Random(seed)
    threading.Timer(chance.random() / 2, lambda: kill_worker(psutil.Process().children(recursive=True), chance)).start()


@contextmanager
def at_moments(fault: Fault, acts: list[Callable[[], None]], happened: list[str]) -> Iterator[None]:
    """Act once in each epoch from one on: when its rows are prepared, or when all sinks have committed it."""
    made = EpochWriter.__init__
    left = [*acts]

    def on_epoch(number: int, moment: str) -> None:
        if left and number >= fault.epoch and moment == fault.moment:
            happened.append(f"{moment} {number}")
            left.pop(0)()

    def with_hook(self: EpochWriter, *arguments: Any) -> None:
        made(self, *arguments)
        self.on_epoch = on_epoch

    EpochWriter.__init__ = with_hook  # type: ignore[method-assign]
    try:
        yield
    finally:
        EpochWriter.__init__ = made  # type: ignore[method-assign]
