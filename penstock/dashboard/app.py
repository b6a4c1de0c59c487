"""Serves the built pages. They hold no data: what they show comes from the REST API, with the reader's token."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
# No script, style or connection of elsewhere, none inside of the page, and no other page around it.
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src 'self' data:; "
    "object-src 'none'"
)
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Vary": "Accept-Encoding"}
# The name of an asset has a hash of its content.
_FOREVER = "public, max-age=31536000, immutable"
_NOT_BUILT = """The dashboard is not built. In a checkout of Penstock, run:

    make dashboard

The REST API is at /api/v1, and `penstock top` shows the jobs in a terminal.
"""


@dataclass(frozen=True)
class _File:
    content: bytes
    compressed: bytes
    media_type: str
    etag: str


class Dashboard:
    """An ASGI application that serves the files of one folder, compressed and with headers for caches."""

    def __init__(self, static: Path = STATIC) -> None:
        self.static = static.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file of a path; `/` is the page itself, whatever follows its `#`."""
        await self._response(Request(scope))(scope, receive, send)

    def _response(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET\n", 405, _HEADERS)
        name = request.url.path.lstrip("/") or INDEX
        path = (self.static / name).resolve()
        if path.is_relative_to(self.static) and path.is_file():
            return _file_response(request, _read(path, path.stat().st_mtime_ns), forever=name.startswith("assets/"))
        if name == INDEX:
            return PlainTextResponse(_NOT_BUILT, 503, _HEADERS)
        return PlainTextResponse("There is no such page; the dashboard is at /\n", 404, _HEADERS)


def create_dashboard(static: Path = STATIC) -> Dashboard:
    """Return the dashboard, or an application that says how to build it."""
    return Dashboard(static)


@lru_cache(maxsize=256)
def _read(path: Path, changed: int) -> _File:
    """Return a file; one that has changed is read again."""
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return _File(content, gzip.compress(content, 9), media_type, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


def _file_response(request: Request, file: _File, *, forever: bool) -> Response:
    headers = {**_HEADERS, "Cache-Control": _FOREVER if forever else "no-cache", "ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(None, 304, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, 200, {**headers, "Content-Encoding": "gzip"}, file.media_type)
    return Response(file.content, 200, headers, file.media_type)
