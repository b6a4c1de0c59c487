"""`/api/v1/session`: who asks, and what they may do."""

from __future__ import annotations

from fastapi import APIRouter

from penstock.control.api.access import Session
from penstock.control.api.version import VERSION
from penstock.control.rest.callers import TheAccess, TheCaller
from penstock.control.rest.documentation import operation

router = APIRouter(tags=["cluster"])


@router.get("/session", **operation("get_session", "viewer"))
def get_session(caller: TheCaller, access: TheAccess) -> Session:
    """Return the name and role of the caller; a missing or wrong token is a 401 where one is required."""
    return Session(name=caller.name, role=caller.role, token_required=access.required(), version=VERSION)
