"""What a job has done: epochs, checkpoints, savepoints, transitions, exceptions, metrics and state."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from penstock.control.api.history import Checkpoint, Epoch, JobException, Savepoint, Transition
from penstock.control.api.pages import Page
from penstock.control.api.series import SeriesList, SeriesQuery, SparklineQuery, Sparklines
from penstock.control.api.state import StateQuery, StateTable
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation, written
from penstock.control.rest.jobs import JobPath, Pages

router = APIRouter(tags=["history"])


@router.get("/jobs/{job}/epochs", response_model=Page[Epoch], **operation("list_epochs", "viewer", 404))
def list_epochs(job: JobPath, paging: Pages, manager: TheManager) -> Response:
    """List the epochs of a job, the newest first."""
    return written(manager.epochs(job, paging))


@router.get("/jobs/{job}/checkpoints", **operation("list_checkpoints", "viewer", 404))
def list_checkpoints(job: JobPath, paging: Pages, manager: TheManager) -> Page[Checkpoint]:
    """List the epochs that a job can be restored from, the newest first."""
    return manager.checkpoints(job, paging)


@router.get("/jobs/{job}/savepoints", **operation("list_savepoints", "viewer", 404))
def list_savepoints(job: JobPath, paging: Pages, manager: TheManager) -> Page[Savepoint]:
    """List the savepoints of a job, the newest first."""
    return manager.savepoints(job, paging)


@router.get("/jobs/{job}/transitions", **operation("list_transitions", "viewer", 404))
def list_transitions(job: JobPath, paging: Pages, manager: TheManager) -> Page[Transition]:
    """List the transitions of a job's state with their causes, the newest first."""
    return manager.transitions(job, paging)


@router.get("/jobs/{job}/exceptions", **operation("list_exceptions", "viewer", 404))
def list_exceptions(job: JobPath, paging: Pages, manager: TheManager) -> Page[JobException]:
    """List the errors of a job, the newest first."""
    return manager.exceptions(job, paging)


@router.get("/jobs/{job}/metrics", **operation("get_metrics", "viewer", 404))
def get_metrics(job: JobPath, query: Annotated[SeriesQuery, Query()], manager: TheManager) -> SeriesList:
    """Return series of metrics for charts."""
    return SeriesList(items=manager.series(job, query))


@router.get("/sparklines", **operation("get_sparklines", "viewer"))
def get_sparklines(query: Annotated[SparklineQuery, Query()], manager: TheManager) -> Sparklines:
    """Return one metric of all jobs over the last minutes, for small charts."""
    return Sparklines(name=query.name, items=manager.sparklines(query))


@router.get("/jobs/{job}/state", **operation("get_state", "viewer", 404, 409))
def get_state(job: JobPath, query: Annotated[StateQuery, Query()], manager: TheManager) -> StateTable:
    """Look a key up in the state of a job, or list its rows and open windows."""
    return manager.state(job, query)
