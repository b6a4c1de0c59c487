"""The test kit, for users and for Penstock: run a pipeline on rows, with crashes and time as items of the input."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.connectors.generators.items import ItemSource
from penstock.connectors.sinks.collect import CollectSink
from penstock.contract_suite import check_sink
from penstock.contracts import Sink, Source
from penstock.durations import Span, Time, instant, micros
from penstock.errors import BadValue, choices
from penstock.keyed.process_tester import ProcessTester
from penstock.pipeline import Pipeline
from penstock.plan.graph import Graph, reads_in, writes_in
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Read
from penstock.report import Counts
from penstock.settings import Settings
from penstock.storage.file_names import source_folder
from penstock.storage.folders import LocalFolder

__all__ = [
    "EOF",
    "AdvanceClock",
    "AdvanceTime",
    "Crash",
    "ProcessTester",
    "Results",
    "assert_rows",
    "check_sink",
    "check_source",
    "quick_settings",
    "run_to_end",
]

Row = dict[str, Any]


class EOF:
    """Ends an epoch: what follows is read in the next one."""


@dataclass(frozen=True)
class Crash:
    """Kills the job in the epoch of the rows before it: first before its sinks commit, then after."""


@dataclass(frozen=True)
class AdvanceTime:
    """Advances event time: no earlier row will come, and the watermark follows, less the delay."""

    to: Time


@dataclass(frozen=True)
class AdvanceClock:
    """Advances processing time, which rate-limited sources use too."""

    by: Span


# Tests are short, so a JVM that compiles little starts sooner. The code cache must last for many tests: the default of
# such a JVM, 48 MB, is full after a few pipelines, and then code would be evicted and compiled again.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
# A few rows pass sooner through a plan that is interpreted than through one that is compiled first.
_QUICK = {"spark.driver.extraJavaOptions": _QUICK_JAVA, "spark.sql.codegen.wholeStage": "false"}

_WHOLE = 10_000_000

# When a crash happens: the first one before the sinks commit, the next one after.
_CRASHES = ("prepared", "committed")

Control = EOF | Crash | AdvanceTime | AdvanceClock


class Results(dict[str, list[Row]]):
    """The rows of each sink, by its name; `epochs` has them by epoch too; `counts` has the row counts of each node."""

    counts: dict[str, Counts]
    epochs: dict[str, dict[int, list[Row]]]


def run_to_end(pipeline: Pipeline, inputs: Mapping[str, Iterable[Any]], *, settings: Settings | None = None) -> Results:
    """Run a pipeline on these rows instead of its sources, to the end, and return the rows of each sink.

    `inputs` are lists by the name of the source: rows as dicts, dataclasses or tuples, bytes as raw payloads, and
    control items. Other sources are read as they are. Sinks are replaced by lists in memory.
    """
    given = {name: list(items) for name, items in inputs.items()}
    _known(pipeline, given)
    graph, sinks = _replaced(pipeline.graph, given)
    with tempfile.TemporaryDirectory(prefix="penstock-test-", ignore_cleanup_errors=True) as folder:
        results = Results()
        results.counts = _Script(pipeline.name, graph, given, Path(folder), settings or quick_settings()).play()
        results.update({name: sink.rows for name, sink in sinks.items()})
        results.epochs = {name: sink.epochs for name, sink in sinks.items()}
        return results


def quick_settings() -> Settings:
    """Return the settings of this folder, with a JVM configured for short runs."""
    settings = Settings.load()
    return replace(settings, spark={**_QUICK, **settings.spark})


def assert_rows(actual: Iterable[Row], expected: Iterable[Row]) -> None:
    """Compare rows whatever their order; the error shows missing and extra rows."""
    missing = [_comparable(row) for row in expected]
    extra = []
    for row in map(_comparable, actual):
        if row in missing:
            missing.remove(row)
        else:
            extra.append(row)
    lines = [f"  missing: {row}" for row in missing] + [f"  extra:   {row}" for row in extra]
    if lines:
        raise AssertionError("\n".join(["rows differ:", *lines]))


def check_source(make: Callable[[], Source], *, rows_at_least: int = 2) -> None:
    """Check the contract of a source: the same rows for the same offsets, however the range is split."""
    source = make()
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        source.check()
        source.open(LocalFolder(folder))
        start = dict(source.initial())
        end = dict(source.latest(start, None))
        whole = _read(source, start, end)
        assert len(whole) >= rows_at_least, f"{source.name}: only {len(whole)} rows, give it {rows_at_least}"
        assert _read(source, start, end) == whole, f"{source.name}: a second read gave other rows"
        again = make()
        again.open(LocalFolder(folder))
        assert _read(again, start, end) == whole, f"{source.name}: a restarted source gave other rows"
        if source.repeats_splits:
            assert dict(again.initial()) == start, f"{source.name}: a restarted source begins at other offsets"
            found = [_read_splits(one, start, end, 3) for one in (source, again)]
            assert found[0] == found[1], f"{source.name}: a restarted source gave other splits"
        pieces, at = [], start
        while at != end:
            upto = dict(again.latest(at, 1))
            assert upto != at, f"{source.name}: latest() does not advance from {at}"
            pieces += _read(again, at, upto)
            at = upto
        assert sorted(map(repr, pieces)) == sorted(map(repr, whole)), f"{source.name}: small reads gave other rows"
        for batch in (item for split in source.splits(start, end, 2) for item in source.read_split(split)):
            if hasattr(batch, "schema"):
                assert tuple(batch.schema.names) == source.schema.names, f"{source.name}: columns differ from schema"


class _Crashed(Exception):
    """What a test crash raises in the middle of an epoch."""


class _Script:
    """Plays the inputs: releases rows up to the next control items, lets the job read them, then applies those."""

    def __init__(self, name: str, graph: Graph, inputs: dict[str, list[Any]], folder: Path, settings: Settings) -> None:
        self.name, self.graph, self.folder = name, graph, folder
        # Control items end an epoch, and nothing else does.
        self.settings = replace(settings, epoch_rows=settings.epoch_rows or _WHOLE)
        self.inputs = {name: _acts(items) for name, items in inputs.items()}
        self._shift(0)

    def play(self) -> dict[str, Counts]:
        acts = max((len(acts) for acts in self.inputs.values()), default=0)
        self._release_act(0)
        run = self._start()
        for number in range(acts):
            self._release_act(number)
            controls = [c for acts in self.inputs.values() if number < len(acts) for c in acts[number].controls]
            if controls or number < acts - 1:
                run = self._act(run, controls)
        # The last rows of one scan may share an epoch with the end of input: rows are late by the epoch before.
        if not run.one_scan:
            _settle(run)
        run.end()
        run.wait()
        counts: dict[str, Counts] = run.report().counts
        return counts

    def _release_act(self, number: int) -> None:
        for name, acts in self.inputs.items():
            self._release(name, acts[min(number, len(acts) - 1)].released)

    def _act(self, run: Any, controls: list[Control]) -> Any:
        if any(isinstance(control, Crash) for control in controls):
            for moment in _CRASHES:
                run = self._crash(run, moment)
        _settle(run)
        for control in controls:
            if isinstance(control, AdvanceTime):
                run.checkpoint.tick(instant(control.to, "AdvanceTime"))
            elif isinstance(control, AdvanceClock):
                run.check_idle_sources()
                self._shift(micros(control.by, "AdvanceClock"))
                run.fire_timers()
                run.check_idle_sources()
        if controls:
            _settle(run)
        return run

    def _crash(self, run: Any, moment: str) -> Any:
        """Let the next epoch die at a moment, and start again from the checkpoint."""

        def die(number: int, now: str) -> None:
            if now == moment:
                raise _Crashed

        for writer in run.writers:
            writer.on_epoch = die
        _settle(run, crashing=True)
        return self._start()

    def _start(self) -> Any:
        from penstock.spark.runs.micro_batch import MicroBatchRun

        return MicroBatchRun(self.name, self.graph, self.folder / "checkpoint", self.settings, "stopped").begin()

    def _release(self, name: str, rows: int) -> None:
        folder = self.folder / "checkpoint" / "sources" / source_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".released").write_text(str(rows))
        (folder / ".released").replace(folder / "released")

    def _shift(self, by_us: int) -> None:
        path = self.folder / "checkpoint" / "clock-shift"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = int(path.read_text()) if path.exists() else 0
        path.write_text(str(before + by_us))


@dataclass(frozen=True)
class _Act:
    """Rows released so far, and what happens then."""

    released: int
    controls: list[Control]


def _acts(items: list[Any]) -> list[_Act]:
    """Cut a list at its control items; adjacent ones happen together."""
    acts: list[_Act] = []
    rows = 0
    for item in items:
        control = item() if item is EOF else item
        if not isinstance(control, Control):
            rows += 1
        elif acts and acts[-1].released == rows:
            acts[-1].controls.append(control)
        else:
            acts.append(_Act(rows, [control]))
    if not acts or acts[-1].released < rows:
        acts.append(_Act(rows, []))
    return acts


def _settle(run: Any, *, crashing: bool = False) -> None:
    """Wait until all released rows are processed, or the job has failed."""
    if crashing:
        run.until = "drained"
        try:
            run.wait()
        except Exception as error:  # Spark wraps the crash in errors of its own
            if "_Crashed" not in str(error) and not any(isinstance(w.error, _Crashed) for w in run.writers):
                raise
        return
    try:
        run.process_available()
    except Exception:  # of whatever kind: the error of the job itself, if it has one, is the better one
        run.wait()
        raise


def _known(pipeline: Pipeline, inputs: Mapping[str, Any]) -> None:
    names = [pipeline.graph.name(read) for read in pipeline.graph.reads]
    for name in inputs:
        if name not in names:
            message = f"the pipeline has no source '{name}'"
            raise BadValue(message, node=pipeline.name, hint=choices("sources", names, name))


def _replaced(graph: Graph, inputs: dict[str, list[Any]]) -> tuple[Graph, dict[str, CollectSink]]:
    """Return the graph with sources and sinks in memory."""
    sinks: dict[str, CollectSink] = {}
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        made[node] = _rebuilt(node, graph, inputs, made, sinks)
    writes = writes_in(made.values())
    rejected = _memory(graph.rejected_to, graph.rejected_to.name, sinks) if graph.rejected_to else None
    return Graph(writes, rejected), sinks


def _rebuilt(
    node: Node,
    graph: Graph,
    inputs: dict[str, list[Any]],
    made: dict[Node, Node],
    sinks: dict[str, CollectSink],
) -> Node:
    name = graph.own_name(node)
    for read in reads_in([node]):
        return _replayed(read, name, inputs) if name in inputs else read
    changes: dict[str, Any] = {"name": name if node.name or node.stateful else None}
    for write in writes_in([node]):
        # Of a view the list has the changes.
        changes |= {"name": name, "sink": _memory(write.sink, name, sinks), "hidden": ()}
    if node.late_to is not None:
        changes["late_to"] = None
    return node.with_inputs(tuple(made[one] for one in node.inputs), **changes)


def _replayed(read: Read, name: str, inputs: dict[str, list[Any]]) -> Read:
    rows = [item for item in inputs[name] if item is not EOF and not isinstance(item, Control)]
    payloads = getattr(read.source, "payloads", None)
    return Read(source=ItemSource(rows, read.schema, name, payloads and payloads.one), name=name)


def _memory(sink: Sink, name: str, sinks: dict[str, CollectSink]) -> CollectSink:
    memory = CollectSink()
    memory.name = name
    memory.updates = sink.updates
    sinks[name] = memory
    return memory


def _read(source: Source, start: Any, end: Any) -> list[Any]:
    return [item for rows in _read_splits(source, start, end, 2) for item in rows]


def _read_splits(source: Source, start: Any, end: Any, parallelism: int) -> list[list[Any]]:
    """Return the rows of each split, bad ones as they are."""
    splits = source.splits(start, end, parallelism)
    return [[row for item in source.read_split(split) for row in _rows_of(item)] for split in splits]


def _rows_of(item: Any) -> list[Any]:
    return item.to_pylist() if hasattr(item, "to_pylist") else [item]


def _comparable(row: Row) -> Row:
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()}
