"""A checkpoint: the folder that holds a job's whole past.

penstock.json     pipeline, lineage, fingerprints     pace       what kind of run wrote it
queries/NAME/     Spark's offsets, commits and state  sources/   notes of each source
staged/NAME/      late and rejected rows of epochs    epochs/    what each epoch did
ticks.jsonl       times that the driver declared      lease*     who uses it, always in the root

They are in the root, or in `generations/N` of it if the file `current` holds the number N.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.errors import CheckpointDamaged, CheckpointError, CheckpointMismatch, DiskFull, SettingsError, StoreFailed
from penstock.folders import Folder, folder
from penstock.folders.file_names import source_folder
from penstock.plan.changes import compare
from penstock.plan.fingerprint import Described, described, fingerprints, skeleton
from penstock.plan.graph import Graph
from penstock.plan.lanes import split_lanes
from penstock.plan.naming import node_id, node_name
from penstock.plan.nodes import EventTime
from penstock.plan.renaming import by_ids, renames
from penstock.settings import Settings
from penstock.spark.checkpoints.changing import Migration, Version, migration
from penstock.spark.checkpoints.generations import begin_generation, drop_leftovers, generation, make_current
from penstock.spark.checkpoints.lease import lease_on
from penstock.spark.epochs.clock import Ticks
from penstock.spark.epochs.declared import WAKEUPS, Declared
from penstock.spark.epochs.records import rename_records
from penstock.spark.epochs.staging import Staging
from penstock.windows import FIRST_US

FORMAT = 2
IDENTITY = "penstock.json"
ANEW = "restore a savepoint (`penstock savepoint list`), or start over with another --checkpoint folder"


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to."""

    format: int
    pipeline: str
    lineage: str
    skeleton: str
    nodes: dict[str, str]
    times: dict[str, str]
    plan: dict[str, dict[str, Any]] = field(default_factory=dict)
    # The time that Spark's zero stands for; checkpoints that do not say it have 1970.
    first_us: int = 0

    @property
    def version(self) -> Version:
        """The plan, as another one is compared with it."""
        nodes = by_ids({name: Described(**node) for name, node in self.plan.items()})
        return Version(self.pipeline, nodes, self.times, self.skeleton)


class Checkpoint:
    """Opened by one driver; refuses a pipeline that it does not belong to.

    `root` has the lease; `folder` has the data, and is the root itself or a generation in it.
    """

    def __init__(
        self,
        where: str | Path | Folder,
        pipeline: str,
        graph: Graph,
        settings: Settings | None = None,
        *,
        allow_drop: Sequence[str] = (),
        migrates: bool = True,
    ) -> None:
        """Open it; the nodes in `allow_drop` may lose their state, and only one that `migrates` may change its plan."""
        self.migration: Migration | None = None
        self.is_new = False
        # How nodes are called now that records of epochs know by another name.
        self.ids: dict[str, str] = {}
        settings = settings or Settings()
        self.root, self.retention = folder(where), settings.checkpoint_retention
        self.state_partitions = settings.state_partitions
        self.tasks_here = settings.master.startswith("local")
        try:
            self.lease = lease_on(self.root)
        except OSError as error:
            raise _unusable(self.root.url, error) from error
        self.lease.take(pipeline)
        try:
            self.folder = data_folder(self.root)
            self.identity = self._identify(identity(pipeline, graph, settings.lane), allow_drop, migrates)
        except OSError as error:
            self.lease.release()
            raise _unusable(self.root.url, error) from error
        except BaseException:
            self.lease.release()
            raise
        # One object of each for all threads: what it has read of its journal is not read again.
        self.ticks, self.wakeups = Ticks(self.folder), Declared(self.folder, WAKEUPS)
        self.near = None if self.root.local else folder(tempfile.mkdtemp(prefix="penstock-job-"))

    def query(self, name: str) -> Folder:
        """Spark's folder of one query."""
        return self.folder / "queries" / name

    def source(self, name: str) -> Folder:
        """The folder where a source keeps its notes."""
        return self.folder / "sources" / source_folder(name)

    def messages(self, name: str) -> Folder:
        """The folder by which Spark's planner, a process on this machine, tells the driver how a source goes on."""
        return (self.near or self.folder) / "sources" / source_folder(name)

    def records(self, name: str) -> Folder:
        """The folder of what the epochs of one query did."""
        return self.folder / "epochs" / name

    def staging(self, name: str) -> Staging:
        """Where the tasks of one query leave late and rejected rows."""
        near = self.near / "staged" / name if self.near and self.tasks_here else None
        return Staging(self.folder / "staged" / name, near)

    def tick(self, time: datetime) -> None:
        """Declare durably that no row before this time will come."""
        self.ticks.tick(time)

    def confirm(self) -> None:
        """Raise a CheckpointError if it is no longer there, or no longer this driver's."""
        self.lease.confirm()

    def lost(self) -> CheckpointError | None:
        """Return why it can be used no more, if that is so: often what is behind an error of Spark's."""
        try:
            self.confirm()
        except CheckpointError as error:
            return error
        except StoreFailed:
            return None
        return None

    def close(self) -> None:
        """Give the lease back."""
        self.lease.release()
        if self.near is not None and self.near.local is not None:
            shutil.rmtree(self.near.local, ignore_errors=True)

    def settle(self) -> str:
        """Let the migrated generation count, now that it is whole; return what was done as one line."""
        assert self.migration is not None
        write_identity(self.folder, self.identity)
        said, self.migration = self.migration.said, None
        return f"{said}; epochs go on in generation {make_current(self.root)}"

    def _identify(self, mine: Identity, allowed: Sequence[str], migrates: bool) -> Identity:
        found = read_identity(self.folder)
        if found is None:
            self._begin(mine)
            self.is_new = True
            return mine
        if found.pipeline != mine.pipeline:
            message = f"checkpoint {self.folder} belongs to pipeline '{found.pipeline}', not to '{mine.pipeline}'"
            raise CheckpointMismatch(message, hint=_forking(self.root, found.pipeline, mine.pipeline))
        if generation(self.root) > 1 or (self.root / "generations").names():
            drop_leftovers(self.root)
        self.ids = _ids_now(found, mine)
        if not migrates or not found.plan:
            _same_state(found, mine, self.root)
            return found
        wanted = self.state_partitions
        needed = migration(self.folder, found.version, mine.version, allowed=allowed, partitions=wanted)
        if needed is None:
            return found
        self.folder, self.migration = begin_generation(self.root, self.folder), needed
        rename_records(self.folder / "epochs", self.ids)
        _rename_timers(self.folder, self.ids)
        self.ids = {}
        for name in needed.changes.new_sources:
            # What another source noted under this name would be misread.
            self.folder.remove(f"sources/{source_folder(name)}")
        return replace(mine, lineage=found.lineage, first_us=found.first_us)

    def _begin(self, mine: Identity) -> None:
        if (self.folder / "offsets").names():
            message = f"{self.folder} is a checkpoint of Spark's own, not of Penstock"
            raise CheckpointMismatch(message, hint="choose another --checkpoint folder")
        if (self.folder / "queries").files() or (self.root / "generations").files():
            message = f"{self.folder}/{IDENTITY} is gone, or was never written: the owner of its files is unknown"
            hint = "if `penstock savepoint restore` was broken off, delete the folder and restore again; else " + ANEW
            raise CheckpointDamaged(message, hint=hint)
        write_identity(self.folder, mine)


def identity(pipeline: str, graph: Graph, lane: str) -> Identity:
    """Return what a new checkpoint of a pipeline belongs to."""
    lanes = split_lanes(graph, lane)
    times = {graph.own_name(node): lanes.lane(node) for node in graph.nodes if isinstance(node, EventTime)}
    plan = {name: asdict(node) for name, node in described(graph).items()}
    lineage = uuid.uuid4().hex[:12]
    return Identity(FORMAT, pipeline, lineage, skeleton(graph), fingerprints(graph), times, plan, FIRST_US)


def data_folder(root: Folder) -> Folder:
    """Return the folder that holds a checkpoint's data: its root, or the generation that is current."""
    number = generation(root)
    return root / "generations" / str(number) if number > 1 else root


def read_identity(data: Folder) -> Identity | None:
    """Return what a checkpoint belongs to, or None if it was not begun."""
    found = data.read(IDENTITY)
    if found is None:
        return None
    try:
        return Identity(**json.loads(found))
    except (ValueError, TypeError) as error:
        message = f"{data}/{IDENTITY} cannot be read: {error}"
        raise CheckpointDamaged(message, hint="restore it from a copy, or start a new checkpoint") from error


def write_identity(data: Folder, identity: Identity) -> None:
    """Begin a checkpoint, or a generation of one."""
    data.write(IDENTITY, json.dumps(asdict(identity), indent=2).encode())


def _ids_now(found: Identity, mine: Identity) -> dict[str, str]:
    """Return the ids that nodes of a checkpoint have in a plan, by what its records call them, where these differ."""
    ids = {name: node_id(node["kind"], node_name(node["kind"], name)) for name, node in found.plan.items()}
    moved = renames(found.version.nodes, mine.version.nodes)
    now = {name: moved.get(id, id) for name, id in ids.items()}
    return {name: id for name, id in now.items() if name != id}


def _rename_timers(data: Folder, ids: dict[str, str]) -> None:
    """Let buckets of keys that wait for a time be known by the names that their nodes have now."""
    for name in data.names() if ids else ():
        found = data.read(name) if name.startswith("rings-") else None
        if found is not None:
            timers = {ids.get(node, node): buckets for node, buckets in json.loads(found).items()}
            data.write(name, json.dumps(timers).encode())


def _same_state(found: Identity, mine: Identity, root: Folder) -> None:
    """Refuse a change of what Spark's files depend on, where they cannot be migrated."""
    if found.skeleton != mine.skeleton:
        changes = compare(found.version.nodes, mine.version.nodes)
        message = (
            f"'{mine.pipeline}' reads, writes or keeps something else than its checkpoint {root} has (fingerprint "
            f"{found.skeleton} there, {mine.skeleton} here), and this kind is not migrated:\n{changes.table}"
        )
        raise CheckpointMismatch(message, hint="run the old version, or choose another --checkpoint folder")


def _forking(root: Folder, theirs: str, mine: str) -> str:
    return (
        f'choose another --checkpoint folder, or call the pipeline as the checkpoint does: ps.Pipeline("{theirs}", ...)'
        f"\n  to go on from there as '{mine}', fork it:\n    penstock savepoint create {root} --name {theirs}-fork"
        f"\n    penstock savepoint restore {theirs}-fork --checkpoint {root}-{mine} --name {mine}"
    )


def _unusable(path: str, error: OSError) -> SettingsError | DiskFull:
    if error.errno == 28:  # ENOSPC
        message = f"no space is left for {path}"
        return DiskFull(message, hint="free some space, or choose another --checkpoint folder", transient=True)
    message = f"cannot write {path}: {error.strerror or error}"
    return SettingsError(message, hint="choose a --checkpoint folder that you may write to")
