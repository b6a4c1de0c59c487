"""A checkpoint: the folder from which a job recovers.

penstock.json     pipeline, lineage, fingerprints     pace       what kind of run wrote it
plan.json         physical plan of the last run       layout.json  what Spark's files mean
queries/NAME/     Spark's offsets, commits and state  sources/   progress and settings of each source
staged/NAME/      late and rejected rows of epochs    epochs/    totals after each epoch
ticks.jsonl       watermarks that the driver set      lease*     the driver that uses it, always in the root
keyed/QUERY/      runs of keyed state, by node and bucket; Spark's state has the manifests that name them

They are in the root, or in `generations/N` of it if the file `current` holds the number N.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from penstock.errors import CheckpointDamaged, CheckpointError, CheckpointMismatch, DiskFull, SettingsError, StoreFailed
from penstock.plan.changes import compare, renames
from penstock.plan.graph import Graph
from penstock.plan.naming import node_id, node_name
from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import Pace
from penstock.plan.physical.plan import RunnerKind
from penstock.settings import Settings
from penstock.spark.checkpoints.compatibility import Migration, find_changes, plan_migration
from penstock.spark.checkpoints.identity import (
    IDENTITY,
    Identity,
    activate_generation,
    create_generation,
    current_generation,
    data_folder,
    delete_old_generations,
    new_identity,
    read_identity,
    write_identity,
)
from penstock.spark.checkpoints.lease import lease_on
from penstock.spark.checkpoints.physical_plan import plan_on
from penstock.spark.checkpoints.repair import refuse_epochs_to_rerun
from penstock.spark.checkpoints.runs import KEYED
from penstock.spark.lowering.job_storage import START_OVER
from penstock.spark.tasks.control_journal import TIMERS, ControlJournal, DeclaredTimes
from penstock.spark.tasks.staging import Staging
from penstock.spark.tasks.totals import rename_totals
from penstock.storage.file_names import source_folder
from penstock.storage.folders import Folder, folder

# Checks and repairs the data of a checkpoint, the second folder, which is in the first one; told if the plan changed.
Prepare = Callable[[Folder, Folder, bool], None]


class Checkpoint:
    """The JobStorage of one driver; refuses a pipeline that it does not belong to.

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
        pace: Pace = "throughput",
        overload: Overload = "block",
        runner: RunnerKind = "micro-batch",
        token: int | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        """Open it; nodes in `allow_drop` may lose their state; without `migrates` a changed plan is refused.

        `prepare` is called before anything is read or copied for a migration: the next generation has no damage.
        `token` is the fencing token of the job manager that started the driver, None without one.
        `plan` is then the physical plan of the run: the queries of earlier runs stay as they are.
        """
        self.migration: Migration | None = None
        self.is_new = False
        # The current names of nodes, by the names that records of epochs have for them, where these differ.
        self.ids: dict[str, str] = {}
        settings = settings or Settings()
        self.root, self.retention = folder(where), settings.checkpoint_retention
        self.state_partitions = settings.state_partitions
        self.tasks_are_local = settings.master.startswith("local")
        try:
            self.lease = lease_on(self.root)
        except OSError as error:
            raise _unusable(self.root.url, error) from error
        self.lease.take(pipeline, token)
        try:
            self.folder = data_folder(self.root)
            self.plan = plan_on(self.root, pipeline, graph, settings, pace=pace, overload=overload, runner=runner)
            self.identity = self._identify(new_identity(self.plan, graph), allow_drop, migrates, prepare)
        except OSError as error:
            self.lease.release()
            raise _unusable(self.root.url, error) from error
        except BaseException:
            self.lease.release()
            raise
        # Shared by all threads: each object caches what it has read of its journal.
        self.ticks, self.timers = DeclaredTimes(self.folder), ControlJournal(self.folder, TIMERS)
        self.local = None if self.root.local else folder(tempfile.mkdtemp(prefix="penstock-job-"))

    @property
    def lineage(self) -> str:
        """Identifies the epochs of this job, among those of other jobs, in the ledgers of sinks."""
        return self.identity.lineage

    @property
    def first_us(self) -> int:
        """The time that is zero in Spark."""
        return self.identity.first_us

    @property
    def even_buckets(self) -> bool:
        """Whether buckets of keys are numbered so that Spark spreads them evenly over tasks."""
        return self.identity.even_buckets

    def query(self, name: str) -> Folder:
        """Return Spark's checkpoint folder of one query."""
        return self.folder / "queries" / name

    def source(self, name: str) -> Folder:
        """Return the folder where a source stores its progress and settings."""
        return self.folder / "sources" / source_folder(name)

    def messages(self, name: str) -> Folder:
        """Return the folder through which Spark's planner, a process on this machine, reports to the driver."""
        return (self.local or self.folder) / "sources" / source_folder(name)

    def records(self, name: str) -> Folder:
        """Return the folder with the totals of one query's epochs."""
        return self.folder / "epochs" / name

    def runs(self, name: str) -> Folder:
        """Return the folder with the runs of one query's keyed state."""
        return self.folder / KEYED / name

    def staging(self, name: str) -> Staging:
        """Return where the tasks of one query stage late and rejected rows."""
        local = self.local / "staged" / name if self.local and self.tasks_are_local else None
        return Staging(self.folder / "staged" / name, local)

    def tick(self, time: datetime) -> None:
        """Declare durably that no row older than this time will come."""
        self.ticks.tick(time)

    def confirm(self) -> None:
        """Raise a CheckpointError if it was deleted, or another driver has taken it over."""
        self.lease.confirm()

    def lost(self) -> CheckpointError | None:
        """Return why it can no longer be used, or None: often the cause of an error that Spark reports."""
        try:
            self.confirm()
        except CheckpointError as error:
            return error
        except StoreFailed:
            return None
        return None

    def close(self) -> None:
        """Release the lease."""
        self.lease.release()
        if self.local is not None and self.local.local is not None:
            shutil.rmtree(self.local.local, ignore_errors=True)

    def activate_migration(self) -> str:
        """Make the migrated generation, which is complete, the current one; return what was done as one line."""
        assert self.migration is not None
        write_identity(self.folder, self.identity)
        summary, self.migration = self.migration.summary, None
        return f"{summary}; epochs continue in generation {activate_generation(self.root)}"

    def _identify(self, mine: Identity, allowed: Sequence[str], migrates: bool, prepare: Prepare | None) -> Identity:
        found = read_identity(self.folder)
        if found is None:
            self._create(mine)
            self.is_new = True
            return mine
        if current_generation(self.root) > 1 or (self.root / "generations").names():
            delete_old_generations(self.root)
        self.ids = _current_ids(found, mine)
        migrates = migrates and bool(found.plan)
        changes = find_changes(self.folder, found.version, mine.version, allowed) if migrates else None
        if changes is None:
            _refuse_other_plan(found, mine, self.root)
        if prepare is not None:
            prepare(self.root, self.folder, bool(changes))
        if changes is None:
            return found
        needed = plan_migration(
            self.folder,
            found.version,
            mine.version,
            changes,
            allowed=allowed,
            partitions=self.state_partitions,
            may_keep_splits={query.name for query in self.plan.queries if query.may_keep_splits},
        )
        if needed is None:
            return found
        refuse_epochs_to_rerun(self.folder)
        self.folder, self.migration = create_generation(self.root, self.folder), needed
        rename_totals(self.folder / "epochs", self.ids, needed.changes.of("lost"))
        _rename_timers(self.folder, self.ids)
        self.ids = {}
        for name in needed.changes.new_sources:
            # Files of another source with this name would be misread.
            self.folder.remove(f"sources/{source_folder(name)}")
        even = found.even_buckets
        return replace(mine, lineage=found.lineage, first_us=found.first_us, even_buckets=even)

    def _create(self, mine: Identity) -> None:
        if (self.folder / "offsets").names():
            message = f"{self.folder} is a checkpoint of Spark, not of Penstock"
            raise CheckpointMismatch(message, hint="choose another --checkpoint folder")
        if (self.folder / "queries").files() or (self.root / "generations").files():
            message = f"{self.folder}/{IDENTITY} is missing: the pipeline of the other files is unknown"
            hint = (
                "if `penstock savepoint restore` was interrupted, delete the folder and restore again; else "
                + START_OVER
            )
            raise CheckpointDamaged(message, hint=hint)
        write_identity(self.folder, mine)


def _current_ids(found: Identity, mine: Identity) -> dict[str, str]:
    """Return the ids that nodes have in the new plan, by their names in the records of epochs, where these differ."""
    ids = {name: node_id(node["kind"], node_name(node["kind"], name)) for name, node in found.plan.items()}
    moved = renames(found.version.nodes, mine.version.nodes)
    now = {name: moved.get(id, id) for name, id in ids.items()}
    return {name: id for name, id in now.items() if name != id}


def _rename_timers(data: Folder, ids: dict[str, str]) -> None:
    """Rename nodes in the files of pending timers."""
    for name in data.names() if ids else ():
        found = data.read(name) if name.startswith("rings-") else None
        if found is not None:
            timers = {ids.get(node, node): buckets for node, buckets in json.loads(found).items()}
            data.write(name, json.dumps(timers).encode())


def _refuse_other_plan(found: Identity, mine: Identity, root: Folder) -> None:
    """Refuse a change of plan that Spark's files depend on, where they cannot be migrated."""
    if found.skeleton != mine.skeleton:
        changes = compare(found.version.nodes, mine.version.nodes)
        message = (
            f"'{mine.pipeline}' has other sources, sinks or state than its checkpoint {root} (fingerprint "
            f"{found.skeleton} there, {mine.skeleton} here), and this kind of run is not migrated:\n{changes.table}"
        )
        raise CheckpointMismatch(message, hint="run the old version, or choose another --checkpoint folder")


def _unusable(path: str, error: OSError) -> SettingsError | DiskFull:
    if error.errno == 28:  # ENOSPC
        message = f"no space left for {path}"
        return DiskFull(message, hint="free some space, or choose another --checkpoint folder", transient=True)
    message = f"cannot write {path}: {error.strerror or error}"
    return SettingsError(message, hint="choose a --checkpoint folder that you may write to")
