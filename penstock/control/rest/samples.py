"""Rows of a job: samples of nodes, rejected and late rows, and the replay of these."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from penstock.control.api.samples import Diverted, DivertedQuery, NodeSample, Replay, Replayed, SampleQuery
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.jobs import JobPath

NodePath = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$", description="name of the node")
]

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}/nodes/{node}/sample", **operation("get_sample", "viewer", 404, 409))
def get_sample(job: JobPath, node: NodePath, query: Annotated[SampleQuery, Query()], manager: TheManager) -> NodeSample:
    """Return some rows of a node: of a source, a sink or state as they are stored, else computed from its source."""
    return manager.sample(job, node, query.limit)


@router.get("/jobs/{job}/diverted", **operation("list_diverted", "viewer", 404, 409))
def list_diverted(job: JobPath, query: Annotated[DivertedQuery, Query()], manager: TheManager) -> Diverted:
    """Return the newest rejected or late rows, from the sink that the pipeline gives them."""
    return manager.diverted(job, query)


@router.post("/jobs/{job}/replay", **operation("replay_rows", "operator", 404, 409))
def replay_rows(job: JobPath, body: Replay, manager: TheManager) -> Replayed:
    """Send rejected rows back to their source, each once; the job reads them as new rows."""
    return manager.replay(job, body)
