"""A checkpoint for another plan: Spark's files of each query, copied to where the new plan looks for them.

Spark knows sources and stateful operators by their places in its plan only. So the offsets of an epoch are written
anew, a line for each place of a source, and the state of an operator is copied to its new number; a node that several
branches share has an operator in each. An operator without a past gets an empty state of the right version, which
Spark itself makes: the new plan runs one epoch without rows in a scratch folder.
"""

from __future__ import annotations

import copy
import json
import uuid
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.folders import Folder
from penstock.plan.changes import Changes
from penstock.plan.graph import Graph
from penstock.plan.pace import Pace
from penstock.settings import Settings
from penstock.spark.alone.connector_scan import by_connector
from penstock.spark.checkpoints.changing import PARTITIONS
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.history import Store
from penstock.spark.checkpoints.layout import QueryLayout, keep_layout, layout, query_layout, read_layout
from penstock.spark.checkpoints.past import NEW_CHECKPOINT, REACHED, UNREAD, Begun, Past
from penstock.spark.checkpoints.seed import Seed
from penstock.spark.checkpoints.stores import store_settings
from penstock.spark.epochs.bounds import keep_bounds, planned_bounds
from penstock.spark.epochs.clock import NAME as CLOCK
from penstock.spark.epochs.notes import TICKS, own_offsets
from penstock.spark.faults import translate
from penstock.spark.lowering.compile import Query, compile_pipeline
from penstock.spark.lowering.wakeups import NAME as WAKEUPS
from penstock.spark.lowering.wakeups import RingsOf


def migrate(checkpoint: Checkpoint, spark: SparkSession, graph: Graph, settings: Settings, pace: Pace) -> str:
    """Fill the new generation of a checkpoint and let it count; return what was done as one line."""
    change = checkpoint.migration
    assert change is not None
    scratch = copy.copy(checkpoint)
    scratch.folder, scratch.near = checkpoint.folder / "seed", None
    past = Past(change, read_layout(change.old).renamed(change.changes.renames))
    checkpoint.folder.write(REACHED, json.dumps(past.reached).encode())
    store = store_settings(checkpoint.root, settings)
    known: dict[str, QueryLayout] = {}
    try:
        for query in compile_pipeline(spark, graph, scratch, settings, idle=True):
            known[query.name] = _places(query, graph, settings)
            if WAKEUPS in known[query.name].sources:
                RingsOf(checkpoint.folder, query.name).create()
            begun, target = past.of(query.name), checkpoint.query(query.name)
            if begun is not None:
                seed = Seed(query, scratch.query(query.name), settings, store)
                _Move(begun, target, known[query.name], change.changes, past, seed).all()
                _cut_anew(begun, target, change.partitions, spark)
    except Exception as error:
        raise translate(error, graph, scratch.staging("final"), -1) from error
    checkpoint.folder.remove("seed")
    # Before it counts: files of the new plan must never stand beside the old one's layout.
    keep_layout(checkpoint.folder, layout(checkpoint.identity.pipeline, graph, settings.lane, pace, known))
    return checkpoint.settle()


def _cut_anew(begun: Begun, target: Folder, partitions: int | None, spark: SparkSession) -> None:
    """Give state another number of partitions, if one is wanted and it has another."""
    if partitions and begun.done >= 0 and (target / "state").names():
        there = begun.history.header(begun.done)["conf"][PARTITIONS]
        if int(there) != partitions:
            spark._streamingCheckpointManager.repartition(target.hadoop, partitions)


@dataclass(frozen=True)
class _Move:
    """One query on its way to a new generation."""

    begun: Begun
    target: Folder
    places: QueryLayout
    changes: Changes
    past: Past
    seed: Seed

    def all(self) -> None:
        """Write all that Spark needs to go on."""
        old = self.begun.history
        self.target.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        # Spark asks for the epoch before, too.
        for epoch in (self.begun.done - 1, self.begun.done, self.begun.open):
            if epoch in old.logged:
                self.target.write(f"offsets/{epoch + self.begun.ahead}", self._offsets(epoch))
        if self.begun.open is not None and (bounds := planned_bounds(old.folder, self.begun.open)) is not None:
            keep_bounds(self.target, self.begun.open + self.begun.ahead, bounds)
        if self.begun.done >= 0:
            done = old.read(f"commits/{self.begun.done}")
            self.target.write(f"commits/{self.begun.done + self.begun.ahead}", done)
            self._state()

    def _offsets(self, epoch: int) -> bytes:
        head = self.begun.history.read(f"offsets/{epoch}").decode().splitlines()[:2]
        was = self.begun.lines(epoch)
        ticks = max((_ticks(source, line) for source, line in was.items()), default=0)
        new = dict.fromkeys(self.changes.new_sources, UNREAD)
        known = {name: was.get(name) or self.past.line(name) for name in self.places.sources} | new
        lines = [_line(name, known[name], ticks, self.places) for name in self.places.sources]
        return "\n".join([*head, *lines]).encode()

    def _state(self) -> None:
        was = [operator.node for operator in self.begun.places.operators]
        self._check(len(was))
        new: list[int] = []
        for number, operator in enumerate(self.places.operators):
            if operator.node not in self.changes.of("kept"):
                new.append(number)
            elif operator.node in was and not self.begun.ahead:
                self._copy(was.index(operator.node), number)
            else:
                message = f"the state of '{operator.node}' is in another query than it would be now"
                raise CheckpointMismatch(message, node=operator.node, hint=NEW_CHECKPOINT)
        if new:
            header = self.begun.history.header(self.begun.done)
            self.seed.plant(self.target, new, self.begun.done + self.begun.ahead + 1, header["conf"])

    def _check(self, operators: int) -> None:
        """Refuse what would be misread: operators that are not told apart, or state that commits know by number."""
        history = self.begun.history
        found = {store.operator for store in history.stores}
        if found != set(range(operators)) or history.commit(self.begun.done).get("stateUniqueIds"):
            message = f"{history.folder}: its state ({sorted(found)}) is not that of {operators} operators of this form"
            raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)

    def _copy(self, old: int, new: int) -> None:
        history = self.begun.history
        names = [name for name in history.about_state if name.startswith(f"state/{old}/")]
        for store in (one for one in history.stores if one.operator == old):
            names += self._chain(store)
        wanted = history.with_checksums(names) if self.target.local else names
        below = [name.removeprefix(f"state/{old}/") for name in wanted]
        (history.folder / "state" / str(old)).copy(below, self.target / "state" / str(new))
        _number(self.target / "state" / str(new), new)

    def _chain(self, store: Store) -> list[str]:
        version = self.begun.done + 1
        names = next(store.chains(version), None)
        if names is None:
            message = f"{self.begun.history.folder}/state/{store.path}: version {version} is not whole"
            raise CheckpointDamaged(message, hint="run the old version once: it tells what is left")
        zipped = [name for name in names if name.endswith(".zip")]
        return names + [table for name in zipped for table in self.begun.history.tables(name)]


def _places(query: Query, graph: Graph, settings: Settings) -> QueryLayout:
    """Return a query's places; Spark's own connector goes by its own name, whatever the topic."""
    places = query_layout(query)
    connected = {graph.name(read) for read in graph.reads if by_connector(read.source, settings)}
    if len(connected) > 1:
        message = "with kafka_reader = 'spark' a plan that reads several topics cannot be changed"
        raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)
    return replace(places, sources=["kafka" if name in connected else name for name in places.sources])


def _number(folder: Folder, number: int) -> None:
    """Tell an operator's notes its new number."""
    data = folder.read("_metadata/metadata")
    if data is None:
        message = f"{folder} has no notes that can be given another number"
        raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)
    version, text = data.decode().split("\n", 1)
    notes: dict[str, Any] = json.loads(text)
    if notes["operatorInfo"]["operatorId"] != number:
        notes["operatorInfo"]["operatorId"] = number
        folder.remove("_metadata/.metadata.crc")
        folder.write("_metadata/metadata", f"{version}\n{json.dumps(notes, separators=(',', ':'))}".encode())


def _ticks(source: str, line: str) -> int:
    """Return how many declared times an epoch has seen."""
    offsets = json.loads(line) if line != UNREAD else {}
    return int(offsets.get("0" if source == CLOCK else TICKS, 0))


def _line(source: str, line: str, ticks: int, places: QueryLayout) -> str:
    """Return a source's offsets; declared times are counted by the clock, or by the scans if there is none."""
    if source == CLOCK:
        return json.dumps({"0": ticks})
    if line == UNREAD:
        return line
    own = own_offsets(json.loads(line))
    return json.dumps(own if CLOCK in places.sources or not ticks else own | {TICKS: ticks})
