"""`/api/v1/jobs/JOB/versions/N`: the source of a version, and how it differs from another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import PlainTextResponse

from penstock.control.api.differences import Difference
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.jobs import JobPath, VersionQuery

VersionPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="number of the version")]

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}/versions/{version}/difference", **operation("get_difference", "viewer", 404))
def get_difference(
    job: JobPath,
    version: VersionPath,
    manager: TheManager,
    to: VersionQuery = None,
) -> Difference:
    """Return which nodes differ between two versions, and what becomes of their state."""
    return manager.difference(job, version, to)


@router.get(
    "/jobs/{job}/versions/{version}/source",
    response_class=PlainTextResponse,
    **operation("get_source", "operator", 404),
)
def get_source(job: JobPath, version: VersionPath, manager: TheManager) -> PlainTextResponse:
    """Return the entry file of a version as text."""
    return PlainTextResponse(manager.version_source(job, version))
