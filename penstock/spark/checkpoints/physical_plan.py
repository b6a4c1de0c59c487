"""The physical plan of a checkpoint: made of what the checkpoint has, and stored in it as `plan.json`."""

from __future__ import annotations

from penstock.errors import CheckpointMismatch
from penstock.plan.changes import renames
from penstock.plan.fingerprint import described
from penstock.plan.graph import Graph
from penstock.plan.operators.node import BUCKETS
from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import Pace
from penstock.plan.physical.plan import PhysicalPlan, RunnerKind, masked_texts
from penstock.plan.physical.planner import physical_plan
from penstock.settings import Settings
from penstock.spark.checkpoints.identity import Identity, data_folder, read_identity
from penstock.spark.checkpoints.layout import read_layout
from penstock.storage.folders import Folder

PLAN = "plan.json"


def plan_on(
    root: Folder,
    pipeline: str,
    graph: Graph,
    settings: Settings,
    *,
    pace: Pace = "throughput",
    overload: Overload = "block",
    runner: RunnerKind | None = None,
) -> PhysicalPlan:
    """Return how a pipeline runs on a checkpoint, which may be new; one of another pipeline is refused."""
    data = data_folder(root)
    found = read_identity(data)
    if found is not None and found.pipeline != pipeline:
        message = f"checkpoint {data} belongs to pipeline '{found.pipeline}', not to '{pipeline}'"
        raise CheckpointMismatch(message, hint=_fork_hint(root, found.pipeline, pipeline))
    return physical_plan(
        pipeline,
        graph,
        lane=settings.lane,
        kafka_reader=settings.kafka_reader,
        pace=pace,
        overload=overload,
        runner=runner,
        known=_known_queries(data, found, graph) if found else None,
        buckets=_buckets(root, found, settings.state_buckets),
    )


def _buckets(root: Folder, found: Identity | None, wanted: int | None) -> int:
    """Return the number of buckets of keys: that of the checkpoint, else that of the settings."""
    if found is None:
        return wanted or BUCKETS
    if wanted not in (None, found.buckets):
        message = f"state_buckets = {wanted}: checkpoint {root} has {found.buckets}, for good"
        raise CheckpointMismatch(
            message, hint=f"leave the setting out or set it to {found.buckets}, or choose another --checkpoint folder"
        )
    return found.buckets


def write_plan(data: Folder, plan: PhysicalPlan) -> None:
    """Store a physical plan, without secrets."""
    content = masked_texts(plan).to_json().encode()
    if data.read(PLAN) != content:
        data.write(PLAN, content)


def read_plan(data: Folder) -> PhysicalPlan | None:
    """Return the physical plan of the last run; None if it was run by a version that stored none."""
    found = data.read(PLAN)
    return None if found is None else PhysicalPlan.from_json(found)


def _known_queries(data: Folder, found: Identity, graph: Graph) -> dict[str, list[str]]:
    """Return the queries of a checkpoint, under the names that their nodes have in this graph."""
    names = renames(found.version.nodes, described(graph))
    return read_layout(data).renamed(names).known_queries


def _fork_hint(root: Folder, theirs: str, mine: str) -> str:
    return (
        f'choose another --checkpoint folder, or give the pipeline its name there: ps.Pipeline("{theirs}", ...)'
        f"\n  to continue from there as '{mine}', fork it:\n    penstock savepoint create {root} --name {theirs}-fork"
        f"\n    penstock savepoint restore {theirs}-fork --checkpoint {root}-{mine} --name {mine}"
    )
