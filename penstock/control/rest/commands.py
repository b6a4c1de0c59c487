"""Commands to jobs. Each is stored and then carried out: the answer is the command, to be followed by its id."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from penstock.control.api.access import Role
from penstock.control.api.commands import Command, Rescale, Stop, TakeSavepoint
from penstock.control.api.pages import Page
from penstock.control.rest.callers import TheCaller, TheManager
from penstock.control.rest.documentation import location, operation, upload
from penstock.control.rest.forms import MultipartUpdate
from penstock.control.rest.jobs import JobPath, Pages

CommandPath = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="id of the command")]
_OPERATOR: Role = "operator"

router = APIRouter(tags=["commands"])


def _accepts(name: str, *statuses: int, **more: Any) -> dict[str, Any]:
    documented = operation(name, _OPERATOR, 404, 409, *statuses, responses={202: location("command")}, **more)
    return {"status_code": 202, **documented}


@router.post("/jobs/{job}/stop", **_accepts("stop_job"))
def stop_job(
    job: JobPath,
    manager: TheManager,
    caller: TheCaller,
    response: Response,
    body: Annotated[Stop | None, Body()] = None,
) -> Command:
    """Finish the epoch and stop the job, with a savepoint if asked."""
    savepoint = body.savepoint if body else False
    arguments = {"savepoint": savepoint} if savepoint is not False else {}
    return _accepted(manager.request(job, "stop", arguments, caller), response)


@router.post("/jobs/{job}/cancel", **_accepts("cancel_job"))
def cancel_job(job: JobPath, manager: TheManager, caller: TheCaller, response: Response) -> Command:
    """Stop the job without finishing its epoch; a restart repeats it."""
    return _accepted(manager.request(job, "cancel", {}, caller), response)


@router.post("/jobs/{job}/restart", **_accepts("restart_job"))
def restart_job(job: JobPath, manager: TheManager, caller: TheCaller, response: Response) -> Command:
    """Start a job from its checkpoint; one that runs is stopped first."""
    return _accepted(manager.request(job, "restart", {}, caller), response)


@router.post("/jobs/{job}/rescale", **_accepts("rescale_job"))
def rescale_job(job: JobPath, manager: TheManager, caller: TheCaller, response: Response, body: Rescale) -> Command:
    """Stop with a savepoint, and go on with another parallelism."""
    return _accepted(manager.request(job, "rescale", {"parallelism": body.parallelism}, caller), response)


@router.post("/jobs/{job}/update", **_accepts("update_job", 507, openapi_extra=upload("vwap.py")))
def update_job(
    form: MultipartUpdate, job: JobPath, manager: TheManager, caller: TheCaller, response: Response
) -> Command:
    """Stop with a savepoint, and go on with another version; it is rolled back if it does not reach RUNNING."""
    return _accepted(manager.update(job, form.update(), form.source(), caller), response)


@router.post("/jobs/{job}/savepoints", **_accepts("create_savepoint"))
def create_savepoint(
    job: JobPath,
    manager: TheManager,
    caller: TheCaller,
    response: Response,
    body: Annotated[TakeSavepoint | None, Body()] = None,
) -> Command:
    """Create a savepoint of a running job, which goes on."""
    arguments = {"name": body.name} if body and body.name else {}
    return _accepted(manager.request(job, "savepoint", arguments, caller), response)


@router.get("/jobs/{job}/commands", **operation("list_commands", "viewer", 404))
def list_commands(job: JobPath, paging: Pages, manager: TheManager) -> Page[Command]:
    """List the commands to a job, the newest first."""
    return manager.commands(job, paging)


@router.get("/commands/{command}", **operation("get_command", "viewer", 404))
def get_command(command: CommandPath, manager: TheManager) -> Command:
    """Return a command: open, done or failed."""
    return manager.command(command)


def _accepted(command: Command, response: Response) -> Command:
    response.headers["Location"] = f"/api/v1/commands/{command.id}"
    return command
