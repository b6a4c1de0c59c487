"""`/api/v1/jobs/JOB/nodes`: the graph of a job with figures."""

from __future__ import annotations

from fastapi import APIRouter

from penstock.control.api.nodes import NodeList
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.jobs import JobPath, VersionQuery

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}/nodes", **operation("list_nodes", "viewer", 404))
def list_nodes(job: JobPath, manager: TheManager, version: VersionQuery = None) -> NodeList:
    """Return the nodes of a job's plan; those of the present version with the figures of the newest epoch."""
    return manager.nodes(job, version)
