"""Who sends a request, and what the routes take from the application."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from penstock.control.api.access import ROLES, Role
from penstock.control.rest.manager import Access, Caller, Manager
from penstock.errors import AccessDenied


async def _manager(connection: HTTPConnection) -> Manager:
    manager: Manager = connection.app.state.manager
    return manager


async def _access(connection: HTTPConnection) -> Access:
    access: Access = connection.app.state.access
    return access


async def _caller(connection: HTTPConnection) -> Caller:
    # The guard has put it there; a request that came around the guard has no rights.
    caller: Caller | None = connection.scope.get("penstock.caller")
    if caller is None:
        message = "the request has no caller"
        raise AccessDenied(message)
    return caller


TheManager = Annotated[Manager, Depends(_manager)]
TheAccess = Annotated[Access, Depends(_access)]
TheCaller = Annotated[Caller, Depends(_caller)]


class Needs:
    """Refuses callers whose role is less than the one that a route needs."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, caller: TheCaller) -> None:
        """Raise AccessDenied for a smaller role."""
        if ROLES.index(caller.role) < ROLES.index(self.role):
            message = f"'{caller.name}' is a {caller.role}, and this needs the role {self.role}"
            raise AccessDenied(message, hint="use a token with that role: penstock token create --role " + self.role)
