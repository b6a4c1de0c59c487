"""Who may send requests at all: hosts, origins and tokens, decided before anything of a body is read.

Without tokens only this machine may ask, and only under its own name: a page of a website whose name resolves to
127.0.0.1 (DNS rebinding), or that posts a form to it, is a foreign one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.control.api.access import ROLES
from penstock.control.api.problems import Problem
from penstock.control.rest.manager import Access, Caller
from penstock.control.rest.problems import ProblemResponse, plain_problem, problem_of
from penstock.errors import PenstockError

# A WebSocket client in a browser cannot send headers: it may offer `bearer.TOKEN` beside this protocol.
PROTOCOL = "penstock.v1"
_BEARER_PROTOCOL = "bearer."
# An EventSource in a browser cannot either.
_TOKEN_IN_QUERY = ("/api/v1/events", "/api/v1/events/stream")
# Probes of Kubernetes and load balancers have no token and use the address of the pod as host.
_OPEN = ("/health", "/ready")
# Pages of the dashboard hold no data: what they show, they ask of the API.
_PAGES = ("/", "/favicon.svg")
_ASSETS = "/assets/"
_PROXIED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_CREATE = "create one on the machine of the job manager: penstock token create NAME --role operator"


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Guard:
    """Admits a request with a caller in its scope, or refuses it."""

    def __init__(
        self, app: ASGIApp, access: Access, hosts: Collection[str] = (), origins: Collection[str] = ()
    ) -> None:
        self.app, self.access = app, access
        self.hosts, self.origins = frozenset(map(str.lower, hosts)), frozenset(map(str.lower, origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with a problem."""
        if scope["type"] in ("http", "websocket") and not _is_open(scope):
            try:
                scope["penstock.caller"] = await self._admit(scope, Headers(scope=scope))
            except _Refused as refused:
                await _refuse(refused.problem, scope, receive, send)
                return
            except PenstockError as error:  # the store is away, so nobody can be authenticated
                await _refuse(problem_of(error), scope, receive, send)
                return
        await self.app(scope, receive, _not_sniffed(send))

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        self._check_origin(headers)
        token = _token(scope, headers)
        address = scope["client"][0] if scope.get("client") else None
        if token is not None:
            return await self._holder(token, address)
        known = self.access.known_requirement()
        if await run_in_threadpool(self.access.required) if known is None else known:
            raise _refused(401, "this job manager requires a token", f"send Authorization: Bearer TOKEN; {_CREATE}")
        self._check_local(headers, address)
        return Caller("local", "admin", address)

    async def _holder(self, token: str, address: str | None) -> Caller:
        found = await run_in_threadpool(self.access.authenticate, token)
        role = next((role for role in ROLES if found is not None and role == str(found.role)), None)
        if found is None or role is None:
            raise _refused(401, "the token is not known, or has expired", _CREATE)
        return Caller(found.name, role, address)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse pages of other websites, whatever token or loopback address their browser has."""
        origin = headers.get("origin", "").lower()
        foreign = (
            origin and origin not in self.origins and origin.partition("://")[2] != headers.get("host", "").lower()
        )
        # A link from elsewhere is harmless; a form that posts has an origin.
        linked = headers.get("sec-fetch-mode") == "navigate"
        crossed = headers.get("sec-fetch-site") == "cross-site" and origin not in self.origins and not linked
        if foreign or crossed:
            hint = "add its origin to the allowed origins of the server"
            raise _refused(403, "pages of other origins may not use this job manager", hint)

    def _check_local(self, headers: Headers, address: str | None) -> None:
        host = _host_name(headers.get("host", ""))
        if any(name in headers for name in _PROXIED):
            raise _refused(401, "behind a proxy this job manager requires a token", _CREATE)
        if not _is_loopback(address or ""):
            raise _refused(401, "only clients on this machine need no token", _CREATE)
        if not (host == "localhost" or _is_loopback(host) or host in self.hosts):
            raise _refused(403, "without a token the Host header must be localhost", "open http://127.0.0.1 instead")


def _is_open(scope: Scope) -> bool:
    path: str = scope["path"]
    is_page = path in _PAGES or path.startswith(_ASSETS)
    return path in _OPEN or (is_page and scope.get("method") in ("GET", "HEAD"))


def _not_sniffed(send: Send) -> Send:
    """Add a header that keeps browsers from taking a log or a record for a page."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
        await send(message)

    return named


def _refused(status: int, detail: str, hint: str) -> _Refused:
    problem = plain_problem(status, detail, hint)
    return _Refused(problem.model_copy(update={"type": "urn:penstock:error:AccessDenied", "title": "AccessDenied"}))


async def _refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": problem.detail})
        return
    await ProblemResponse(problem, headers)(scope, receive, send)


def _token(scope: Scope, headers: Headers) -> str | None:
    """Return the token of a request, and take it out of the query, which servers log."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    if scope["type"] == "websocket":
        offered = [name for name in scope.get("subprotocols", ()) if name.startswith(_BEARER_PROTOCOL)]
        if offered:
            return str(offered[0]).removeprefix(_BEARER_PROTOCOL)
    return _token_in_query(scope) if scope["path"] in _TOKEN_IN_QUERY else None


def _token_in_query(scope: Scope) -> str | None:
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    found = [value for name, value in pairs if name == "token"]
    if found:
        scope["query_string"] = urlencode([pair for pair in pairs if pair[0] != "token"]).encode()
    return found[0] if found else None


def _host_name(host: str) -> str:
    """Return the name of a Host header, without its port.

    >>> _host_name("localhost:8081"), _host_name("[::1]:8081")
    ('localhost', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
