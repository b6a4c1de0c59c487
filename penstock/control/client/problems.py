"""Problems (RFC 9457) that the job manager returns, as the errors that they stand for."""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from penstock import errors
from penstock.control.api.problems import ERROR, Problem
from penstock.errors import AccessDenied, NoJobManager, PenstockError, RequestRefused

_UNAVAILABLE = (429, 502, 503, 504)


def error_of(response: httpx.Response) -> PenstockError:
    """Return the error that a response stands for: of the class that it names, or of its status."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return _not_ours(response)
    return error_of_problem(problem)


def error_of_problem(problem: Problem) -> PenstockError:
    """Return the error that a problem stands for."""
    kind, transient = _kind(problem), problem.transient or problem.status in _UNAVAILABLE
    return kind(problem.detail, node=problem.node, hint=_hint(problem), transient=transient)


def _hint(problem: Problem) -> str | None:
    # The detail of a bad request is its first mistake.
    if problem.hint and len(problem.errors) < 2:
        return problem.hint
    return "\n  ".join(f"{each.field}: {each.message}" for each in problem.errors[:5]) or problem.hint


def _kind(problem: Problem) -> type[PenstockError]:
    found = getattr(errors, problem.type.removeprefix(ERROR), None) if problem.type.startswith(ERROR) else None
    if isinstance(found, type) and issubclass(found, PenstockError):
        return found
    if problem.status in (401, 403):
        return AccessDenied
    return NoJobManager if problem.status >= 500 else RequestRefused


def _not_ours(response: httpx.Response) -> PenstockError:
    """Return the error of a response that no job manager sent: of a proxy, or of another server at this address."""
    message = f"{response.url.copy_with(query=None)} answered {response.status_code} {response.reason_phrase}"
    hint = "check that this is the address of a job manager"
    return NoJobManager(message, hint=hint, transient=response.status_code in _UNAVAILABLE)
