"""Tokens, roles and the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from penstock.control.api.fields import MaskedText, Request, Response, Text, Time, storable

Role = Literal["viewer", "operator", "admin"]
# Each may do what those before it may.
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")


class Token(Response):
    """A token, without its text."""

    id: str
    name: str
    role: Role
    created_at: Time | None = None
    expires_at: Time | None = None
    last_used_at: Time | None = None


class NewToken(Token):
    """A token that was just created: the only response that has its text."""

    token: str = Field(description="keep it: it is not shown again")


class Session(Response):
    """Who asks: the holder of the token, or the local user where no token is required."""

    name: str
    role: Role
    token_required: bool = Field(description="whether requests need a token")
    version: str = Field(description="version of the job manager")


class TokenRequest(Request):
    """A token to create."""

    name: Text
    role: Role = "viewer"
    expires_at: Time | None = None


# As in ${secret:NAME}.
SecretName = Annotated[str, StringConstraints(pattern="^[A-Za-z][A-Za-z0-9_]{0,99}$")]


class Secret(Response):
    """A secret, without its value."""

    name: str
    created_at: Time
    updated_at: Time
    updated_by: str | None = None


class SecretValue(Request):
    """The value of a secret."""

    value: Annotated[str, StringConstraints(min_length=1, max_length=65_536), AfterValidator(storable)]


class AuditEntry(Response):
    """Who did what, from where, and with which result."""

    at: Time
    who: str
    role: str | None = None
    action: str = Field(examples=["stop_job"])
    target: MaskedText = Field(examples=["/api/v1/jobs/vwap/stop"])
    address: str | None = None
    outcome: str = Field(description="HTTP status", examples=["202"])
