"""`/api/v1/jobs/JOB/nodes`: the graph of a job with figures."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from penstock.control.api.nodes import NodeList
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.jobs import JobPath

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}/nodes", **operation("list_nodes", "viewer", 404))
def list_nodes(
    job: JobPath,
    manager: TheManager,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="the present one by default")] = None,
) -> NodeList:
    """Return the nodes of a job's plan; those of the present version with the figures of the newest epoch."""
    return manager.nodes(job, version)
