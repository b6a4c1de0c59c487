"""Types of fields: texts and objects that a database can store, and such as are masked in responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from penstock.errors import choices
from penstock.masking import HIDDEN, is_secret, masked_text
from penstock.secret_references import is_reference

# PostgreSQL stores no NUL; other control characters in a name only hide what it is.
_PLAIN = r"^[^\x00-\x1f\x7f]+$"
_DEEPEST = 50


# The names of options are few, and each is asked for with every job of a list.
_names_a_secret = lru_cache(maxsize=4096)(is_secret)


def mask(value: Any, name: str = "") -> Any:
    """Return a JSON value without the secrets in it, by the names of fields and in addresses.

    A text that is a reference to a secret stays: it names a secret, and does not have it.

    >>> mask({"sasl": {"password": "abc"}, "token": "${secret:API}", "url": "kafka://ada:abc@a:1"})
    {'sasl': {'password': '***'}, 'token': '${secret:API}', 'url': 'kafka://ada:***@a:1'}
    """
    # Before Mapping, whose check is slow: a list of jobs has many values.
    if isinstance(value, dict | Mapping):
        return {key: mask(part, str(key)) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask(part, name) for part in value]
    is_text = isinstance(value, str)
    if is_text and value.startswith("$") and is_reference(value):
        return value
    if value and name and not isinstance(value, bool) and _names_a_secret(name):
        return HIDDEN
    return masked_text(value) if is_text else value


def storable(value: Any, depth: int = 0) -> Any:
    """Return a JSON value as it is; refuse what a database or a JSON text cannot hold."""
    if reason := _unstorable(value, depth):
        raise ValueError(reason)
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else []
    for part in parts:
        storable(part, depth + 1)
    return value


def _unstorable(value: Any, depth: int) -> str | None:
    if depth > _DEEPEST:
        return "is nested too deeply"
    if isinstance(value, str) and "\x00" in value:
        return "contains a NUL character"
    if isinstance(value, float) and not math.isfinite(value):
        return "contains NaN or Infinity, which JSON does not have"
    return None


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_PLAIN)]
# A job by its id or its name, as in a path.
JobName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]
Object = Annotated[dict[str, Any], AfterValidator(storable)]
Time = Annotated[datetime, AfterValidator(_utc)]
MaskedText = Annotated[str, AfterValidator(masked_text)]
MaskedObject = Annotated[dict[str, Any], AfterValidator(mask)]
Count = Annotated[int, Field(ge=0)]


class Response(BaseModel):
    """A part of a response. Clients ignore fields that they do not know, so that a newer server can add some."""

    model_config = ConfigDict(extra="ignore")


class Request(BaseModel):
    """A part of a request. An unknown field is refused: it is a mistake in a name."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        known = {field.alias or name for name, field in cls.model_fields.items()}
        for name in given if isinstance(given, Mapping) else ():
            if name not in known:
                given_name = str(name)[:50]  # it comes from the request and may be long
                message = f"unknown field {given_name!r}; {choices('fields', sorted(known), given_name)}"
                raise ValueError(message)
        return given


class Query(Request):
    """The parameters of a query. An empty one counts as not given, as in `?state=&name=`."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        kept = {name: _filled(value) for name, value in given.items()}
        return {name: value for name, value in kept.items() if value not in ("", [])}


def _filled(value: Any) -> Any:
    return [part for part in value if part != ""] if isinstance(value, list) else value
