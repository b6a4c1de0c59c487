"""Promise: exactly once, whatever the pipeline: random pipelines with random faults give what DuckDB computes."""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
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
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.session.spark_session import session
from tests.conftest import at_parallelism
from tests.crash.driver import kill_worker
from tests.crash.faults import failing_tasks
from tests.property.pipelines import BRANCHES, Row, Values, expected, plain, rows
from tests.property.places import Places

FAULTS = ("crash", "worker", "task")
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


FAULT = st.builds(Fault, st.sampled_from(FAULTS), st.integers(0, 2), st.sampled_from(MOMENTS))
EXAMPLES = st.builds(
    Example,
    seed=st.integers(0, 10**6),
    count=st.integers(30, 200),
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


@hypothesis_settings(max_examples=2, deadline=None, derandomize=True, database=None, suppress_health_check=QUIET)
@given(example=EXAMPLES)
def test_a_random_pipeline_with_random_faults_writes_what_a_batch_query_gives(
    example: Example, settings: Settings, event_log: str
) -> None:
    check(example, settings, event_log)


@pytest.mark.slow
@hypothesis_settings(max_examples=75, deadline=None, print_blob=True, suppress_health_check=QUIET)
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
        places = Places(Path(name), event_log)
        stream = places.source(example.source, input_rows)
        outputs, readers = [], {}
        for number, (branch, kind) in enumerate(example.branches):
            made = BRANCHES[branch]
            sink, readers[number] = places.sink(kind, number, made.key)
            outputs.append(made.build(stream).named(f"b{number}").to(sink).named(f"out{number}"))
        with arrow_batches(where, example.arrow_rows):
            live(outputs, example, where, Path(name))
        for number, (branch, kind) in enumerate(example.branches):
            found = read(readers[number](), branch, kind)
            assert Counter(found) == Counter(expected(branch, input_rows)), f"output {number}: {branch} to {kind}"


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
    for life in range(MOST_LIVES):
        first = life % len(outputs)
        pipeline = ps.Pipeline("random", *outputs[first:], *outputs[:first])
        fault = faults.pop(0) if faults else None
        error = None
        try:
            with broken_by(fault, example.seed, folder / f"faults-{life}", where):
                pipeline.run(until="ended", checkpoint=folder / "checkpoint", settings=where)
        except PenstockError as failed:
            error = failed
        if error is None and not faults:
            return
        # A worker may be killed when another life has begun.
        assert fault or error is None or error.transient, f"it fails though nothing happened to it: {error}"
    raise AssertionError("the job fails again and again")


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


def broken_by(fault: Fault | None, seed: int, folder: Path, where: Settings) -> Any:
    """Return a context in which a fault happens to the job that is run."""
    if fault is None:
        return nullcontext()
    if fault.kind == "task":
        return failing_tasks({"kind": "task", "folder": str(folder), "seed": seed})
    return at_moment(fault, die if fault.kind == "crash" else lambda: kill_a_worker_soon(seed))


def die() -> None:
    raise Crashed("the job dies")


def kill_a_worker_soon(seed: int) -> None:
    """Kill a Python worker in the middle of what comes next."""
    chance = random.Random(seed)
    threading.Timer(chance.random() / 2, lambda: kill_worker(psutil.Process().children(recursive=True), chance)).start()


@contextmanager
def at_moment(fault: Fault, act: Any) -> Iterator[None]:
    """Act once, in an epoch: when its rows are prepared, or when all sinks have committed it."""
    made = EpochWriter.__init__
    left = [fault]

    def on_epoch(number: int, moment: str) -> None:
        if left and number >= fault.epoch and moment == fault.moment:
            left.clear()
            act()

    def with_hook(self: EpochWriter, *arguments: Any) -> None:
        made(self, *arguments)
        self.on_epoch = on_epoch

    EpochWriter.__init__ = with_hook  # type: ignore[method-assign]
    try:
        yield
    finally:
        EpochWriter.__init__ = made  # type: ignore[method-assign]
