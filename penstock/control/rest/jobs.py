"""`/api/v1/jobs`: create, list, get, and delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from penstock.control.api.commands import Command
from penstock.control.api.fields import JobName
from penstock.control.api.jobs import Job, JobFilter, Plan, Version
from penstock.control.api.pages import Page, Paging
from penstock.control.rest.callers import TheCaller, TheManager
from penstock.control.rest.documentation import location, operation, upload, written
from penstock.control.rest.forms import MultipartSubmission, idempotency_key

JobPath = Annotated[JobName, Path(description="id or name of the job")]
VersionQuery = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="the present one by default")]
Pages = Annotated[Paging, Query()]
IdempotencyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="the same key with the same request returns the same job, for 24 hours",
    ),
]
_AGAIN = {"description": "The job that an earlier request with this Idempotency-Key created", "model": Job}

router = APIRouter(tags=["jobs"])


@router.post(
    "/jobs",
    status_code=201,
    **operation(
        "create_job",
        "operator",
        409,
        507,
        responses={200: {**_AGAIN, **location("job")}, 201: location("job")},
        openapi_extra=upload("vwap.py"),
    ),
)
def create_job(
    form: MultipartSubmission,
    manager: TheManager,
    caller: TheCaller,
    response: Response,
    key: IdempotencyHeader = None,
) -> Job:
    """Submit a job: its plan is checked, then it is stored and started."""
    submission, source = form.submission(), form.source()
    submitted = manager.submit(submission, source, caller, idempotency_key(key, submission, source))
    response.status_code = 201 if submitted.created else 200
    response.headers["Location"] = f"/api/v1/jobs/{submitted.job.id}"
    return submitted.job


@router.get("/jobs", response_model=Page[Job], **operation("list_jobs", "viewer"))
def list_jobs(filters: Annotated[JobFilter, Query()], manager: TheManager) -> Response:
    """List jobs, the newest first."""
    return written(manager.list_jobs(filters))


@router.get("/jobs/{job}", response_model=Job, **operation("get_job", "viewer", 404))
def get_job(job: JobPath, manager: TheManager) -> Response:
    """Return a job by its id or its name."""
    return written(manager.get_job(job))


@router.delete(
    "/jobs/{job}",
    status_code=202,
    **operation("delete_job", "operator", 404, 409, responses={202: location("command")}),
)
def delete_job(job: JobPath, manager: TheManager, caller: TheCaller, response: Response) -> Command:
    """Delete a job that has ended, with its versions, logs and checkpoint; savepoints stay."""
    command = manager.request(job, "delete", {}, caller)
    response.headers["Location"] = f"/api/v1/commands/{command.id}"
    return command


@router.get("/jobs/{job}/plan", **operation("get_plan", "viewer", 404))
def get_plan(job: JobPath, manager: TheManager, version: VersionQuery = None) -> Plan:
    """Return the physical plan of a job."""
    return manager.plan(job, version)


@router.get("/jobs/{job}/versions", **operation("list_versions", "viewer", 404))
def list_versions(job: JobPath, paging: Pages, manager: TheManager) -> Page[Version]:
    """List the versions of a job's source, the newest first."""
    return manager.versions(job, paging)
