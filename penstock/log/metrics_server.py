"""Serves /metrics over HTTP on the log's own event loop, so that nothing is read while it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import CONTENT_TYPE_LATEST

from penstock.errors import PortTaken

_PATIENCE = 5.0
_MAX_HEAD = 8 * 1024
_PLAIN = "text/plain; charset=utf-8"


class MetricsServer:
    """Answers GET /metrics with what `render` gives, and anything else with a refusal."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; 0 chooses a free one."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD)
        except OSError as error:
            message = f"cannot serve metrics on {host}:{port}: {error.strerror}"
            raise PortTaken(message, hint="choose another: --metrics HOST:PORT") from None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.partition(b"\r\n")[0].split(b" ")))
                await writer.drain()
        writer.close()

    def _answer(self, request: list[bytes]) -> bytes:
        method, path = (*request, b"", b"")[:2]
        if path.partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", _PLAIN, b"metrics are at /metrics\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", _PLAIN, b"metrics can be read with GET\n")
        return _response("200 OK", CONTENT_TYPE_LATEST, self._render())


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
