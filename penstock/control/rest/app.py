"""The application: routes, and what goes around them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.control.broker.broker import Broker
from penstock.control.rest import (
    cluster,
    commands,
    events,
    history,
    jobs,
    logs,
    message_stream,
    nodes,
    plans,
    queries,
    samples,
    secrets,
    session,
    topics,
    versions,
)
from penstock.control.rest.audit import Audit
from penstock.control.rest.body_limits import BODY_SIZES, BodyLimits, BodySizes
from penstock.control.rest.documentation import document
from penstock.control.rest.guard import Guard
from penstock.control.rest.manager import Access, Manager, Principal
from penstock.control.rest.problems import SCHEMA_PATH, handle_errors

PREFIX = "/api/v1"
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class NoTokens:
    """Access without tokens: for clients on this machine only."""

    def required(self) -> bool:
        """Return False."""
        return False

    def known_requirement(self) -> bool | None:
        """Return False."""
        return False

    def authenticate(self, token: str, /) -> Principal | None:
        """Return None: there is no token."""
        return None


def create_app(
    manager: Manager,
    access: Access | None = None,
    broker: Broker | None = None,
    *,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    sizes: BodySizes = BODY_SIZES,
    dashboard: ASGIApp | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """Return the REST API of a job manager.

    `hosts` are names by which this machine may ask without a token, besides those of loopback. `origins` are websites
    whose pages may use it (CORS); none by default. `dashboard` gets every path that the API does not have.
    """
    app = FastAPI(openapi_url=SCHEMA_PATH, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    app.state.manager, app.state.broker, app.state.event_texts = manager, broker, events.EventTexts()
    app.state.access = access = access or NoTokens()
    for noun in (
        session,
        samples,
        versions,
        jobs,
        plans,
        nodes,
        commands,
        history,
        logs,
        events,
        cluster,
        secrets,
        topics,
        message_stream,
        queries,
    ):
        app.include_router(noun.router, prefix=PREFIX)
    app.include_router(cluster.probes)
    handle_errors(app)
    document(app)
    if dashboard is not None:
        app.router.default = _pages(dashboard, app.router.default)
    app.add_middleware(Audit, manager=manager)
    app.add_middleware(BodyLimits, sizes=sizes)
    app.add_middleware(Guard, access=access, hosts=hosts, origins=origins)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
        )
    return app


def _pages(dashboard: ASGIApp, otherwise: ASGIApp) -> ASGIApp:
    async def pages(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith("/api/")
        await (dashboard if is_page else otherwise)(scope, receive, send)

    return pages
