"""Every error as application/problem+json: which status an error has, and what it says."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast
from uuid import uuid4

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock import errors
from penstock.control.api.problems import ERROR, MEDIA_TYPE, FieldProblem, Problem
from penstock.control.rest.documentation import allowed_methods
from penstock.errors import PenstockError

_log = logging.getLogger(__name__)
RETRY_AFTER_SECONDS = 2
SCHEMA_PATH = "/api/v1/openapi.json"
_MOST_FIELDS = 20

# The first class that an error is an instance of decides.
STATUSES: tuple[tuple[type[PenstockError], int], ...] = (
    (errors.UnknownJob, 404),
    (errors.UnknownTopic, 404),
    (errors.UnknownGroup, 404),
    (errors.CheckpointMissing, 404),
    (errors.AccessDenied, 403),
    (errors.JobExists, 409),
    (errors.RequestRefused, 409),
    (errors.BrokerRefused, 409),
    (errors.CheckpointInUse, 409),
    (errors.CheckpointExists, 409),
    (errors.DiskFull, 507),
    (errors.StoreUnavailable, 503),
    (errors.Fenced, 503),
    (errors.NoBroker, 503),
    (errors.StoreFailed, 503),
)


class ProblemResponse(Response):
    """A problem as a response."""

    media_type = MEDIA_TYPE

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        retry = {"Retry-After": str(RETRY_AFTER_SECONDS)} if problem.status == 503 else {}
        super().__init__(problem.model_dump_json().encode(), problem.status, {**retry, **(headers or {})})


def status_of(error: PenstockError) -> int:
    """Return the status of an error: 422 for a mistake of the user's, 503 for what may be over later."""
    found = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    return found or (503 if error.transient else 422)


def problem_of(error: PenstockError) -> Problem:
    """Return an error as a problem, with the class and the text that `penstock explain` prints."""
    name = type(error).__name__
    return Problem(
        type=ERROR + name,
        title=name,
        status=status_of(error),
        detail=error.message,
        node=error.node,
        hint=error.hint,
        transient=error.transient,
    )


def plain_problem(status: int, detail: str, hint: str | None = None) -> Problem:
    """Return a problem that its status describes."""
    return Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        hint=hint,
        transient=status == 503,
    )


def invalid_request(found: Sequence[Mapping[str, Any]]) -> Problem:
    """Return the mistakes in the fields of a request. What was sent is not repeated: it may hold secrets."""
    fields = [FieldProblem(field=_location(each), message=_message(each)) for each in found[:_MOST_FIELDS]]
    first = f"{fields[0].field}: {fields[0].message}" if fields else "the request is not valid"
    return Problem(
        type=f"{ERROR}RequestRefused",
        title="RequestRefused",
        status=422,
        detail=first,
        hint=f"the schema of all requests: {SCHEMA_PATH}",
        errors=fields,
    )


def handle_errors(app: FastAPI) -> None:
    """Make every error of an application a problem."""
    app.add_exception_handler(PenstockError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OSError, _on_system)
    app.add_exception_handler(Exception, _on_bug)


async def _on_error(_: Request, error: Exception) -> Response:
    return ProblemResponse(problem_of(cast(PenstockError, error)))


async def _on_invalid(_: Request, error: Exception) -> Response:
    return ProblemResponse(invalid_request(cast(RequestValidationError, error).errors()))


async def _on_http(request: Request, error: Exception) -> Response:
    found = cast(HTTPException, error)
    if isinstance(found.__cause__, OSError):  # an upload is written to disk while it is read
        return await _on_system(request, found.__cause__)
    if found.status_code not in (404, 405):
        return ProblemResponse(plain_problem(found.status_code, found.detail), found.headers)
    detail = f"{request.method} {request.url.path} is not a request of this API"
    if found.status_code == 404:
        return ProblemResponse(plain_problem(404, detail, f"the paths that there are: {SCHEMA_PATH}"))
    allowed = ", ".join(allowed_methods(request.app, request.url.path)) or (found.headers or {}).get("Allow", "")
    return ProblemResponse(plain_problem(405, detail, f"allowed here: {allowed}"), {"Allow": allowed})


async def _on_system(_: Request, error: Exception) -> Response:
    if cast(OSError, error).errno not in (errno.ENOSPC, errno.EDQUOT):
        return _unexpected(error)
    full = errors.DiskFull("no space is left on the disk of the job manager", hint="free some, and send it again")
    return ProblemResponse(problem_of(full))


async def _on_bug(_: Request, error: Exception) -> Response:
    return _unexpected(error)


def _unexpected(error: Exception) -> Response:
    number = uuid4().hex[:12]
    _log.error("request failed, error %s", number, exc_info=error)
    detail = f"the job manager failed to answer; error {number}"
    return ProblemResponse(plain_problem(500, detail, f"its log has the cause under {number}"))


def _location(found: Mapping[str, Any]) -> str:
    return ".".join(str(part)[:100] for part in found.get("loc", ()))


def _message(found: Mapping[str, Any]) -> str:
    return str(found.get("msg", "")).removeprefix("Value error, ")
