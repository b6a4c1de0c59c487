"""Responses as models; what no job manager sent is an error that says so."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from penstock.errors import NoJobManager

M = TypeVar("M", bound=BaseModel)


def json_of(response: httpx.Response) -> Any:
    """Return the JSON of a response."""
    try:
        return response.json()
    except ValueError as error:
        message = f"the answer of {response.url.copy_with(query=None)} is not one of a job manager"
        raise NoJobManager(message, hint="check that this is the address of a job manager") from error


def read(model: type[M], value: Any) -> M:
    """Return a JSON value as a model."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        message = f"the answer is not a {model.__name__} of a job manager: {error.errors()[0]['msg']}"
        raise NoJobManager(message, hint="check the address, and that both sides have the same version") from error
