"""The manager itself: cluster, tokens and audit log; health, readiness and metrics at the root."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from penstock.control.api.access import AuditEntry, NewToken, Token, TokenRequest
from penstock.control.api.cluster import Cluster, Health, Readiness
from penstock.control.api.pages import Page
from penstock.control.api.problems import FieldProblem
from penstock.control.api.version import VERSION
from penstock.control.rest.callers import TheCaller, TheManager
from penstock.control.rest.documentation import operation, problems
from penstock.control.rest.jobs import Pages
from penstock.control.rest.problems import ProblemResponse, plain_problem

TokenPath = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="id of the token")]
_PAGE = {"text/plain": {"schema": {"type": "string"}}}
_METRICS = {"description": "Metrics in Prometheus's text format", "content": _PAGE}

router = APIRouter(tags=["cluster"])
probes = APIRouter(tags=["probes"])


@router.get("/cluster", **operation("get_cluster", "viewer"))
def get_cluster(manager: TheManager) -> Cluster:
    """Return the job manager, its drivers and its resources."""
    return manager.cluster()


@router.get("/tokens", **operation("list_tokens", "admin"))
def list_tokens(manager: TheManager) -> Page[Token]:
    """List the tokens, without their texts."""
    return Page[Token](items=manager.tokens())


@router.post("/tokens", status_code=201, **operation("create_token", "admin", 409))
def create_token(body: TokenRequest, manager: TheManager, caller: TheCaller) -> NewToken:
    """Create a token. This answer is the only one with its text."""
    return manager.create_token(body, caller)


@router.delete("/tokens/{token}", status_code=204, **operation("revoke_token", "admin", 404))
def revoke_token(token: TokenPath, manager: TheManager) -> None:
    """Revoke a token."""
    manager.revoke_token(token)


@router.get("/audit", **operation("list_audit", "admin"))
def list_audit(paging: Pages, manager: TheManager) -> Page[AuditEntry]:
    """List who did what, the newest first."""
    return manager.audit(paging)


@probes.get("/health", operation_id="get_health", responses=problems(500))
async def get_health() -> Health:
    """Return that the process answers."""
    return Health(version=VERSION)


@probes.get("/ready", operation_id="get_readiness", response_model=Readiness, responses=problems(500, 503))
def get_readiness(manager: TheManager) -> Readiness | Response:
    """Return whether requests can be served: 503 while the store is away."""
    found = manager.readiness()
    if found.ready:
        return found
    failed = [check for check in found.checks if not check.ok]
    problem = plain_problem(503, "the job manager is not ready", "running jobs go on; it recovers by itself")
    mistakes = [FieldProblem(field=check.name, message=check.detail or "not ready") for check in failed]
    return ProblemResponse(problem.model_copy(update={"errors": mistakes}))


@probes.get("/metrics", response_class=Response, **operation("get_metrics_page", "viewer", responses={200: _METRICS}))
def get_metrics_page(manager: TheManager) -> Response:
    """Return the metrics of the manager and of all jobs for Prometheus."""
    return Response(manager.metrics_page(), media_type=CONTENT_TYPE_LATEST)
