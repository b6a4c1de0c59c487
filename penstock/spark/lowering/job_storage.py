"""Where a job stores its files, as queries and epochs see it. The checkpoint implements it."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.plan.physical.plan import PhysicalPlan
    from penstock.spark.tasks.control_journal import DeclaredTimes
    from penstock.spark.tasks.staging import Staging
    from penstock.storage.folders import Folder

# What a user can do when the files of a job are lost or damaged.
START_OVER = (
    "restore a savepoint if there is one (`penstock savepoint list`), or start over with another --checkpoint folder"
)


def as_new_lineage(root: Folder, committed: int) -> str:
    """Return the commands that start a new lineage; a savepoint's name has fewer characters than a path."""
    name = re.sub(r"[^\w.-]+", "-", str(root).rstrip("/").rpartition("/")[2]).strip("-") or "checkpoint"
    return (
        f"start a new lineage, which writes what came after epoch {committed} again (upserts replace it, other sinks "
        "have these rows twice unless you remove them first):"
        f"\n    penstock savepoint create {shlex.quote(str(root))} --name {name}-older"
        f"\n    penstock savepoint restore {name}-older --checkpoint {shlex.quote(f'{root}-restored')}"
    )


class JobStorage(Protocol):
    """The folders and journals of one job; `root` is what the user named, `folder` has the data of this run."""

    root: Folder
    folder: Folder
    retention: int
    # How the job runs; decided when the storage was opened.
    plan: PhysicalPlan
    ticks: DeclaredTimes
    # The current names of nodes, by the names that records of epochs have for them, where these differ.
    ids: dict[str, str]

    @property
    def lineage(self) -> str:
        """Identifies the epochs of this job, among those of other jobs, in the ledgers of sinks."""

    @property
    def first_us(self) -> int:
        """The time that is zero in Spark."""

    @property
    def even_buckets(self) -> bool:
        """Whether buckets of keys are numbered so that Spark spreads them evenly over tasks."""

    def query(self, name: str) -> Folder:
        """Return Spark's checkpoint folder of one query."""

    def messages(self, name: str) -> Folder:
        """Return the folder through which Spark's planner, a process on this machine, reports to the driver."""

    def records(self, name: str) -> Folder:
        """Return the folder with the totals of one query's epochs."""

    def runs(self, name: str) -> Folder:
        """Return the folder with the runs of one query's keyed state."""

    def staging(self, name: str) -> Staging:
        """Return where the tasks of one query stage late and rejected rows."""

    def confirm(self) -> None:
        """Raise a CheckpointError if the storage was deleted, or another driver has taken it over."""
