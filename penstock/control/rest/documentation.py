"""The OpenAPI schema: what each operation needs and may return."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.responses import Response

from penstock.control.api.access import Role
from penstock.control.api.problems import MEDIA_TYPE, Problem
from penstock.control.api.version import VERSION
from penstock.control.rest.callers import Needs

# What may happen to any request of the API.
ALWAYS = (400, 401, 403, 413, 422, 500, 503)
_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer"}},
    503: {"Retry-After": {"schema": {"type": "string"}, "description": "seconds to wait before trying again"}},
}
_DESCRIPTION = """Submits, supervises and changes jobs. Every error is application/problem+json.

Events are sent by WebSocket at `/api/v1/events`, with the parameters of `/api/v1/events/stream`. A token goes into the
header `Authorization: Bearer TOKEN`; where a browser cannot send it, into the WebSocket protocol `bearer.TOKEN` beside
`penstock.v1`, or into `?token=` of both streams."""
_BEARER = {"type": "http", "scheme": "bearer", "description": "a token, as `penstock token create` prints it"}


def operation(name: str, role: Role, *statuses: int, **more: Any) -> dict[str, Any]:
    """Return the arguments of a route: its id, the role that it needs, and the problems that it may return."""
    responses = {**problems(*ALWAYS, *statuses), **more.pop("responses", {})}
    extra = {"x-role": role, "security": [{"token": []}], **more.pop("openapi_extra", {})}
    return {
        "operation_id": name,
        "dependencies": [Depends(Needs(role))],
        "responses": responses,
        "openapi_extra": extra,
        **more,
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the problems with these statuses."""
    return {status: _described(status) for status in sorted(statuses)}


def _described(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": _PROBLEM}
    return {**found, "headers": _HEADERS[status]} if status in _HEADERS else found


def written(model: BaseModel) -> Response:
    """Return a model as a response, written in the thread that made it.

    For what is asked for often: FastAPI would check the model again, in another thread.
    """
    return Response(model.model_dump_json(by_alias=True), media_type="application/json")


def location(name: str) -> dict[str, Any]:
    """Return the description of a Location header."""
    return {"headers": {"Location": {"schema": {"type": "string"}, "description": f"path of the {name}"}}}


def upload(example: str) -> dict[str, Any]:
    """Return the description of a form with a file: its part needs a file name, which a schema alone cannot say."""
    disposition = f'form-data; name="file"; filename="{example}"'
    header = {"schema": {"type": "string"}, "example": disposition, "description": "with the name of the file"}
    part = {"contentType": "text/x-python, application/zip", "headers": {"Content-Disposition": header}}
    return {"requestBody": {"content": {"multipart/form-data": {"encoding": {"file": part}}}}}


def document(app: FastAPI) -> None:
    """Make the application return its complete schema."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _schema(app)
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]


def allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods that a path has: a router that finds another method names those of one route only."""
    found: set[str] = set()
    for template, operations in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            found |= {method.upper() for method in operations}
    return sorted(found)


def _schema(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title="Penstock job manager",
        version=VERSION,
        description=_DESCRIPTION,
        routes=app.routes,
    )
    parts = found.setdefault("components", {})
    definition = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    parts.setdefault("schemas", {}).update({**definition.pop("$defs", {}), "Problem": definition})
    parts["securitySchemes"] = {"token": _BEARER}
    return found
