"""Migration of a checkpoint to a changed plan: Spark's files of each query, rewritten for the new plan.

Spark knows sources and stateful operators only by their positions in its plan. So the offset log is written with a line
for each source of the new plan, and the state of an operator is copied to its new number; a node that several branches
share has an operator in each. New operators get an empty state of the right version.
"""

from __future__ import annotations

import copy
import json
import uuid
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.plan.changes import Changes
from penstock.plan.graph import Graph
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.compatibility import PARTITIONS, Migration
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.identity import HIGHEST_EPOCHS
from penstock.spark.checkpoints.initial_state import InitialState
from penstock.spark.checkpoints.layout import Layout, QueryLayout, build_layout, query_layout, read_layout, write_layout
from penstock.spark.checkpoints.physical_plan import write_plan
from penstock.spark.checkpoints.runs import KEYED, copy_runs
from penstock.spark.epochs.bounds import planned_bounds, read_bounds, write_bounds
from penstock.spark.epochs.spark_errors import translate
from penstock.spark.epochs.timers import PendingTimers
from penstock.spark.lowering.compile import Query, compile_pipeline
from penstock.spark.session.object_stores import store_settings
from penstock.spark.tasks.control_journal import CLOCK
from penstock.spark.tasks.control_journal import TIMERS as WAKEUPS
from penstock.spark.tasks.offset_files import FROM, SPLITS, TICKS, source_offsets
from penstock.spark.tasks.source_readers import uses_kafka_connector
from penstock.storage.file_names import file_name
from penstock.storage.folders import Folder

# What Spark's offset log has for a source that was not read yet.
UNREAD = "-"
# What Spark's own connector for Kafka is called in a layout.
KAFKA = "kafka"
_SCRATCH = "scratch"
NEW_CHECKPOINT = "choose another --checkpoint folder for the new version"


@dataclass(frozen=True)
class OldQuery:
    """A query of the old plan: its files and layout, its last committed epoch, and an epoch that is planned only.

    `shift` is added to the numbers of its epochs in the new plan.
    """

    history: History
    layout: QueryLayout
    committed: int
    planned: int | None = None
    shift: int = 0

    def lines(self, epoch: int) -> dict[str, str]:
        """Return the end offset of each source in an epoch, as Spark wrote it."""
        lines = self.history.read(f"offsets/{epoch}").decode().splitlines()[2:]
        return dict(zip(self.layout.sources, lines, strict=True))


class OldQueries:
    """All queries of the old plan."""

    def __init__(self, change: Migration, layout: Layout) -> None:
        self.queries: dict[str, OldQuery] = {}
        try:
            self.highest: dict[str, int] = json.loads(change.old.read(HIGHEST_EPOCHS) or "{}")
        except ValueError as error:
            message = f"{change.old}/{HIGHEST_EPOCHS} cannot be read: {error}"
            raise CheckpointDamaged(message, hint=NEW_CHECKPOINT) from error
        for name in (change.old / "queries").names():
            history = History(change.old / "queries" / name)
            if history.logged and name not in layout.queries:
                message = f"checkpoint {change.old} has no layout of query '{name}'"
                raise CheckpointMismatch(message, hint=f"run the old version once: it writes it; or {NEW_CHECKPOINT}")
            if history.logged:
                committed = max(history.committed, default=-1)
                newest = history.logged[-1]
                planned = newest if newest > committed else None
                self.queries[name] = OldQuery(history, layout.queries[name], committed, planned)
                self.highest[name] = newest

    def of(self, name: str) -> OldQuery | None:
        """Return the old query that a query continues from; a new one starts after the last epoch of the others.

        If an earlier plan had a query of this name, sinks know its epochs: then it starts after the highest of them.
        """
        if name in self.queries or not self.queries:
            return self.queries.get(name)
        newest = max(self.queries.values(), key=lambda one: one.committed)
        if newest.committed < 0:
            return None
        shift = max(self.highest.get(name, -1) - newest.committed, 0)
        return OldQuery(newest.history, newest.layout, newest.committed, shift=shift)

    def line(self, source: str) -> str:
        """Return the end offset of a source in any query."""
        found = (one.lines(one.committed).get(source) for one in self.queries.values() if one.committed >= 0)
        return next((line for line in found if line), UNREAD)


def migrate(checkpoint: Checkpoint, spark: SparkSession, graph: Graph, settings: Settings) -> str:
    """Fill the new generation of a checkpoint and make it the current one; return what was done as one line."""
    change = checkpoint.migration
    assert change is not None
    scratch = copy.copy(checkpoint)
    scratch.folder, scratch.local = checkpoint.folder / _SCRATCH, None
    old = OldQueries(change, read_layout(change.old).renamed(change.changes.renames))
    checkpoint.folder.write(HIGHEST_EPOCHS, json.dumps(old.highest).encode())
    store = store_settings(checkpoint.root, settings)
    known: dict[str, QueryLayout] = {}
    try:
        for query in compile_pipeline(spark, graph, scratch, settings, idle=True):
            known[query.name] = _layout(query, graph, settings)
            if WAKEUPS in known[query.name].sources:
                PendingTimers(checkpoint.folder, query.name).create()
            old_query, target = old.of(query.name), checkpoint.query(query.name)
            if old_query is not None:
                initial = InitialState(query, scratch.query(query.name), settings, store)
                runs = change.old / KEYED / query.name, checkpoint.runs(query.name)
                _QueryMigration(
                    old_query, target, runs, known[query.name], change.changes, old, initial, query.keeps_splits
                ).run()
                _repartition(old_query, target, change.partitions, spark)
    except Exception as error:  # of Spark, Py4J or a connector: users get it in our words
        raise translate(error, graph, scratch.staging("final"), -1) from error
    checkpoint.folder.remove(_SCRATCH)
    # Before it becomes the current one: a generation must not have the files of one plan and the layout of another.
    write_layout(checkpoint.folder, build_layout(checkpoint.plan, graph, known))
    write_plan(checkpoint.folder, checkpoint.plan)
    return checkpoint.activate_migration()


def _repartition(old: OldQuery, target: Folder, partitions: int | None, spark: SparkSession) -> None:
    """Repartition the state of a query if it has another number of partitions than wanted."""
    if partitions and old.committed >= 0 and (target / "state").names():
        current = old.history.header(old.committed)["conf"][PARTITIONS]
        if int(current) != partitions:
            spark._streamingCheckpointManager.repartition(target.hadoop, partitions)


@dataclass(frozen=True)
class _QueryMigration:
    """Writes the files of one query for the new plan; `runs` are the old and the new folder of keyed state.

    With `keeps_splits` an epoch whose splits are the partitions of its sink is finished so.
    """

    old: OldQuery
    target: Folder
    runs: tuple[Folder, Folder]
    layout: QueryLayout
    changes: Changes
    all_old: OldQueries
    initial: InitialState
    keeps_splits: bool

    def run(self) -> None:
        """Write all files that Spark needs to continue."""
        history = self.old.history
        self.target.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        # Spark reads the offsets of the epoch before as well.
        for epoch in (self.old.committed - 1, self.old.committed, self.old.planned):
            if epoch in history.logged:
                self.target.write(f"offsets/{epoch + self.old.shift}", self._offsets(epoch))
        if self.old.planned is not None and (bounds := self._bounds(self.old.planned)) is not None:
            write_bounds(self.target, self.old.planned + self.old.shift, bounds)
        if self.old.committed >= 0:
            commit = history.read(f"commits/{self.old.committed}")
            self.target.write(f"commits/{self.old.committed + self.old.shift}", commit)
            self._state()

    def _bounds(self, epoch: int) -> str | None:
        """Return the bounds by which ledgers know an epoch: those of the plan that started it, maybe some plans ago."""
        folder = self.old.history.folder
        return read_bounds(folder).get(epoch) or planned_bounds(folder, epoch)

    def _offsets(self, epoch: int) -> bytes:
        head = self.old.history.read(f"offsets/{epoch}").decode().splitlines()[:2]
        old = self.old.lines(epoch)
        # A time that is declared to a source again does no harm, and one that it never gets leaves windows open.
        read = (_declared_times(source, line) for source, line in old.items())
        ticks = min((position for position in read if position is not None), default=0)
        new = dict.fromkeys(self.changes.new_sources, UNREAD)
        known = {name: old.get(name) or self.all_old.line(name) for name in self.layout.sources} | new
        lines = [self._offset_line(name, known[name], ticks) for name in self.layout.sources]
        return "\n".join([*head, *lines]).encode()

    def _offset_line(self, source: str, line: str, ticks: int) -> str:
        """Return a source's offsets; the clock source has the position of declared times, or scans if there is none."""
        if source == CLOCK:
            return json.dumps({"0": ticks})
        if line == UNREAD:
            return line
        old = json.loads(line)
        kept = (FROM, SPLITS) if self.keeps_splits else (FROM,)
        marks = {mark: old[mark] for mark in kept if mark in old}
        if ticks and CLOCK not in self.layout.sources and source not in (WAKEUPS, KAFKA):
            marks[TICKS] = ticks
        return json.dumps(source_offsets(old) | marks)

    def _state(self) -> None:
        old = [operator.node for operator in self.old.layout.operators]
        self._refuse_unknown_operators(len(old))
        new: list[int] = []
        for number, operator in enumerate(self.layout.operators):
            if operator.node not in self.changes.of("kept"):
                new.append(number)
            elif operator.node in old and not self.old.shift:
                self._copy_state(old.index(operator.node), number)
            else:
                message = f"the state of '{operator.node}' would move to another query, which is not supported"
                raise CheckpointMismatch(message, node=operator.node, hint=NEW_CHECKPOINT)
        if new:
            header = self.old.history.header(self.old.committed)
            self.initial.write(self.target, new, self.old.committed + self.old.shift + 1, header["conf"])

    def _refuse_unknown_operators(self, operators: int) -> None:
        """Refuse state that would be misread: of another number of operators, or with ids that commits refer to."""
        history = self.old.history
        found = {store.operator for store in history.stores}
        if found != set(range(operators)) or history.commit(self.old.committed).get("stateUniqueIds"):
            message = (
                f"{history.folder}: has state of operators {sorted(found)}, not of {operators} operators in a format "
                "that can be migrated"
            )
            raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)

    def _copy_state(self, old: int, new: int) -> None:
        history = self.old.history
        names = [name for name in history.state_metadata if name.startswith(f"state/{old}/")]
        for store in (one for one in history.stores if one.operator == old):
            names += history.state_files(store, self.old.committed)
        wanted = history.with_checksums(names) if self.target.local else names
        relative = [name.removeprefix(f"state/{old}/") for name in wanted]
        (history.folder / "state" / str(old)).copy(relative, self.target / "state" / str(new))
        _set_operator_id(self.target / "state" / str(new), new)
        self._copy_runs(self.layout.operators[new].node)

    def _copy_runs(self, node: str) -> None:
        """Copy the runs of a node's keyed state, if it has any, from the folder of its old name."""
        before = next((old for old, new in self.changes.renames.items() if new == node), node)
        old, new = self.runs
        copy_runs(old / file_name(before), new / file_name(node), self.old.committed)


def _layout(query: Query, graph: Graph, settings: Settings) -> QueryLayout:
    """Return a query's layout; the source of Spark's Kafka connector is called `kafka`, whatever the topic."""
    layout = query_layout(query)
    connected = {graph.name(read) for read in graph.reads if uses_kafka_connector(read.source, settings)}
    if len(connected) > 1:
        message = "with kafka_reader = 'spark' a plan that reads several topics cannot be changed"
        raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)
    return replace(layout, sources=[KAFKA if name in connected else name for name in layout.sources])


def _set_operator_id(folder: Folder, number: int) -> None:
    """Write the new number of an operator into its metadata."""
    data = folder.read("_metadata/metadata")
    if data is None:
        message = f"{folder} has no operator metadata"
        raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)
    version, text = data.decode().split("\n", 1)
    metadata: dict[str, Any] = json.loads(text)
    if metadata["operatorInfo"]["operatorId"] != number:
        metadata["operatorInfo"]["operatorId"] = number
        folder.remove("_metadata/.metadata.crc")
        folder.write("_metadata/metadata", f"{version}\n{json.dumps(metadata, separators=(',', ':'))}".encode())


def _declared_times(source: str, line: str) -> int | None:
    """Return the position in the journal of declared times that a source has read; None if it does not read them."""
    offsets = json.loads(line) if line != UNREAD else {}
    found = offsets.get("0" if source == CLOCK else TICKS)
    return None if found is None else int(found)
