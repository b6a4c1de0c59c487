"""`/api/v1/secrets`: values that jobs refer to by `${secret:NAME}`. They are set and deleted, and never returned."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from penstock.control.api.access import Secret, SecretName, SecretValue
from penstock.control.api.pages import Page
from penstock.control.rest.callers import TheCaller, TheManager
from penstock.control.rest.documentation import operation

SecretPath = Annotated[SecretName, Path(description="name of the secret")]

router = APIRouter(tags=["secrets"])


@router.get("/secrets", **operation("list_secrets", "admin"))
def list_secrets(manager: TheManager) -> Page[Secret]:
    """List the secrets in the store by their names, without values."""
    return Page[Secret](items=manager.secrets())


@router.put("/secrets/{secret}", **operation("set_secret", "admin"))
def set_secret(secret: SecretPath, body: SecretValue, manager: TheManager, caller: TheCaller) -> Secret:
    """Set a secret, or change it. Drivers that start from now on use the new value."""
    return manager.set_secret(secret, body.value, caller)


@router.delete("/secrets/{secret}", status_code=204, **operation("delete_secret", "admin", 404))
def delete_secret(secret: SecretPath, manager: TheManager) -> None:
    """Delete a secret. Drivers that run keep its value."""
    manager.delete_secret(secret)
